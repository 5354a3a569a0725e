"""Say that an output belongs to another run, with the fields of the spec that differ, or to somebody else."""

from dataclasses import fields

from fleet.errors import OutputTaken, UsageError
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec, disclosed_spec
from fleet.storage.output import MANIFEST_PATH

_NAMES = {"input_uris": "the input", "input_revision": "the files of the input", "where": "the filter"}


def other_run(uri: str, run_id: str, there: RunSpec | None, here: RunSpec) -> OutputTaken:
    """`there` is the other run's spec as its output discloses it; None if it cannot be read."""
    advice = "Choose another --output, or use that run's options to continue it."
    if there and there.input_revision != here.input_revision:
        advice += f" To score changed files of its failed shards as they are now: producer retry {run_id}"
    return OutputTaken(
        f"The output {uri} holds the data of another run, {run_id}.{_difference(there, here)} {advice}",
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
    ours = disclosed_spec(here)
    found = [field.name for field in fields(RunSpec) if getattr(there, field.name) != getattr(ours, field.name)]
    if "scorings" in found and len(there.scorings) == len(ours.scorings):
        found.remove("scorings")
        pairs = [*zip(there.scorings, ours.scorings, strict=True)]
        found += [
            field.name
            for field in fields(Scoring)
            if any(getattr(one, field.name) != getattr(other, field.name) for one, other in pairs)
        ]
    named = [_NAMES.get(name, name.replace("_", " ")) for name in found]
    return f" It differs in: {', '.join(named) or 'the location of the input or the model'}."
