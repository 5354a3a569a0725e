"""Shards are merged into files of a target size: the rows of a run without one, in order, and the same bytes whatever happens."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stand_in import StandInScorer

from hubserver import HubServer
from shardsift.fleet.errors import TransientError, UsageError
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.storage import hub as hub_output
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import MANIFEST_PATH
from shardsift.producer.finalizer import publish_or_save
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.plan import Plan, plan_run
from shardsift.producer.publishing.publish import finalize_run
from shardsift.producer.verify.verify import verify
from support.hub_runs import HubRun, data_of
from support.ledger_states import claimed
from support.outputs import Published, data_digests, published_rows
from support.small_fleet import enqueue_and_wait, work
from support.small_run import Runs

SHARDS, ROWS = 7, 40
FIRST, SECOND, LAST = (f"data/000_{number:05}.parquet" for number in (0, 3, 6))  # of three shards, of three, and of one
NAMES = [f"000_{number:05}" for number in range(SHARDS)]
LOST = pytest.param(True, marks=pytest.mark.faults)
_numbers = count()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in") / "shards"
    write_shards(folder, shards=SHARDS, rows=ROWS, seed=1)
    for number, file in enumerate(
        sorted(folder.iterdir())
    ):  # with dictionaries that differ and are together too many for their indices, and nested and null values
        rows = pq.read_table(file)
        kinds = [None if row % 7 == 0 else f"kind {number} {row}" for row in range(ROWS)] * 2
        rows = rows.append_column("kind", pa.array(kinds[:ROWS]).cast(pa.dictionary(pa.int8(), pa.string())))
        rows = rows.append_column(pa.field("n", pa.int64(), nullable=number % 2 == 0), pa.array(range(ROWS)))
        amounts = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=number % 2 == 0))
        rows = rows.append_column("amounts", pa.array([[("a", number)], None] * (ROWS // 2), amounts))
        rows = rows.append_column("places", pa.array([None, [], [{"n": number}], [{"n": None}]] * (ROWS // 4)))
        pq.write_table(rows, file)
    return folder


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Plans over one input, and what comes of them."""

    source: Path
    runs: Runs
    redis_url: str

    @property
    def ledger(self) -> Ledger:
        return self.runs.ledger

    @property
    def folder(self) -> Path:
        return self.runs.folder

    def plan(self, output: str = "out", *, size: str | None = "65kB", **options: Any) -> Plan:
        return plan_run(
            self.runs.options(self.source, output, **{"min_score": 3.0, "target_file_size": size, **options})
        )

    def start(self, plan: Plan) -> None:
        """Enqueue a plan, and send no message."""
        open_output(plan.spec.output_uri, plan.spec.run_id).reserve(plan.spec)
        self.ledger.create_run(plan.spec, plan.shards, now=1.0)

    def score(self, plan: Plan, names: list[str]) -> None:
        due = tuple(shard for shard in plan.shards if shard.name in names)
        assert work(self.ledger, replace(plan, shards=due), self.runs.scorer, self.folder) == names

    def fail(self, plan: Plan, name: str) -> None:
        (shard,) = (shard for shard in plan.shards if shard.name == name)
        self.ledger.fail(claimed(self.ledger, plan.spec.run_id, shard), "corrupt", "")

    def publish(self, plan: Plan) -> list[str]:
        """Enqueue a plan and serve it until it is published. Returns the shards that were scored."""
        outcome = enqueue_and_wait(self.redis_url, plan, self.folder)
        assert outcome.state == "published"
        return outcome.shards


def merging_in(folder: Path, source: Path, model: Path, ledger: Ledger, redis_url: str) -> Merging:
    scorer = StandInScorer("cpu", folder / "work.log", rows_a_batch=4, seconds_a_batch=0)
    runs = Runs(ledger=ledger, scorer=scorer, models=(str(model),), folder=folder)
    return Merging(source=source, runs=runs, redis_url=redis_url)


