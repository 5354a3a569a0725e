"""What the ledger knows of a run's past and of its scores: bounded, and there when the run has ended."""

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.run.receipt import AttemptReport, Histogram
from support.ledger_states import A, B, claimed
from support.records import a_receipt, a_scoring_receipt

REPORT = AttemptReport(
    device="NVIDIA A10G",
    rows_per_second=117.5,
    rows_written=45,
    rows_kept=40,
    tokens=9_000,
    seconds={"device": 4.5, "input": 0.5},
    histograms={"score": Histogram(bins_per_unit=4, rows_by_bin={-3: 5, 12: 40})},
)


def test_what_a_worker_says_of_its_attempt_is_there_until_the_attempt_ends(ledger: Ledger, run: str) -> None:
    claim = claimed(ledger, run)

    ledger.renew(claim, rows=45, report=REPORT)
    (running,) = ledger.running_shards(run)
    ledger.release(claim)
    claimed(ledger, run)
    (again,) = ledger.running_shards(run)

    assert (running.report, running.rows) == (REPORT, 45)
    assert running.seen_seconds < 5
    assert (again.report, again.rows) == (None, 0)


def test_a_report_never_takes_more_than_4_kib(ledger: Ledger, run: str) -> None:
    wide = Histogram(bins_per_unit=4, rows_by_bin=dict.fromkeys(range(-400, 400), 1_000_000))

    shares = {"peak_share": 0.412, "memory_share": 0.631, "busy_share": 0.97}
    report = AttemptReport(**{**vars(REPORT), **shares, "histograms": {"score": wide}})

    assert len(report.to_json()) < 4096
    found = AttemptReport.from_json(report.to_json().decode())
    assert found is not None
    assert (found.histograms, found.tokens, found.peak_share) == ({}, REPORT.tokens, 0.412)
    assert AttemptReport.from_json('{"of": "a newer version"}') is None


def test_the_histogram_of_a_run_is_that_of_its_receipts_also_after_one_is_withdrawn(ledger: Ledger, run: str) -> None:
    kept, withdrawn = (
        a_receipt(run, shard, scorings=(a_scoring_receipt(histogram=Histogram(bins_per_unit=4, rows_by_bin=bins)),))
        for shard, bins in ((A, {-2: 1, 5: 8}), (B, {5: 2, 7: 7}))
    )

    for receipt, shard in ((kept, A), (withdrawn, B)):
        ledger.complete(claimed(ledger, run, shard), receipt)
    both = ledger.histograms(run)
    ledger.requeue(run, {B.name: "lost"}, of=[kept, withdrawn])

    assert both == {"score": Histogram(bins_per_unit=4, rows_by_bin={-2: 1, 5: 10, 7: 7})}
    assert ledger.histograms(run) == {"score": Histogram(bins_per_unit=4, rows_by_bin={-2: 1, 5: 8})}
