"""Evidence for the filter of a run, with all fields as `producer evaluate` writes them."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.storage.manifest import scores_revision
from shardsift.producer.evidence.evidence import Evidence, model_and_scoring


def an_evaluation(**changes: Any) -> dict[str, Any]:
    """Make the value of `Evaluation.as_json` for the run of `a_spec`. The filter's threshold is the fourth of five."""
    found = {
        "name": "/home/me/kept",
        "run_id": "labelled-run",
        "score_column": "score",
        "threshold": 3.0,
        "positive": "label >= 3",
        "judge": None,
        "labels": {"file": "labels.csv", "sha256": "ab" * 32, "rows": 400, "good": 123, "weighted": True},
        "strata": [
            {"low": None, "high": 3.0, "rows": 9_000, "labels": 200, "good": 3},
            {"low": 3.0, "high": None, "rows": 1_000, "labels": 200, "good": 120},
        ],
        "thresholds": [a_line(at, rows_kept=rows) for at, rows in ((1.5, 4_000), (2, 3_000), (2.5, 2_000), (3, 1_000))],
        "within": None,
        "values": {},
    }
    found["thresholds"].append(a_line(3.75, rows_kept=0, precision=None))
    return found | changes


def a_line(threshold: float, **changes: Any) -> dict[str, Any]:
    return {
        "threshold": threshold,
        "rows": 10_000,
        "rows_kept": 1_000,
        "precision": {"value": 0.6, "low": 0.53, "high": 0.667},
        "recall": {"value": 0.8163, "low": 0.68, "high": 0.93},
        "good_lost": 135,
        "bad_kept": 400,
        "f1": 0.69,
    } | changes


def an_evidence(spec: RunSpec, receipts: Sequence[Receipt], **changes: Any) -> Evidence:
    """Make evidence from labels of rows of this run."""
    found = an_evaluation(**changes)
    model, scoring = model_and_scoring(spec, found["score_column"])
    about = {"model": model, "scoring": scoring, "scores_revision": scores_revision(receipts)}
    return TypeAdapter(Evidence).validate_python(found | about)
