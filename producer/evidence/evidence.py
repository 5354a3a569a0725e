"""The evidence for a filter, as `producer evaluate --output` writes it and a manifest keeps it. It has no texts and no paths."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from pydantic import TypeAdapter

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import local_path
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, disclosed_spec
from shardsift.producer.evidence.intervals import Measured
from shardsift.producer.scores.distribution import lowest_kept


@dataclass(frozen=True, kw_only=True)
class LabelFile:
    file: str  # its name, without a path
    sha256: str
    rows: int  # with a label
    good: int
    weighted: bool


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The precision and recall of each threshold of a score, with the labels and the scoring that they were measured with."""

    run_id: str  # the run whose rows were labelled
    scores_revision: str  # of that run
    score_column: str
    model: str  # NAME@REVISION
    scoring: str  # digest of everything that determines the scores
    threshold: float | None  # at which `values` are measured
    positive: str  # the condition on `label` that makes a row good
    judge: str | None  # the model that gave the labels, if a model did
    labels: LabelFile
    strata: tuple[Mapping[str, int | float | str | None], ...]
    thresholds: tuple[Measured, ...]
    within: str | None
    values: Mapping[str, Measured]  # by value of `within`, lowest precision first

    def at(self, threshold: float | None) -> Measured | None:
        return next((one for one in self.thresholds if one.threshold == threshold), None)

    def to_json(self) -> str:
        return _EVIDENCE.dump_json(self, indent=2).decode() + "\n"


_EVIDENCE, _SCORING = TypeAdapter(Evidence), TypeAdapter(Scoring)


def evidence_in(text: str | bytes | None) -> Evidence | None:
    """Parse the result of `Evidence.to_json`. Returns None if `text` is None or is not valid for this release."""
    with suppress(ValueError):
        return _EVIDENCE.validate_json(text or "", strict=True)
    return None


def evidence_for(file: str | None, spec: RunSpec) -> Evidence | None:
    """Read the evidence file that the user named for a run. Returns None if `file` is None.

    Raises UsageError if the file cannot be read, or is not about the filter of this run.
    """
    if file is None:
        return None
    try:
        found = evidence_in(local_path(file).read_bytes())
    except OSError as error:
        raise UsageError(f"The evidence {file} cannot be read: {error.strerror}.") from error
    if found is None:
        raise UsageError(f"{file} is no evidence. Name a file that `producer evaluate … --output FILE` wrote.")
    check_evidence(found, spec)
    return found


def check_evidence(evidence: Evidence, spec: RunSpec) -> None:
    """Raise UsageError if the evidence is about other scores, or lacks the threshold of the run's filter."""
    column = evidence.score_column
    threshold = lowest_kept(spec.where, column) if column in spec.scoring_of else None
    if threshold is None:
        raise UsageError(
            f"The evidence is about a threshold of {column}, and the filter of this run is not one: {spec.where or 'none'}."
        )
    model, scoring = model_and_scoring(spec, column)
    if scoring != evidence.scoring:
        other = "by that model with other options" if model == evidence.model else f"by {model}"
        raise UsageError(
            f"The evidence is about scores by {evidence.model}, and {column} of this run is {other}. Label rows of a run with "
            "the same scores: producer sample"
        )
    if evidence.at(threshold) is None:
        raise UsageError(
            f"The evidence has no figures for {column} >= {threshold!r}, the filter of this run. Add them: "
            f"producer evaluate … --at {threshold!r} --output FILE"
        )


def write_evidence(evidence: Evidence, file: Path) -> None:
    """Write the file atomically. Raises UsageError if that fails, and leaves an earlier file unchanged."""
    aside = file.with_name(f".{uuid4().hex}")
    try:
        aside.write_text(evidence.to_json())
        aside.replace(file)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise UsageError(f"{file} cannot be written: {error.strerror}. Name another --output.") from error


def model_and_scoring(spec: RunSpec, column: str) -> tuple[str, str]:
    """Return a score column's model as NAME@REVISION, and a digest of the model and how it reads a text.

    The digest does not depend on the number format.
    """
    scoring = replace(disclosed_spec(spec).scoring_of[column], scores_from=None, dtype="auto")
    digest = sha256(_SCORING.dump_json(scoring, exclude_defaults=True)).hexdigest()
    return f"{scoring.model.name}@{scoring.model.revision}", digest