@pytest.fixture
def merging(source: Path, tiny_model: Path, redis_url: str, ledger: Ledger, tmp_path: Path) -> Merging:
    return merging_in(tmp_path, source, tiny_model, ledger, redis_url)


@pytest.fixture(scope="module")
def undisturbed(
    source: Path, tiny_model: Path, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    ledger = Ledger.connect(Settings(redis_url=redis_url))
    merging = merging_in(tmp_path_factory.mktemp("undisturbed"), source, tiny_model, ledger, redis_url)
    merging.publish(merging.plan())
    return data_digests(merging.folder / "out")


def files_in(plan: Plan) -> list[str]:
    return sorted(path.stem for path in (Path(plan.spec.output_uri) / "data").iterdir())


def rows_by_manifest(output: Path) -> list[pa.Table]:
    """The kept rows of each shard, found as a reader of the manifest finds them."""
    lines = pq.read_table(output / MANIFEST_PATH).to_pylist()
    return [
        pq.read_table(output / line["data"]["path"]).slice(line["data_first_row"], line["rows_kept"]) for line in lines
    ]


class TestFiles:
    def test_merged_files_have_the_rows_of_a_plain_run_in_order_and_name_each_shard(self, merging: Merging) -> None:
        merging.publish(merging.plan("plain", size=None))
        merged = merging.plan()
        merging.publish(merged)

        plain, out = merging.folder / "plain", merging.folder / "out"
        assert files_in(merged) == [NAMES[0], NAMES[3], NAMES[6]]
        types = published_rows(plain).schema
        for name, kind in (("kind", pa.string()), ("n", pa.int64())):
            types = types.set(types.get_field_index(name), pa.field(name, kind))
        assert published_rows(out).schema == types
        assert published_rows(out).to_pylist() == published_rows(plain).to_pylist()
        for rows, shard in zip(rows_by_manifest(out), NAMES, strict=True):
            assert rows.to_pylist() == pq.read_table(plain / f"data/{shard}.parquet").to_pylist()
        scores = [pq.read_table(folder / "scores") for folder in (out, plain)]
        assert scores[0].equals(scores[1])
        found = verify(str(out), source=(str(merging.source),))
        assert (found.faults, found.files) == ((), 3 + 1)
        assert "data_first_row" not in pq.read_schema(plain / MANIFEST_PATH).names
        for path in (FIRST, SECOND):
            column = pq.ParquetFile(out / path).metadata.row_group(0).column(0)
            assert (column.has_offset_index, column.has_column_index, column.compression) == (True, True, "ZSTD")
            assert column.statistics.has_min_max
            assert 65_000 * 0.6 < (out / path).stat().st_size < 110_000

    @pytest.mark.parametrize("size", ["512", "1B"])
    def test_merged_files_of_a_wrong_size_are_refused(self, merging: Merging, size: str) -> None:
        with pytest.raises(UsageError, match=f"a number and a unit, .*, at least 10kB, or none; it was '{size}'"):
            merging.plan(size=size)

    def test_merged_files_of_a_refiltered_run_have_the_size_of_the_earlier_run(self, merging: Merging) -> None:
        merging.publish(merging.plan())
        merging.publish(merging.plan("fresh", min_score=4.0))

        again = merging.runs.refilter(merging.folder / "out", min_score=4.0, input_uris=(str(merging.source),))

        assert data_digests(again) == data_digests(merging.folder / "fresh")
        assert len([*(again / "data").iterdir()]) < SHARDS


class TestARunThatGoesOn:
    def test_full_files_are_merged_before_the_run_ends(self, merging: Merging, undisturbed: dict[str, str]) -> None:
        plan = merging.plan()
        run_id, settings = plan.spec.run_id, Settings(redis_url=merging.redis_url)
        merging.start(plan)
        for names in ([0, 1, 3, 4, 5], [2], [6]):
            merging.score(plan, [NAMES[number] for number in names])
            publish_or_save(merging.ledger, run_id, settings)
            merged = [receipt.data.path for receipt in merging.ledger.receipts(run_id)]
            if names == [2]:
                assert merged == [FIRST] * 3 + [SECOND] * 3
                assert not (merging.folder / "out/data").exists()
            elif names != [6]:
                assert len({*merged}) == len(merged)

        assert data_digests(merging.folder / "out") == undisturbed
        stored = merging.ledger.counts(run_id).stored_bytes
        assert (
            0 <= sum(path.stat().st_size for path in (merging.folder / "out").glob("*/*.parquet")) - stored < 2 * SHARDS
        )

    def test_a_failed_shard_is_left_out_and_later_merged(self, merging: Merging, undisturbed: dict[str, str]) -> None:
        plan = merging.plan()
        merging.start(plan)
        merging.score(plan, [name for name in NAMES if name != NAMES[1]])
        merging.fail(plan, NAMES[1])
        finalize_run(merging.ledger, plan.spec.run_id, without_failed=True)
        assert files_in(plan) == [NAMES[0], NAMES[4]]

        merging.ledger.retry(plan.spec.run_id)
        merging.score(plan, [NAMES[1]])
        finalize_run(merging.ledger, plan.spec.run_id, without_failed=False)

        assert files_in(plan) == [NAMES[0], NAMES[3], NAMES[6]]
        assert data_digests(merging.folder / "out") == undisturbed
        found = verify(plan.spec.output_uri, source=(str(merging.source),))
        assert (found.faults, found.rows_in) == ((), SHARDS * ROWS)


class TestAMergedRun:
    @pytest.mark.parametrize("is_lost", [False, LOST], ids=["ledger", "ledger-lost"])
    @pytest.mark.parametrize(
        ("damage", "path", "shards"),
        [
            (None, "", []),
            (Published.delete, FIRST, NAMES[:3]),
            (Published.delete, f"scores/{NAMES[0]}.parquet", NAMES),
            (Published.truncate, MANIFEST_PATH, []),
        ],
    )
    def test_a_merged_run_is_found_again_and_a_damaged_file_costs_its_shards_alone(
        self,
        merging: Merging,
        undisturbed: dict[str, str],
        damage: Callable[[Published, str], None] | None,
        path: str,
        shards: list[str],
        is_lost: bool,
    ) -> None:
        plan = merging.plan()
        merging.publish(plan)
        if damage:
            damage(Published(plan.spec.output_uri), path)
        if is_lost:
            merging.ledger.redis.flushall()

        scored = merging.publish(plan)

        assert scored == shards
        assert data_digests(merging.folder / "out") == undisturbed
        assert [one for one in Published(plan.spec.output_uri).hidden_paths() if "/staged/" in one] == []
        assert verify(plan.spec.output_uri, source=(str(merging.source),)).faults == ()

    def test_a_merged_run_has_the_same_files_after_shards_of_each_are_scored_again(self, merging: Merging) -> None:
        plain = merging.plan("plain", size=None)
        merging.publish(plain)
        own_sizes = [(merging.folder / f"plain/data/{name}.parquet").stat().st_size for name in NAMES[:3]]
        plan = merging.plan(size=f"{sum(own_sizes)}B")
        merging.publish(plan)
        before = data_digests(merging.folder / "out")
        merging.ledger.requeue(plan.spec.run_id, dict.fromkeys((NAMES[1], NAMES[4]), "replaced"))

        scored = merging.publish(plan)

        assert scored == [NAMES[1], NAMES[4]]
        assert data_digests(merging.folder / "out") == before

    def test_a_merged_file_without_its_first_shard_has_no_row_of_it_and_the_others_once(self, merging: Merging) -> None:
        plan = merging.plan()
        merging.publish(plan)
        merging.ledger.requeue(plan.spec.run_id, {NAMES[0]: "replaced"})
        merging.fail(plan, NAMES[0])

        finalize_run(merging.ledger, plan.spec.run_id, without_failed=True)

        found = verify(plan.spec.output_uri)
        assert files_in(plan) == [NAMES[1], NAMES[4]]
        assert [str(fault) for fault in found.faults] == [
            f"{FIRST}: is missing: its shard failed, and the run was published without it"
        ]


def check_published_once(run: HubRun, undisturbed: dict[str, str]) -> None:
    files = {path: sha256(run.hub.read(run.repo, path)).hexdigest() for path in data_of(run.outputs())}
    assert files == undisturbed
    assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
    assert run.branches() == {"main"}
    uploads = [request.path for request in run.hub.requests if request.method == "PUT"]
    assert len(uploads) == len({*uploads})


def data_files(run: HubRun) -> list[str]:
    return sorted(path for path in run.outputs() if path.startswith("data/"))


class TestOnTheHub:
    """A run of the same rows that goes to a repository of its own."""

    @pytest.fixture
    def plan(self, hub: HubServer, merging: Merging) -> Plan:
        repo = f"org/merged-{next(_numbers)}"
        hub.create_repo(repo)
        return merging.plan(output_uri=f"hf://datasets/{repo}")

    @pytest.fixture
    def run(self, hub: HubServer, merging: Merging, plan: Plan) -> HubRun:
        repo = plan.spec.output_uri.removeprefix("hf://datasets/")
        ledger, url, folder = merging.ledger, merging.redis_url, merging.folder
        return HubRun(hub=hub, repo=repo, spec=plan.spec, ledger=ledger, redis_url=url, folder=folder)

    def test_a_run_that_outlasts_uncommitted_blobs_publishes_the_same_bytes_and_sends_none_twice(
        self, run: HubRun, merging: Merging, plan: Plan, undisturbed: dict[str, str]
    ) -> None:
        merging.start(plan)
        merging.score(plan, [name for name in NAMES if name != NAMES[4]])
        run.look(2)
        merged = [receipt.data.path for receipt in run.ledger.receipts(run.run_id)]
        assert merged[:3] == [FIRST] * 3
        assert run.outputs() == set()
        run.hub.forget_unreferenced_blobs()

        merging.score(plan, [NAMES[4]])
        run.look(2)

        check_published_once(run, undisturbed)

    def test_merged_files_on_the_hub_have_512_mb_unless_the_user_chooses(self, plan: Plan, merging: Merging) -> None:
        chosen = {"output_uri": plan.spec.output_uri}
        plans = [
            plan_run(merging.runs.options(merging.source, target_file_size=size, **chosen))
            for size in (None, "none", "1GB")
        ]

        assert [plan.spec.target_file_bytes for plan in plans] == [512_000_000, None, 1_000_000_000]
        assert merging.plan(size=None).spec.target_file_bytes is None

    def test_a_merged_run_whose_publication_without_a_failed_shard_ended_midway_has_each_row_once_and_scores_none_again(
        self, run: HubRun, merging: Merging, plan: Plan, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub_output, "SHARDS_A_COMMIT", 2)  # as if two shards were as many as a commit may have
        merging.start(plan)
        merging.score(plan, NAMES[1:])
        merging.fail(plan, NAMES[0])
        run.hub.fault("/commit/main", status=None)  # the first part, with a file that later has no shard
        run.hub.fault("/commit/main", status=429, headers={"Retry-After": "1"})
        with pytest.raises(TransientError, match="429"):
            run.finalize(without_failed=True)
        begun = data_files(run)
        run.ledger.retry(run.run_id)
        merging.score(plan, NAMES[:1])

        published = run.finalize()

        assert begun == [f"data/{NAMES[1]}.parquet"]
        assert isinstance(published, Publication)
        assert data_files(run) == [FIRST, SECOND, LAST]
        assert verify(plan.spec.output_uri).faults == ()
