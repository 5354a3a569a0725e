"""Format names and values as Markdown for a card, and name the source."""

import re
from collections.abc import Iterable, Sequence

from shardsift.fleet.inputs.formats import format_name, without_ending
from shardsift.fleet.run.spec import RunSpec, disclosed_inputs

# Leaves out the revision of a pull request: once it is merged, its card is the card of main.
HUB_DATASET = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@(?!refs/pr/)([^/]+))?")


def hub_link(name: str, kind: str = "") -> str:
    return f"[{name}](https://huggingface.co/{kind}{name})"


def code(text: str) -> str:
    """Format text as inline code, fenced with more backticks than it contains."""
    line = " ".join(text.splitlines())
    fence = longer_fence(line, least=1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def longer_fence(text: str, *, least: int) -> str:
    """Return a code fence: more backticks than any sequence of them in the text, and at least `least`."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def cell(text: str) -> str:
    """Format text as code for a cell of a table. Escapes bars, because a bar ends a cell."""
    return code(text).replace("|", "\\|")


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in (head, ["---"] * len(head), *rows))


def percent_of(part: int, whole: int) -> str:
    """Format a share, for example ` (12.5%)`. Empty if the whole is 0."""
    return f" ({part / whole:.1%})" if whole else ""


def hub_dataset(spec: RunSpec) -> tuple[str, str | None] | None:
    """Return the Hub dataset that was read, and its revision in the last input URI. The revision is None if this names none.

    Returns None instead of both if several datasets were read, or files that are not on the Hub.
    """
    found = [HUB_DATASET.match(uri) for uri in spec.input_uris]
    last = found[-1]
    return (last[1], last[2]) if last and all(one and one[1] == last[1] for one in found) else None


def first_input(spec: RunSpec) -> str:
    """Name the first input: a dataset's name, the folder before the wildcards, or the file without its ending."""
    first = disclosed_inputs(spec)[0]
    if found := HUB_DATASET.match(first):
        return found[1].rpartition("/")[2]
    fixed = re.split(r"/?[^/]*[*?\[]", first)[0].rstrip("/")
    return " ".join(without_ending(fixed.rpartition("/")[2]).split()) or f"{format_name(first)} files"


def source_name(spec: RunSpec) -> str:
    dataset = hub_dataset(spec)
    if dataset:
        return hub_link(dataset[0], "datasets/")
    return code(first_input(spec)) if len(spec.input_uris) == 1 else f"{len(spec.input_uris):,} sources"
