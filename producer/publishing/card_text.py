"""Markdown for names and values in a card, and the name of the source."""

import re

from shardsift.fleet.inputs.formats import format_name, without_ending
from shardsift.fleet.run.spec import RunSpec, disclosed_inputs

# A pull request is not an address: its card is the one that main will have.
HUB_DATASET = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@(?!refs/pr/)([^/]+))?")


def hub_link(name: str, kind: str = "") -> str:
    return f"[{name}](https://huggingface.co/{kind}{name})"


def code(text: str) -> str:
    """Format text as code in a line. If it has backticks, it is fenced with more of them."""
    line = " ".join(text.splitlines())
    fence = longer_fence(line, least=1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def longer_fence(text: str, *, least: int) -> str:
    """More backticks in a row than the text has anywhere."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def cell(text: str) -> str:
    """Format text as code in a table, where a bar would end the cell."""
    return code(text).replace("|", "\\|")


def percent_of(part: int, whole: int) -> str:
    """For example ` (12.5%)`; empty if there is nothing."""
    return f" ({part / whole:.1%})" if whole else ""


def hub_dataset(spec: RunSpec) -> tuple[str, str | None] | None:
    """The dataset on the Hub that the run reads, and its revision; None if it reads several, or other files."""
    found = {(match[1], match[2]) if (match := HUB_DATASET.match(uri)) else None for uri in spec.input_uris}
    return found.pop() if len(found) == 1 else None


def first_input(spec: RunSpec) -> str:
    """The name of the first input: a dataset on the Hub, a folder before its wildcards, or a file without its suffix."""
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
