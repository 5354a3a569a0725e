"""A finalizer may die, freeze or compete with another at any point: a run is published once, with the same bytes."""

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import redis
from stand_in import StandInScorer

from shardsift.fleet.process.children import Child
from shardsift.producer.publishing.publish import finalize_run
from support.disturbed_runs import SHARD_ROWS, DisturbedRuns
from support.fleet import Fleet, new_fleet
from support.injected_faults import STAGE, STORE_RECEIPT, InjectedFaults
from support.outputs import data_digests, manifest_lines
from support.small_fleet import enqueue_and_wait, work
from support.waiting import wait_until

PUBLISH = "shardsift.fleet.storage.folder:FolderOutput.publish"
MOVE = "shardsift.fleet.storage.folder:FolderOutput._move_into_place"
WRITE = "shardsift.fleet.storage.folder:FolderOutput._write"
REMOVE_STAGED = "shardsift.fleet.storage.folder:FolderOutput._remove_staged"
TIDY = "shardsift.fleet.storage.folder:FolderOutput.tidy"
MOVE_ROWS = "shardsift.fleet.ledger.ledger:Ledger.move_rows"
RECORD = "shardsift.fleet.ledger.ledger:Ledger.record_publication"


@dataclass
class DoneRun:
    """A run whose shards are all done and that no finalizer has seen yet."""

    runs: DisturbedRuns
    run_id: str
    files: Path
    keys: dict[bytes, bytes]

    def restore(self) -> None:
        with redis.Redis.from_url(self.runs.fleet.redis_url) as client:
            client.flushall()
            for key, value in self.keys.items():
                client.restore(key, 0, value)
        shutil.rmtree(self.runs.output)
        shutil.copytree(self.files, self.runs.output)


@pytest.fixture(scope="module", params=["alone", "an extension"])
def done_run(
    request: pytest.FixtureRequest,
    runs_of: Callable[..., DisturbedRuns],
    small_shards: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DoneRun]:
    """A run over all files, or one that adds half of them to the dataset of the other half."""
    folder = tmp_path_factory.mktemp("done")
    faults = InjectedFaults(folder / "faults")
    faults.use_stand_in(seconds_a_batch=0)
    scorer = StandInScorer("cpu", faults.work_log, rows_a_batch=4, seconds_a_batch=0)
    with new_fleet(folder) as fleet:
        runs = replace(runs_of(fleet, faults, folder / "out"), shards=folder / "shards")
        shutil.copytree(small_shards, runs.shards)
        if request.param == "an extension":
            later = sorted(runs.shards.iterdir())[::2]
            for file in later:
                file.unlink()
            first = runs.enqueue()
            work(fleet.ledger, runs.plan(), scorer, folder)
            finalize_run(fleet.ledger, first, without_failed=False)
            for file in later:
                shutil.copy(small_shards / file.name, file)
            runs = replace(runs, extends=True)
        run_id = runs.enqueue()
        work(fleet.ledger, runs.plan(), scorer, folder)
        shutil.copytree(runs.output, folder / "kept")
        with redis.Redis.from_url(fleet.redis_url) as client:
            keys = {key: client.dump(key) for key in client.keys("shardsift:*")}
        yield DoneRun(runs, run_id, folder / "kept", keys)


@pytest.fixture
def run_id(done_run: DoneRun) -> str:
    done_run.restore()
    return done_run.run_id


@pytest.fixture
def runs(done_run: DoneRun, faults: InjectedFaults) -> DisturbedRuns:
    return replace(done_run.runs, faults=faults)


def run_a_finalizer_until_it_dies(runs: DisturbedRuns) -> int:
    """Returns its exit code."""
    with runs.finalizer() as killed:
        return killed.wait(timeout=60)


def publish(runs: DisturbedRuns, run_id: str) -> None:
    with runs.finalizer():
        runs.wait_until_published(run_id)


