"""Killed workers with JSON Lines and CSV: each shard has the bytes that an undisturbed run over Parquet gives."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.disturbed_runs import DisturbedRuns
from support.injected_faults import InjectedFaults
from support.line_files import write_as_lines

SAVE = "shardsift.fleet.ledger.ledger:Ledger.save_scores"


@pytest.mark.faults
@pytest.mark.parametrize(("ending", "action"), [(".jsonl.zst", "kill"), (".csv.gz", "kill worker")])
def test_a_killed_workers_shard_has_the_bytes_of_an_undisturbed_run(
    ending: str,
    action: str,
    runs: DisturbedRuns,
    faults: InjectedFaults,
    small_shards: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
) -> None:
    runs = replace(runs, shards=write_as_lines(small_shards, tmp_path / "lines", ending))
    faults.at(SAVE, "after", action, times=2)
    run_id = runs.enqueue()

    with runs.served(workers=3):
        runs.wait_until_published(run_id)

    assert faults.fired() == 2
    assert runs.attempts() > {1}
    runs.check_nothing_lost_nothing_twice(run_id, undisturbed)
