"""`--unique` keeps the first row of each text: what a set of the texts would keep, and the same bytes whatever happens."""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stand_in import StandInScorer

from hubserver import HubServer
from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.producer.planning.plan import Plan, plan_run
from shardsift.producer.planning.retry import retry_run
from shardsift.producer.publishing.publish import NotReady, finalize_run
from shardsift.producer.verify.verify import verify
from support.ledger_states import claimed
from support.outputs import Published, data_digests, manifest_lines, published_rows
from support.published_dataset import Dataset
from support.small_fleet import enqueue_and_wait, work
from support.small_run import Runs, enqueue_plan

SHARDS, ROWS = 4, 60
NAMES = [f"{shard:03}" for shard in range(SHARDS)]
LOST = pytest.param(True, marks=pytest.mark.faults)
SIZES = pytest.mark.parametrize("size", [pytest.param("none", marks=pytest.mark.slow), "10kB"])
_numbers = count()


def texts_of(shard: int) -> list[str | None]:
    """Texts that are there again in the shard or in others, texts that differ in a space only, and rows without a text."""
    common = [f"Text {(row * 7 + shard) % (20 + shard)} is in several shards." for row in range(ROWS - 8)]
    return [*common, None, "", "  ", f"alone {shard}", f"alone {shard}", f"alone  {shard}", "Ünï", "Ünï "]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in range(SHARDS):
        rows = {
            "text": texts_of(shard),
            "title": [f"Title {row % 3}" for row in range(ROWS)],
            "n": range(ROWS),
            "kind": pa.array([f"kind {shard} {row % 5}" for row in range(ROWS)]).dictionary_encode(),
            "amounts": pa.array([[("a", row)] for row in range(ROWS)], pa.map_(pa.string(), pa.int64())),
        }
        pq.write_table(pa.table(rows), folder / f"{shard:03}.parquet", row_group_size=25)
    return folder