def check_published_once(runs: DisturbedRuns, run_id: str) -> None:
    runs.check_nothing_lost_nothing_twice(run_id)
    assert runs.staged_files(run_id) == []


@pytest.mark.parametrize(
    ("place", "moment", "is_redis_lost"),
    [
        (MOVE, "after", False),
        *(
            pytest.param(*point, marks=pytest.mark.faults)
            for point in [
                *product((PUBLISH, MOVE, WRITE, REMOVE_STAGED, TIDY, RECORD), ("before", "after"), (False,)),
                *((MOVE, "after", True), (WRITE, "before", True), (REMOVE_STAGED, "before", True)),
            ]
            if point != (MOVE, "after", False)
        ),
    ],
)
def test_a_finalizer_may_die_between_any_two_effects_of_publishing_even_if_redis_is_lost_too(
    place: str, moment: str, is_redis_lost: bool, runs: DisturbedRuns, run_id: str
) -> None:
    runs.faults.at(place, moment, "kill", program="producer")

    exit_code = run_a_finalizer_until_it_dies(runs)
    if is_redis_lost:
        runs.fleet.ledger.redis.flushall()
        assert runs.enqueue() == run_id
    publish(runs, run_id)

    assert exit_code == -signal.SIGKILL
    assert runs.faults.rows_scored() == 0
    check_published_once(runs, run_id)


@pytest.mark.faults
@pytest.mark.parametrize(("place", "moment"), [(PUBLISH, "before"), (MOVE, "after"), (WRITE, "after")])
def test_a_finalizer_that_comes_back_when_another_has_published_changes_nothing(
    place: str, moment: str, runs: DisturbedRuns, run_id: str
) -> None:
    runs.faults.at(place, moment, "freeze", program="producer")
    log = runs.fleet.log("finalizer")
    log.unlink(missing_ok=True)

    with runs.finalizer() as zombie:
        wait_until(runs.faults.fired, description="it is frozen in the middle of publishing")
        publish(runs, run_id)
        manifest = (runs.output / "manifest.parquet").read_bytes()
        os.kill(zombie.pid, signal.SIGCONT)
        wait_until(
            lambda: len(re.findall("is published: [36] shards", log.read_text())) == 2,
            description="it comes to its end",
        )
        assert zombie.poll() is None

    assert (runs.output / "manifest.parquet").read_bytes() == manifest
    assert runs.fleet.ledger.state(run_id).publish_error is None
    check_published_once(runs, run_id)


@pytest.mark.faults
def test_finalizers_that_die_between_any_two_effects_of_merging_are_followed_by_one_that_gives_the_same_bytes(
    fleet: Fleet, faults: InjectedFaults, runs_of: Callable[..., DisturbedRuns], tmp_path: Path
) -> None:
    faults.use_stand_in(seconds_a_batch=0)
    runs = runs_of(fleet, faults, tmp_path / "out", target_file_size="40kB")
    run_id = runs.enqueue()
    with runs.worker():
        wait_until(lambda: fleet.ledger.counts(run_id).done == 6, description="all shards are done")
    points = [(place, moment) for place in (STAGE, MOVE_ROWS, MOVE) for moment in ("before", "after")]
    points.append((STORE_RECEIPT, "before"))
    for place, moment in points:
        faults.at(place, moment, "kill", program="producer")

    for _ in points:
        run_a_finalizer_until_it_dies(runs)
    publish(runs, run_id)

    assert faults.fired() == len(points)
    assert 1 < len([*(runs.output / "data").iterdir()]) < 6
    check_published_once(runs, run_id)


def has_ended_or_published(runs: DisturbedRuns, finalizer: Child, run_id: str) -> bool:
    return finalizer.poll() is not None or runs.fleet.ledger.state(run_id).publication is not None


