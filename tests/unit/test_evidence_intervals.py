"""Precision and recall from the labels of a stratified sample: what the intervals say, and how often they are right."""

import numpy as np
import pytest

from benchmarks.evidence import coverage, missed, rare
from shardsift.fleet.errors import UsageError
from shardsift.producer.evidence.evaluation import Evaluation, StratumLabels, label_file
from shardsift.producer.evidence.intervals import LabelledStratum, Part, measured, share_of_good
from shardsift.producer.evidence.strata import Stratum

HIGH, LOW = Stratum(low=3, high=np.inf), Stratum(low=-np.inf, high=3)


def stratum(rows: int, labels: list[int], *, score: float, at_least: list[int]) -> LabelledStratum:
    """Labels of rows that all have one score."""
    return LabelledStratum(
        rows=rows,
        rows_at_least=np.array(at_least),
        scores=np.full(len(labels), score, np.float32),
        is_good=np.array(labels, bool),
    )


def of_crawl(lost: int) -> list[LabelledStratum]:
    """A million kept rows and 127 million others, of which `lost` of 50 labels are good."""
    kept = stratum(1_000_000, [1] * 40 + [0] * 10, score=4, at_least=[1_000_000])
    return [kept, stratum(127_000_000, [1] * lost + [0] * (50 - lost), score=1, at_least=[0])]


def evaluation(strata: list[LabelledStratum], thresholds: list[float]) -> Evaluation:
    labelled = tuple(
        StratumLabels(stratum=one, rows=found.rows, labels=found.all.labels, good=found.all.good)
        for one, found in zip((HIGH, LOW), strata, strict=True)
    )
    return Evaluation(
        name="a-run",
        run_id="a-run",
        scores_revision="",
        score_column="score",
        model="",
        scoring="",
        threshold=3.0,
        positive="label = 1",
        judge=None,
        labels=label_file(labelled, file="labels.csv", sha256=""),
        strata=(),
        labelled_strata=labelled,
        within=None,
        thresholds=tuple(measured(strata, thresholds)),
        values={},
    )


def test_a_large_stratum_without_a_good_label_limits_the_recall_and_is_named() -> None:
    found = evaluation(of_crawl(0), [3.0])

    (at,) = found.thresholds
    assert at.recall.value == at.recall.high == 1.0
    assert at.recall.low < 0.2  # 5 % of 127 million rows may be good
    assert "Recall is limited by score less than 3: 0 of 50 labels are good, so up to 6," in found.lines()[-1]
    assert measured(of_crawl(25), [3.0])[0].recall.high < 0.02


def test_rows_between_two_thresholds_without_a_label_are_taken_to_be_like_their_stratum() -> None:
    above, all_rows = measured([stratum(1_000, [0] * 50, score=1, at_least=[100, 1_000])], [2.0, -1.0])

    assert above.precision is not None
    assert (above.precision.value, above.precision.high, above.bad_kept) == (0.0, 1.0, 100)
    assert all_rows.bad_kept == 1_000


@pytest.mark.parametrize(
    "choice", ["precision", "precision=1.5", "precision=150%", "f1=0.8", "precision=nan", "precision>0.8", ""]
)
def test_a_choice_that_is_no_share_of_precision_or_recall_is_refused(choice: str) -> None:
    with pytest.raises(UsageError, match=r"^--choose takes precision=SHARE or recall=SHARE, like precision=0\.8, not"):
        evaluation(of_crawl(0), [3.0]).chosen(choice)


def test_the_precision_of_no_kept_row_meets_no_requirement() -> None:
    none_kept = evaluation(
        [stratum(10, [1, 0], score=2, at_least=[0]), stratum(10, [0, 1], score=1, at_least=[0])], [3.0]
    )

    assert len(none_kept.unmet(min_precision=0.01, min_recall=None)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("shape", [rare, missed], ids=lambda shape: shape.__name__)
def test_an_interval_holds_the_truth_in_at_least_nine_of_ten_populations(shape: object) -> None:
    """All shapes and 1,000 populations of each: benchmarks/evidence.py."""
    found = coverage(shape, populations=60, labels=400)

    assert min(found["precision"], found["recall"]) >= 0.9, found


@pytest.mark.parametrize(
    ("good", "labels", "low", "high"), [(37, 200, 0.1359, 0.2431), (0, 10, 0, 0.2172), (10, 10, 0.7828, 1)]
)
def test_the_interval_of_a_share_of_many_rows_is_jeffreys(good: int, labels: int, low: float, high: float) -> None:
    share = share_of_good(Part(rows=10**9, labels=labels, good=good))

    assert (share.value, share.low, share.high) == pytest.approx((good / labels, low, high), abs=0.01)  # by draws
