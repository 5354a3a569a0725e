"""What the Runs page shows of a run is what the ledger holds, in bounded size, and the ledger is read as rarely as promised."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import chain, count
from typing import Any

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.producer.flower.pages import SharedReads, run_json, runs_list
from shardsift.producer.status import run_status
from support.ledger_states import claimed
from support.records import a_receipt, a_shard, a_spec
from support.watched_run import A, B, C, D, clocked_ledger

SPEC = a_spec()
RUN = SPEC.run_id


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    """A run with a done, a failed, a running and a queued shard, on a clock that stands still."""
    with clocked_ledger(redis_url) as ledger:
        ledger.create_run(SPEC, [A, B, C, D], now=1.0)
        ledger.complete(claimed(ledger, RUN, A), a_receipt(RUN, A))
        ledger.fail(claimed(ledger, RUN, B), "not a readable Parquet file", "Traceback (most recent call last): …")
        ledger.renew(claimed(ledger, RUN, C), rows=4)
        yield ledger


def shown(ledger: Ledger, run_id: str = RUN) -> dict[str, Any]:
    """As a browser gets it."""
    found: dict[str, Any] = json.loads(json.dumps(run_json(ledger, run_id)))
    return found


class TestARun:
    def test_the_json_of_a_run_has_all_that_status_prints_the_scores_and_the_threshold(self, ledger: Ledger) -> None:
        page = shown(ledger)

        assert json.loads(json.dumps(run_status(ledger, RUN).as_json())).items() <= page.items()
        assert f"After fixing the cause, try it again: producer retry {RUN}" in page["next"]
        assert page["level"] == "bad"
        assert ["shards", "1 of 4 done, 1 running, 1 queued, 1 failed"] in page["lines"]
        (column,) = page["scores"]
        assert (column["column"], column["rows"], column["threshold"]) == ("score", 9, 3.0)
        assert [one["at_least"] for one in column["bins"] if one["start"] == 3] == [6]
        assert sum(one["rows"] for one in column["bins"]) == 9

    def test_many_failures_do_not_make_it_grow(self, ledger: Ledger) -> None:
        many, shards = replace(SPEC, output_uri="memory://many"), [a_shard(f"{number:03}") for number in range(100)]
        ledger.create_run(many, shards, now=1.0)
        for shard in shards:
            ledger.fail(claimed(ledger, many.run_id, shard), "corrupt", "a traceback")

        page = shown(ledger, many.run_id)

        assert len(page["failures"]) == 20
        assert page["counts"]["failed"] == 100
        assert "failed on" in page["headline"]
        assert not any("failed on" in line for line in page["next"])


class TestTheListOfRuns:
    def test_the_list_of_runs_has_the_newest_first_with_state_and_counts(self, ledger: Ledger) -> None:
        newer = replace(SPEC, output_uri="memory://newer")
        ledger.create_run(newer, [A], now=2.0)

        found: Any = runs_list(ledger)

        assert [run["run_id"] for run in found["runs"]] == [newer.run_id, RUN]
        assert found["runs"][1]["counts"] == asdict(ledger.counts(RUN))
        assert found["runs"][1]["level"] == "bad"

    def test_a_run_that_needs_a_person_has_the_reason_and_the_command(self, ledger: Ledger) -> None:
        failed = replace(SPEC, output_uri="memory://failed")
        ledger.create_run(failed, [A], now=2.0)
        ledger.fail(claimed(ledger, failed.run_id, A), "no column text.", "")

        newest, waiting = (run["why"] for run in runs_list(ledger)["runs"])  # type: ignore[attr-defined]
        ledger.cancel(RUN)

        assert newest == (
            f"Shard {A.name} failed on w1: no column text. After fixing the cause, try it again: "
            f"producer retry {failed.run_id}"
        )
        assert waiting.startswith("No worker for this run is seen; the lease ends in ")
        assert runs_list(ledger)["runs"][1]["why"] is None  # type: ignore[index]


class TestSharedReads:
    def answers(self, read: Callable[[], object], *, seconds: float) -> list[object]:
        """Three that are asked for one after another, and twenty at once."""

        async def ask() -> list[object]:
            shared = SharedReads(executor, seconds=seconds)
            first = [await asyncio.gather(shared.get("run", read), return_exceptions=True) for _ in range(3)]
            at_once = await asyncio.gather(*(shared.get("run", read) for _ in range(20)), return_exceptions=True)
            return [*chain(*first), *at_once]

        with ThreadPoolExecutor(4) as executor:
            return asyncio.run(ask())

    def test_however_many_ask_the_ledger_is_read_once_in_that_time_and_an_error_is_shared_too(self) -> None:
        reads, failed_reads, gone = count(), count(), UsageError("gone")

        def fail() -> None:
            next(failed_reads)
            raise gone

        assert set(self.answers(lambda: next(reads), seconds=60)) == {b"0"}
        assert self.answers(lambda: next(reads), seconds=0)[:3] == [b"1", b"2", b"3"]
        assert set(self.answers(fail, seconds=60)) == {gone}
        assert next(failed_reads) == 1