class TestARunThatKeepsEachTextOnce:
    """Of the rows of each shard, half have the texts of the shard before."""

    @pytest.fixture(params=[None, "20kB"])
    def unique(
        self,
        request: pytest.FixtureRequest,
        fleet: Fleet,
        faults: InjectedFaults,
        runs_of: Callable[..., DisturbedRuns],
        small_shards: Path,
        tmp_path: Path,
    ) -> DisturbedRuns:
        """A run whose shards are all done, with the files that it gives undisturbed."""
        shards, before = tmp_path / "doubled", None
        shards.mkdir()
        for file in sorted(small_shards.iterdir()):
            rows = pq.read_table(file)
            texts = [
                *(before or rows)["text"].to_pylist()[-SHARD_ROWS // 2 :],
                *rows["text"].to_pylist()[: SHARD_ROWS // 2],
            ]
            before = rows.set_column(0, rows.schema.field("text"), [texts])
            pq.write_table(before, shards / file.name)
        faults.use_stand_in(seconds_a_batch=0)
        options = {"target_file_size": request.param, "unique": True}
        runs = replace(runs_of(fleet, faults, tmp_path / "out", **options), shards=shards)
        with new_fleet(tmp_path / "undisturbed") as other:
            alone = replace(runs, fleet=other, output=tmp_path / "undisturbed/out")
            enqueue_and_wait(other.redis_url, alone.plan(), tmp_path / "undisturbed")
        digests = data_digests(alone.output)
        runs.enqueue()
        scorer = StandInScorer("cpu", faults.work_log, rows_a_batch=4, seconds_a_batch=0)
        work(fleet.ledger, runs.plan(), scorer, tmp_path)
        return replace(runs, undisturbed=lambda *_: digests)

    @pytest.mark.faults
    @pytest.mark.parametrize("is_redis_lost", [False, True])
    def test_finalizers_that_die_between_any_two_effects_leave_out_the_same_rows(
        self, unique: DisturbedRuns, is_redis_lost: bool
    ) -> None:
        (run_id,) = unique.fleet.ledger.run_ids()
        scored = unique.faults.rows_scored()
        for place, moment in product((STAGE, MOVE_ROWS, STORE_RECEIPT, MOVE), ("before", "after")):
            unique.faults.at(place, moment, "kill", program="producer")
        for place, moment in ((STAGE, "before"), (MOVE_ROWS, "after"), (STORE_RECEIPT, "after"), (MOVE, "after")):
            unique.faults.at(place, moment, "kill", passes=2, program="producer")

        while unique.fleet.ledger.state(run_id).publication is None:
            with unique.finalizer() as victim:
                wait_until(partial(has_ended_or_published, unique, victim, run_id), description="it dies", seconds=60)
            if is_redis_lost and unique.fleet.ledger.state(run_id).publication is None:
                unique.fleet.ledger.redis.flushall()
                assert unique.enqueue() == run_id

        assert unique.faults.fired() >= 11
        check_published_once(unique, run_id)
        assert unique.faults.rows_scored() == scored
        assert 0 < sum(int(str(line["duplicates"])) for line in manifest_lines(unique.output)) < scored

    @pytest.mark.faults
    @pytest.mark.parametrize(("place", "moment"), [(STAGE, "after"), (MOVE_ROWS, "before"), (MOVE_ROWS, "after")])
    def test_a_finalizer_that_comes_back_when_another_has_left_out_the_rows_changes_nothing(
        self, unique: DisturbedRuns, place: str, moment: str
    ) -> None:
        (run_id,) = unique.fleet.ledger.run_ids()
        unique.faults.at(place, moment, "freeze", program="producer", passes=1)
        scored = unique.faults.rows_scored()

        with unique.finalizer() as zombie:
            wait_until(unique.faults.fired, description="it is frozen in the middle of leaving out rows")
            publish(unique, run_id)
            # At the end of the block, it is told to stop, and comes to its end first.
            os.kill(zombie.pid, signal.SIGCONT)
        publish(unique, run_id)

        check_published_once(unique, run_id)
        assert unique.faults.rows_scored() == scored
