"""Say that an output belongs to another run, with the options that differ, or to somebody else."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from fleet.errors import OutputTaken, UsageError
from fleet.run.disclosure import disclosed_spec
from fleet.run.spec import RunSpec
from fleet.storage.output import MANIFEST_PATH

_NAMES = {  # of fields that are not called like their option
    "input_uris": "--input",
    "input_revision": "the files of the input",
    "columns": "the columns",
    "scorings": "the scorings",
    "where": "--min-score or --where",
    "output_uri": "--output",
    "only_columns": "--columns",
    "window_rows": "the rows of a window",
    "window_bytes": "the bytes of a window",
    "name": "--model",
    "revision": "the model's revision",
    "function": "--function-to-apply",
    "text_columns": "--text-column",
    "text_template": "--text-column, a template",
    "score_column": "the score's column",
    "int_score": "int_score",
    "pool": "the pool of --passages",
    "zero_shot": "--labels",
    "scores_from": "the stored scores",
}


def other_run(uri: str, run_id: str, there: RunSpec | None, here: RunSpec) -> OutputTaken:
    """`there` is the other run's spec as its output discloses it; None if it cannot be read."""
    return OutputTaken(
        f"The output {uri} holds the data of another run, {run_id}.{_difference(there, here)} "
        "Choose another --output, or use that run's options to continue it.",
        run_id=run_id,
    )


def data_of_others(uri: str) -> UsageError:
    return UsageError(
        f"The output {uri} holds data, but no {MANIFEST_PATH} that this release of shardsift can read. "
        "Choose another --output."
    )


def card_of_others(uri: str) -> UsageError:
    return UsageError(
        f"The output {uri} has a README.md, which the card of the dataset would replace. Move it away, or choose another "
        "--output."
    )


def _difference(there: RunSpec | None, here: RunSpec) -> str:
    if there is None:
        return ""
    found = dict.fromkeys(differences(there, disclosed_spec(here)))  # several models often differ in the same way
    return f" The difference is {'; '.join(found) or 'the location of the input or the model'}."


def differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    """A clause for each field that differs, such as `--min-score or --where: score >= 3 there, score >= 4 here`."""
    if there == here:
        return
    if is_dataclass(there) and type(there) is type(here):
        for field in fields(there):
            yield from differences(getattr(there, field.name), getattr(here, field.name), field.name)
    elif name == "scorings" and len(there) == len(here):
        for one, other in zip(there, here, strict=True):
            yield from differences(one, other)
    else:
        option = _NAMES.get(name, f"--{name.replace('_', '-')}")
        yield f"{option}: {_shown(there)} there, {_shown(here)} here"


def _shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(" ".join(item) if isinstance(item, tuple) else str(item) for item in value)
    if is_dataclass(value):  # the labels of a ZeroShot, the name of a Model
        return _shown(getattr(value, fields(value)[0].name))
    return str(value)