def first_of_each(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The oracle: go through rows in order, with a set of the texts so far."""
    seen: set[str] = set()
    return [row for row in rows if not (row["text"] in seen or seen.add(row["text"]))]  # type: ignore[func-returns-value]


def kept(output: Path) -> list[dict[str, Any]]:
    return list(published_rows(output).to_pylist())


@dataclass(frozen=True, kw_only=True)
class Command:
    """`producer run` over `source`, with a scorer that needs no model."""

    runs: Runs
    source: Path
    redis_url: str

    @property
    def ledger(self) -> Ledger:
        return self.runs.ledger

    @property
    def scorer(self) -> StandInScorer:
        return StandInScorer("cpu", self.runs.folder / "work.log", rows_a_batch=4, seconds_a_batch=0)

    def plan(self, output: str = "out", **options: Any) -> Plan:
        chosen = {"where": "score >= 1.5", "target_file_size": "none", **options}
        plan = plan_run(self.runs.options(self.source, output, **chosen))
        return replace(plan, spec=replace(plan.spec, window_rows=16))

    def publish(self, plan: Plan) -> list[str]:
        """Run a plan to its end. Returns the shards that were scored."""
        outcome = enqueue_and_wait(self.redis_url, plan, self.runs.folder)
        assert outcome.state == "published"
        return outcome.shards

    def published(self, output: str = "out", **options: Any) -> tuple[Plan, Path]:
        """Publish a run that keeps each text once."""
        plan = self.plan(output, **{"unique": True, **options})
        self.publish(plan)
        return plan, Path(plan.spec.output_uri)

    def enqueued(self, size: str = "none") -> Plan:
        """Enqueue a run that keeps each text once."""
        plan = self.plan(unique=True, target_file_size=size)
        enqueue_plan(self.ledger, plan)
        return plan

    def faults(self, output: Path) -> tuple[object, ...]:
        return verify(str(output), source=(str(self.source),)).faults

    def work(self, plan: Plan) -> list[str]:
        return work(self.ledger, plan, self.scorer, self.runs.folder)

    def finalize(self, plan: Plan, *, without_failed: bool = False) -> Publication | NotReady:
        return finalize_run(self.ledger, plan.spec.run_id, without_failed=without_failed)

    def lose(self, plan: Plan, shard: str) -> None:
        """Let a done shard fail, as after its file was found damaged."""
        self.ledger.requeue(plan.spec.run_id, {shard: "it is damaged"})
        (lost,) = (one for one in plan.shards if one.name == shard)
        self.ledger.fail(claimed(self.ledger, plan.spec.run_id, lost), "it is broken", "")

    def check(self, plan: Plan, *, shards: Iterable[str] = NAMES) -> None:
        """Check the output against a run that keeps equal texts, over the files as they are now."""
        _, plain = self.published(f"plain-{next(_numbers)}", unique=False)
        rows = [row for row in kept(plain) if row["shard"] in {*shards}]
        output = Path(plan.spec.output_uri)
        assert kept(output) == first_of_each(rows)
        lines = manifest_lines(output)
        assert sum(int(str(line["duplicates"])) for line in lines) == len(rows) - len(first_of_each(rows)) > 0
        counts = self.ledger.counts(plan.spec.run_id)
        assert counts.duplicates == len(rows) - len(first_of_each(rows))
        assert counts.rows_in == counts.rows_kept + counts.rows_dropped + counts.rows_errored
        if {*shards} == {*NAMES}:
            assert self.faults(output) == ()


@pytest.fixture
def command(ledger: Ledger, redis_url: str, tiny_model: Path, source: Path, tmp_path: Path) -> Command:
    runs = Runs(ledger=ledger, scorer=[], models=(str(tiny_model),), folder=tmp_path)
    return Command(runs=runs, source=source, redis_url=redis_url)


class TestWhatIsKept:
    @pytest.mark.parametrize(
        ("where", "size"), [("score >= 1.5", "none"), ("score >= 1.5 and n % 3 > 0", "10kB"), ("true", "none")]
    )
    def test_of_equal_texts_among_the_kept_rows_the_first_is_kept(
        self, command: Command, where: str, size: str
    ) -> None:
        _, plain = command.published("plain", where=where, unique=False)
        _, out = command.published(where=where, target_file_size=size)

        rows = kept(plain)

        assert kept(out) == first_of_each(rows)
        assert 0 < len(kept(out)) < len(rows) / 2
        found = verify(str(out), source=(str(command.source),))
        assert found.faults == ()
        assert found.duplicates == len(rows) - len(kept(out))
        assert f" dropped ({found.duplicates} of them duplicates), " in str(found)
        assert published_rows(out).schema.field("amounts") == published_rows(plain).schema.field("amounts")
        assert (len([*(out / "data").iterdir()]) == SHARDS) is (size == "none")

    def test_the_card_has_the_number_of_duplicates_and_a_query_that_finds_them(
        self, command: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, plain = command.published("plain", unique=False)
        _, out = command.published()
        rows = kept(plain)
        first = {row["text"]: (row["shard"], row["row"]) for row in first_of_each(rows)}
        again = [(row["shard"], row["row"], *first[row["text"]]) for row in rows]
        monkeypatch.chdir(out)

        card = (out / "README.md").read_text()

        (query,) = re.findall(r"-- The rows with the text.*?\n(WITH .*?) LIMIT 10;", card, re.DOTALL)
        assert sorted(duckdb.sql(query).fetchall()) == [one for one in again if one[:2] != one[2:]] != []
        assert f"| Duplicates | {len(rows) - len(first)} of the dropped rows" in card
        assert "  --unique" in card


@pytest.mark.parametrize(
    ("was_unique", "size"), [(False, "none"), (True, "10kB"), pytest.param(False, "10kB", marks=pytest.mark.slow)]
)
def test_a_refilter_keeps_of_equal_texts_the_first_that_passes_the_new_filter(
    command: Command, was_unique: bool, size: str
) -> None:
    choice = {"where": "score >= 1.5 and n % 2 = 1", "unique": True, "target_file_size": size}
    plan, earlier = command.published("kept", unique=was_unique)
    _, fresh = command.published("fresh", **choice)

    again = replace(command.runs, specs={earlier: plan.spec}).refilter(earlier, "again", **choice)

    assert data_digests(again) == data_digests(fresh)
    assert command.faults(again) == ()


class TestAPublishedRun:
    @SIZES
    @pytest.mark.parametrize("is_lost", [False, True])
    def test_the_same_command_again_changes_nothing(self, command: Command, size: str, is_lost: bool) -> None:
        plan, out = command.published(target_file_size=size)
        files = [path for path in out.rglob("*.parquet") if path.parent.name in ("data", "scores")]
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
        if is_lost:
            command.ledger.redis.flushall()

        assert command.publish(plan) == []

        assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files} == before
        command.check(plan)

    @SIZES
    @pytest.mark.parametrize("is_lost", [False, LOST])
    @pytest.mark.parametrize("kind", ["data", "scores"])
    def test_a_damaged_file_costs_its_shards_alone(self, command: Command, size: str, is_lost: bool, kind: str) -> None:
        plan, out = command.published(target_file_size=size)
        before, paths = data_digests(out), [line[kind]["path"] for line in manifest_lines(out)]
        Published(str(out)).truncate(f"{kind}/{NAMES[0]}.parquet")
        if is_lost:
            command.ledger.redis.flushall()

        assert command.publish(plan) == [name for name, path in zip(NAMES, paths, strict=True) if path == paths[0]]

        assert data_digests(out) == before

    @SIZES
    @pytest.mark.parametrize("is_lost", [False, LOST])
    def test_a_text_that_its_only_kept_row_loses_comes_back_from_the_shard_that_had_lost_it(
        self, command: Command, size: str, is_lost: bool
    ) -> None:
        plan, _ = command.published(target_file_size=size)
        command.lose(plan, NAMES[0])
        file = command.source / f"{NAMES[0]}.parquet"
        pq.write_table(pq.read_table(file).slice(0, 5), file)
        retry_run(command.ledger, plan.spec.run_id)
        assert command.work(plan) == NAMES[:1]
        if is_lost:
            command.ledger.redis.flushall()
            again = command.plan(unique=True, target_file_size=size)
            command.publish(replace(plan, shards=tuple(again.shards)))
        else:
            asked = command.finalize(plan)
            assert isinstance(asked, NotReady)
            assert "equal texts in shards that have changed or failed since" in asked.reason
            assert command.work(plan) == NAMES[1:]
            assert isinstance(command.finalize(plan), Publication)

        command.check(plan)

    @SIZES
    def test_a_failed_shard_that_is_scored_later_costs_no_other_shard(self, command: Command, size: str) -> None:
        _, whole = command.published("whole", target_file_size=size)
        plan = command.enqueued(size)
        command.ledger.fail(claimed(command.ledger, plan.spec.run_id, plan.shards[0]), "it is broken", "")
        command.work(plan)
        command.finalize(plan, without_failed=True)
        command.check(plan, shards=NAMES[1:])

        command.ledger.retry(plan.spec.run_id)

        assert command.work(plan) == NAMES[:1]
        assert isinstance(command.finalize(plan), Publication)
        assert data_digests(Path(plan.spec.output_uri)) == data_digests(whole)

    @SIZES
    def test_a_published_shard_that_fails_later_takes_no_text_with_it(self, command: Command, size: str) -> None:
        plan, _ = command.published(target_file_size=size)
        command.lose(plan, NAMES[1])

        assert isinstance(command.finalize(plan, without_failed=True), NotReady)
        command.work(plan)
        assert isinstance(command.finalize(plan, without_failed=True), Publication)

        command.check(plan, shards=[NAMES[0], *NAMES[2:]])


@pytest.mark.parametrize(("kind", "column"), [("data", "row"), ("scores", "text_digest")])
def test_a_flipped_bit_in_a_column_that_decides_is_found_before_any_row_is_left_out(
    command: Command, kind: str, column: str
) -> None:
    _, whole = command.published("whole")
    plan = command.enqueued()
    command.work(plan)
    folder = Path(plan.spec.output_uri) / f".shardsift/{plan.spec.run_id}/staged/{kind}/{NAMES[1]}.parquet"
    (file,) = folder.iterdir()
    group = pq.read_metadata(file).row_group(0)
    chunk = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == column)
    content = bytearray(file.read_bytes())
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    content[start + chunk.total_compressed_size // 2] ^= 1
    file.write_bytes(content)

    damaged = command.finalize(plan)

    assert isinstance(damaged, NotReady)
    assert damaged.reason.startswith("1 shard queued again: Reading ")
    assert command.work(plan) == [NAMES[1]]
    command.finalize(plan)
    assert data_digests(Path(plan.spec.output_uri)) == data_digests(whole)


class TestAnExtension:
    """A base of two shards, and a run that adds two, one of which comes before the others by its name."""

    @pytest.fixture(params=[pytest.param("none", marks=pytest.mark.slow), "10kB"])
    def extended(self, request: pytest.FixtureRequest, command: Command) -> tuple[Command, Plan, Plan]:
        (later := command.runs.folder / "later").mkdir()
        for number, name in enumerate((NAMES[0], NAMES[3])):
            file = command.source / f"{name}.parquet"
            rows = pq.read_table(file)
            new = [f"New {row // 2} of {number // 2}" if row < 9 else text for row, text in enumerate(texts_of(number))]
            pq.write_table(rows.set_column(0, "text", [new]), later / file.name)
            file.unlink()
        base, _ = command.published(target_file_size=request.param)
        for file in later.iterdir():
            shutil.copy(file, command.source)
        extension = command.plan(unique=True, target_file_size=request.param, extends=True)
        return command, base, extension

    def test_an_extension_leaves_out_texts_of_the_base_and_does_not_change_its_files(
        self, extended: tuple[Command, Plan, Plan]
    ) -> None:
        command, base, extension = extended
        out = Path(base.spec.output_uri)
        before = data_digests(out)

        assert command.publish(extension) == [NAMES[0], NAMES[3]]

        _, plain = command.published("plain", unique=False)
        rows = kept(plain)
        in_order = sorted(rows, key=lambda row: row["shard"] not in NAMES[1:3])  # stable: the base's rows first
        expected = sorted(first_of_each(in_order), key=lambda row: (row["shard"], row["row"]))
        assert sorted(kept(out), key=lambda row: (row["shard"], row["row"])) == expected
        assert before.items() <= data_digests(out).items()
        duplicates = sum(int(str(line["duplicates"])) for line in manifest_lines(out))
        assert duplicates == len(rows) - len(expected)
        assert command.faults(out) == ()

    @pytest.mark.parametrize("is_lost", [False, LOST])
    def test_a_damaged_file_of_the_base_or_of_the_extension_costs_its_shards_alone(
        self, extended: tuple[Command, Plan, Plan], is_lost: bool
    ) -> None:
        command, base, extension = extended
        out = Path(base.spec.output_uri)
        command.publish(extension)
        before, shards = data_digests(out), {base.spec.run_id: NAMES[1:3], extension.spec.run_id: [NAMES[0], NAMES[3]]}

        for plan in (base, extension):
            (first, *_) = shards[plan.spec.run_id]
            Published(str(out)).truncate(f"data/{first}.parquet")
            if is_lost:
                command.ledger.redis.flushall()
            assert first in (scored := command.publish(plan))
            assert len(scored) == sum(line["data"]["path"] == f"data/{first}.parquet" for line in manifest_lines(out))

        assert data_digests(out) == before
        assert command.faults(out) == ()

    def test_a_changed_file_of_the_base_is_refused(self, extended: tuple[Command, Plan, Plan]) -> None:
        command, *_ = extended
        file = command.source / f"{NAMES[1]}.parquet"
        pq.write_table(pq.read_table(file).slice(1), file)

        with pytest.raises(UsageError, match="left out as duplicates of their old rows"):
            command.plan(unique=True, extends=True, changed="score")


@SIZES
def test_a_run_on_the_hub_has_the_files_of_one_in_a_folder(command: Command, hub: HubServer, size: str) -> None:
    _, out = command.published(target_file_size=size)
    hub.create_repo(repo := f"org/unique-{next(_numbers)}")
    plan = command.plan(unique=True, target_file_size=size, output_uri=f"hf://datasets/{repo}")

    command.publish(plan)
    command.ledger.redis.flushall()

    assert command.publish(plan) == []
    files = {path: sha256(hub.read(repo, path)).hexdigest() for path in hub.files(repo) if "/" in path}
    assert files == data_digests(out)
    assert [commit.title for commit in hub.commits(repo)] == [f"Publish run {plan.spec.run_id}", "initial commit"]
    assert verify(plan.spec.output_uri, source=(str(command.source),)).faults == ()


class TestVerify:
    @pytest.fixture
    def dataset(self, command: Command) -> Dataset:
        _, out = command.published()
        return Dataset(source=command.source, output=out)

    def test_a_text_that_is_there_twice_is_found(self, dataset: Dataset, command: Command) -> None:
        _, plain = command.published("plain", unique=False)
        path = f"data/{NAMES[2]}.parquet"
        again = pq.read_table(plain / path)
        there = {row["text"] for row in kept(dataset.output)}
        assert {*again["text"].to_pylist()} <= there
        rows = len(pq.read_table(dataset.output / path))
        assert rows < len(again)

        dataset.rewrite(path, lambda _: again)
        dataset.change(
            NAMES[2], lambda receipt: replace(receipt, rows_kept=len(again), rows_dropped=ROWS - len(again) - 3)
        )

        assert dataset.faults() == [f"{path}: has {len(again) - rows} rows whose text an earlier row has"]

    def test_a_row_that_is_no_duplicate_and_is_left_out_is_found(self, dataset: Dataset) -> None:
        path = f"data/{NAMES[0]}.parquet"
        (receipt, *_) = dataset.manifest.receipts

        dataset.rewrite(path, lambda rows: rows.slice(1))
        dataset.change(
            NAMES[0],
            lambda one: replace(one, rows_kept=receipt.rows_kept - 1, rows_dropped=receipt.rows_dropped + 1),
        )

        assert dataset.faults() == []
        lost, number = dataset.faults(with_source=True)[:2]
        assert lost == f"{path}: lacks 1 row whose text no earlier row has"
        assert re.fullmatch(
            f"{path}: lacks \\d+ rows that the filter keeps, and its receipt names \\d+ duplicates", number
        )

    def test_digests_of_other_texts_are_found(self, dataset: Dataset) -> None:
        path = f"scores/{NAMES[0]}.parquet"
        footer = pq.read_metadata(dataset.output / path).metadata
        place = pq.read_schema(dataset.output / path).get_field_index("text_digest")

        def exchanged(rows: pa.Table) -> pa.Table:
            digests = rows["text_digest"].take(pa.array([1, 0, *range(2, ROWS)]))
            texts = {"shardsift.texts": footer[b"shardsift.texts"]}
            return rows.set_column(place, "text_digest", digests).replace_schema_metadata(texts)

        dataset.rewrite(path, exchanged)

        assert dataset.faults(with_source=True) == [
            f"{path}: has digests of other texts than the input's, between its rows 0 and 16"
        ]
