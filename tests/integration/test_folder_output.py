"""Outputs in a folder or a bucket: readers see nothing before the publication, and everything after it."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.errors import OutputDamaged, UsageError
from fleet.receipt import OutputFile, Receipt
from fleet.shard import Shard
from fleet.storage.folder import FolderOutput
from fleet.storage.manifest import manifest, receipts_listed
from fleet.storage.opening import open_output
from fleet.storage.output import CARD_PATH, MANIFEST_PATH, Mark, output_files
from support.outputs import Published
from support.records import a_receipt, a_scoring_receipt, a_shard, a_spec

SPEC = a_spec()
RUN = SPEC.run_id
A, B = a_shard("crawl/a"), a_shard("crawl/b")
_numbers = count()


@pytest.fixture(params=["folder", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "out")
        return
    uri = f"memory://out-{next(_numbers)}"
    yield uri
    files = fsspec.filesystem("memory")
    if files.exists(uri):
        files.rm(uri, recursive=True)


@pytest.fixture
def output(uri: str) -> FolderOutput:
    output = FolderOutput(uri, RUN)
    output.reserve(SPEC)
    return output


def stage(output: FolderOutput, shard: Shard, folder: Path, *, attempt: str = "1-aa") -> Receipt:
    """Stage a shard and store its receipt, as a worker does."""
    data, scores = (
        stage_file(output, path, f"{path} of {attempt}".encode(), folder, attempt=attempt)
        for path in (shard.data_path, shard.scores_path)
    )
    receipt = a_receipt(RUN, shard, data=data, scores=scores)
    output.store_receipt(receipt)
    return receipt


def stage_file(output: FolderOutput, path: str, content: bytes, folder: Path, *, attempt: str) -> OutputFile:
    (folder / "scratch").write_bytes(content)
    staged_path = output.stage(folder / "scratch", path, attempt=attempt)
    sha256 = hashlib.sha256(content).hexdigest()
    return OutputFile(path=path, staged_path=staged_path, size_bytes=len(content), sha256=sha256, rows=1)


def documents(receipts: list[Receipt]) -> Mapping[str, bytes]:
    return {MANIFEST_PATH: manifest(SPEC, receipts, Mark.of(RUN, receipts)), CARD_PATH: b"# Card"}


def publish(output: FolderOutput, receipts: list[Receipt]) -> None:
    assert output.publish(receipts, documents(receipts), parent=output.head()) == ""


def visible(uri: str) -> dict[str, bytes]:
    """Path → content of all files that a reader of the dataset sees."""
    files, root = fsspec.url_to_fs(uri)
    paths = (path.removeprefix(root).lstrip("/") for path in files.find(root))
    return {path: files.cat_file(f"{root}/{path}") for path in paths if not path.startswith(".shardsift/")}


def hidden(uri: str) -> set[str]:
    files, root = fsspec.url_to_fs(uri)
    return {path.removeprefix(root).lstrip("/") for path in files.find(f"{root}/.shardsift")}


class TestPublishing:
    def test_staged_files_are_not_seen(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        stage(output, A, tmp_path)

        assert visible(uri) == {}
        assert output.published() is None

    def test_a_publication_shows_all_files_and_proves_it(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]

        publish(output, receipts)

        seen = visible(uri)
        assert seen.keys() == {A.data_path, A.scores_path, B.data_path, B.scores_path, MANIFEST_PATH, CARD_PATH}
        for receipt in receipts:
            for file in output_files(receipt):
                assert hashlib.sha256(seen[file.path]).hexdigest() == file.sha256
        assert output.published() == Mark.of(RUN, receipts)

    def test_publishing_twice_changes_nothing(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]
        publish(output, receipts)
        before = visible(uri)

        publish(output, receipts)

        assert visible(uri) == before

    @pytest.mark.parametrize("moved", [1, 2, 3, 4])
    def test_a_publication_that_died_between_two_moves_is_completed(
        self, uri: str, output: FolderOutput, tmp_path: Path, moved: int
    ) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]
        files, root = fsspec.url_to_fs(uri)
        for file in [file for receipt in receipts for file in output_files(receipt)][:moved]:
            files.makedirs(f"{root}/{file.path}".rpartition("/")[0], exist_ok=True)
            files.mv(f"{root}/{file.staged_path}", f"{root}/{file.path}")
        assert output.published() is None

        publish(output, receipts)

        assert len(visible(uri)) == 6
        assert output.published() == Mark.of(RUN, receipts)

    def test_the_manifest_comes_last(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]
        files, root = fsspec.url_to_fs(uri)
        files.rm(f"{root}/{receipts[-1].scores.staged_path}")

        with pytest.raises(OutputDamaged, match=f"{B.scores_path} is missing"):
            publish(output, receipts)

        assert output.published() is None
        assert MANIFEST_PATH not in visible(uri)

    def test_a_file_of_another_size_in_its_place_is_not_taken_for_it(
        self, uri: str, output: FolderOutput, tmp_path: Path
    ) -> None:
        receipt = stage(output, A, tmp_path)
        files, root = fsspec.url_to_fs(uri)
        files.rm(f"{root}/{receipt.data.staged_path}")
        files.makedirs(f"{root}/{A.data_path}".rpartition("/")[0], exist_ok=True)
        files.pipe_file(f"{root}/{A.data_path}", b"other")

        with pytest.raises(OutputDamaged, match=f"{A.data_path} has changed .* size differs"):
            publish(output, [receipt])

    @pytest.mark.parametrize("kind", ["data", "scores"])
    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (Published.delete, "is missing"),
            (Published.truncate, "its size differs"),
            (Published.empty, "its size differs"),
            (Published.zero, "its sha256 differs"),
            (Published.flip, "its sha256 differs"),
        ],
    )
    def test_a_damaged_staged_file_is_named_and_nothing_becomes_visible(
        self,
        uri: str,
        output: FolderOutput,
        tmp_path: Path,
        kind: str,
        damage: Callable[[Published, str], None],
        said: str,
    ) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]
        damage(Published(uri), getattr(receipts[1], kind).staged_path)

        with pytest.raises(OutputDamaged) as refused:
            publish(output, receipts)

        assert refused.value.damaged.keys() == {B.name}
        assert said in refused.value.damaged[B.name]
        assert visible(uri) == {}

    def test_a_damaged_copy_of_what_is_published_already_is_no_trouble(
        self, uri: str, output: FolderOutput, tmp_path: Path
    ) -> None:
        receipt = stage(output, A, tmp_path)
        publish(output, [receipt])
        before = visible(uri)
        stage(output, A, tmp_path)
        Published(uri).flip(receipt.data.staged_path)

        publish(output, [receipt])

        assert visible(uri) == before

    @pytest.mark.parametrize("damage", [Published.flip, Published.zero])
    def test_a_published_file_that_was_damaged_is_named_by_the_next_publication(
        self, uri: str, output: FolderOutput, tmp_path: Path, damage: Callable[[Published, str], None]
    ) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]
        publish(output, receipts)
        damage(Published(uri), B.data_path)

        with pytest.raises(OutputDamaged) as refused:
            publish(output, receipts)

        assert refused.value.damaged == {B.name: f"{B.data_path} has changed since it was written (its sha256 differs)"}

    def test_of_two_attempts_the_recorded_one_is_published(
        self, uri: str, output: FolderOutput, tmp_path: Path
    ) -> None:
        dropped = stage(output, A, tmp_path, attempt="1-aa")
        recorded = stage(output, A, tmp_path, attempt="2-bb")

        publish(output, [recorded])

        assert visible(uri)[A.data_path] == f"{A.data_path} of 2-bb".encode()
        assert dropped.data.staged_path not in hidden(uri)

    def test_a_second_publication_adds_to_the_first(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        first = stage(output, A, tmp_path)
        publish(output, [first])
        second = stage(output, B, tmp_path, attempt="2-bb")

        publish(output, [first, second])

        assert {A.data_path, B.data_path} <= visible(uri).keys()
        assert output.published() == Mark.of(RUN, [first, second])

    def test_nothing_but_spec_and_receipts_stays_behind(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        publish(output, [stage(output, A, tmp_path)])

        assert hidden(uri) == {f".shardsift/{RUN}/spec.json", f".shardsift/{RUN}/receipts/{A.name}/1-aa.json"}

    def test_finalizers_that_race_make_one_whole_publication(self, tmp_path: Path) -> None:
        output = FolderOutput(str(tmp_path / "out"), RUN)
        output.reserve(SPEC)
        receipts = [stage(output, a_shard(f"{number}"), tmp_path) for number in range(30)]
        outputs = [FolderOutput(output.uri, RUN) for _ in range(4)]

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda output: publish(output, receipts), outputs))

        assert output.published() == Mark.of(RUN, receipts)
        assert len(visible(output.uri)) == 62


class TestReceipts:
    def test_a_receipt_lies_beside_the_staged_files(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        receipt = stage(output, A, tmp_path)

        files, root = fsspec.url_to_fs(uri)
        kept = files.cat_file(f"{root}/.shardsift/{RUN}/receipts/{A.name}/1-aa.json")
        assert Receipt.from_json(kept) == receipt
        assert list(output.recovered().whole) == [receipt]

    def test_an_attempt_that_lost_its_shard_cannot_overwrite_the_winners_receipt(
        self, uri: str, output: FolderOutput, tmp_path: Path
    ) -> None:
        winner = stage(output, A, tmp_path, attempt="2-bb")

        loser = stage(output, A, tmp_path, attempt="1-aa")

        assert {f".shardsift/{RUN}/receipts/{A.name}/{attempt}.json" for attempt in ("1-aa", "2-bb")} <= hidden(uri)
        output.discard(loser)
        assert list(output.recovered().whole) == [winner]

    def test_workers_that_write_at_once_do_not_mix_up_their_receipts(self, tmp_path: Path) -> None:
        output = FolderOutput(str(tmp_path / "out"), RUN)
        shards = [a_shard(name) for name in ("a/b/c", "a_b/c", "a/b_c", "a_b_c")]
        receipts = {shard.name: stage(output, shard, tmp_path) for shard in shards}

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(output.store_receipt, list(receipts.values()) * 40))

        assert {receipt.shard: receipt for receipt in output.recovered().whole} == receipts

    def test_an_output_without_receipts_has_none(self, output: FolderOutput) -> None:
        assert list(output.recovered().whole) == []

    def test_a_receipt_whose_files_are_not_there_does_not_count(self, output: FolderOutput, tmp_path: Path) -> None:
        whole, halved, cut = (stage(output, a_shard(name), tmp_path) for name in ("a", "b", "c"))
        files, root = fsspec.url_to_fs(output.uri)
        files.rm(f"{root}/{halved.scores.staged_path}")
        files.pipe_file(f"{root}/{cut.data.staged_path}", b"cut")

        assert list(output.recovered().whole) == [whole]

    def test_a_shard_has_one_receipt_however_many_attempts_left_theirs(
        self, output: FolderOutput, tmp_path: Path
    ) -> None:
        attempts = [stage(output, A, tmp_path, attempt=attempt) for attempt in ("1-aa", "2-bb", "3-cc")]
        other = stage(output, B, tmp_path)

        of_a, of_b = output.recovered().whole

        assert of_a in attempts
        assert of_b == other

    def test_published_files_count_as_there(self, output: FolderOutput, tmp_path: Path) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]
        publish(output, receipts)

        assert list(output.recovered().whole) == receipts

    @pytest.mark.parametrize("order", [("1-aa", "2-bb"), ("2-bb", "1-aa")])
    def test_of_several_attempts_the_published_one_counts(
        self, output: FolderOutput, tmp_path: Path, order: tuple[str, str]
    ) -> None:
        published, later = (stage(output, A, tmp_path, attempt=attempt) for attempt in order)
        publish(output, [published])
        for path in (A.data_path, A.scores_path):  # an attempt that was frozen for a while
            stage_file(output, path, f"{path} of {order[1]}".encode(), tmp_path, attempt=order[1])
        output.store_receipt(later)

        assert list(output.recovered().whole) == [published]

    @pytest.mark.parametrize("moved", [1, 2])
    def test_of_a_publication_that_died_midway_the_attempt_it_began_with_or_one_that_is_whole_counts(
        self, output: FolderOutput, tmp_path: Path, moved: int
    ) -> None:
        begun, other = (stage(output, A, tmp_path, attempt=attempt) for attempt in ("1-aa", "2-bb"))
        files, root = fsspec.url_to_fs(output.uri)
        for file in output_files(begun)[:moved]:
            files.makedirs(f"{root}/{file.path}".rpartition("/")[0], exist_ok=True)
            files.mv(f"{root}/{file.staged_path}", f"{root}/{file.path}")
        assert list(output.recovered().whole) == [other]

        files.rm(f"{root}/{other.data.staged_path}")
        files.rm(f"{root}/{other.scores.staged_path}")

        assert list(output.recovered().whole) == [begun]  # with the same size, so only the content differs

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", a_receipt("other-run", A).to_json()])
    def test_what_is_no_receipt_of_this_run_is_skipped(
        self, output: FolderOutput, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        receipt = stage(output, A, tmp_path)
        files, root = fsspec.url_to_fs(output.uri)
        files.pipe_file(f"{root}/.shardsift/{RUN}/receipts/{A.name}/9-zz.json", content)

        assert list(output.recovered().whole) == [receipt]
        assert "Skipped .shardsift/" in caplog.text

    def test_a_receipt_that_points_to_other_paths_is_skipped(self, output: FolderOutput, tmp_path: Path) -> None:
        receipt = stage(output, A, tmp_path)
        output.store_receipt(replace(receipt, shard=B.name))

        assert list(output.recovered().whole) == [receipt]

    def test_the_manifest_is_as_good_as_the_receipts(self, tmp_path: Path) -> None:
        receipts = [
            a_receipt(RUN, A),
            a_receipt(RUN, B, scorings=(a_scoring_receipt(parity=None),), errors={}),
        ]

        read = receipts_listed(manifest(SPEC, receipts, Mark.of(RUN, receipts)), RUN)

        assert manifest(SPEC, read, Mark.of(RUN, read)) == manifest(SPEC, receipts, Mark.of(RUN, receipts))
        assert [replace(receipt, data=a.data, scores=a.scores) for receipt, a in zip(read, receipts, strict=True)] == (
            receipts
        )
        assert receipts_listed(manifest(SPEC, receipts, Mark.of("other", receipts)), RUN) == []


class TestDiscarding:
    def test_a_discarded_attempt_is_gone_with_its_receipt(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        before = hidden(uri)
        receipt = stage(output, A, tmp_path)

        output.discard(receipt)
        output.discard(receipt)

        assert hidden(uri) == before

    def test_other_attempts_and_other_shards_stay(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        kept = [stage(output, A, tmp_path, attempt="2-bb"), stage(output, B, tmp_path, attempt="1-aa")]
        before = hidden(uri)

        output.discard(stage(output, A, tmp_path, attempt="1-aa"))

        assert hidden(uri) == before
        assert list(output.recovered().whole) == kept

    def test_published_files_stay(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        receipt = stage(output, A, tmp_path)
        publish(output, [receipt])
        before = visible(uri)

        output.discard(receipt)
        output.discard(replace(receipt, data=replace(receipt.data, staged_path=receipt.data.path)))

        assert visible(uri) == before

    def test_an_output_that_cannot_be_written_is_no_trouble(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        output = FolderOutput(str(tmp_path / "file/out"), RUN)

        output.discard(a_receipt(RUN, A))

        assert (tmp_path / "file").read_text() == "mine"


class TestCheckpoints:
    def test_a_checkpoint_is_there_for_the_next_attempt(self, uri: str, output: FolderOutput) -> None:
        assert output.store_checkpoint(A.name, "0-8192", b"old")
        assert output.store_checkpoint(A.name, "0-8192", b"scores")
        assert output.store_checkpoint(A.name, "8192-16384", b"more")

        assert FolderOutput(uri, RUN).checkpoints(A.name) == {"0-8192": b"scores", "8192-16384": b"more"}
        assert visible(uri) == {}

    def test_a_shard_has_its_own(self, output: FolderOutput) -> None:
        for shard in ("a", "a/b", "a_b"):
            output.store_checkpoint(shard, "1", shard.encode())

        output.drop_checkpoints("a")

        assert [output.checkpoints(shard) for shard in ("a", "a/b", "a_b")] == [{}, {"1": b"a/b"}, {"1": b"a_b"}]

    def test_dropped_checkpoints_are_gone(self, uri: str, output: FolderOutput) -> None:
        before = hidden(uri)
        output.store_checkpoint(A.name, "1", b"scores")

        output.drop_checkpoints(A.name)
        output.drop_checkpoints(A.name)

        assert hidden(uri) == before
        assert output.checkpoints(A.name) == {}

    def test_a_tidied_output_has_none(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        receipt = stage(output, A, tmp_path)
        before = hidden(uri)
        output.store_checkpoint(A.name, "1", b"scores")

        output.tidy([])
        output.tidy([])

        assert hidden(uri) == before
        assert list(output.recovered().whole) == [receipt]


class TestReserving:
    def test_reserving_writes_whose_output_this_is(self, uri: str, output: FolderOutput) -> None:
        assert hidden(uri) == {f".shardsift/{RUN}/spec.json"}
        assert visible(uri) == {}

    def test_the_same_run_may_reserve_again_before_and_after_it_published(
        self, uri: str, output: FolderOutput, tmp_path: Path
    ) -> None:
        FolderOutput(uri, RUN).reserve(SPEC)
        publish(output, [stage(output, A, tmp_path)])
        before = visible(uri)

        FolderOutput(uri, RUN).reserve(SPEC)

        assert visible(uri) == before

    def test_an_output_of_another_run_is_refused(self, uri: str, output: FolderOutput) -> None:
        other = a_spec(where=None)

        with pytest.raises(UsageError, match=f"holds the data of another run, {RUN}"):
            FolderOutput(uri, other.run_id).reserve(other)

        assert hidden(uri) == {f".shardsift/{RUN}/spec.json"}

    @pytest.mark.parametrize("path", ["data/a.parquet", "scores/a.parquet", MANIFEST_PATH])
    def test_data_of_somebody_else_is_refused(self, uri: str, path: str) -> None:
        files, root = fsspec.url_to_fs(uri)
        files.makedirs(f"{root}/{path}".rpartition("/")[0], exist_ok=True)
        files.pipe_file(f"{root}/{path}", b"theirs")

        with pytest.raises(UsageError, match="holds data that no run of shardsift wrote"):
            FolderOutput(uri, RUN).reserve(SPEC)

        assert visible(uri) == {path: b"theirs"}

    def test_other_files_are_no_hindrance(self, uri: str) -> None:
        files, root = fsspec.url_to_fs(uri)
        files.makedirs(root, exist_ok=True)
        files.pipe_file(f"{root}/notes.txt", b"mine")

        FolderOutput(uri, RUN).reserve(SPEC)

        assert visible(uri) == {"notes.txt": b"mine"}

    @pytest.mark.parametrize("name", ["out [1]", "out*", "a?b"])
    def test_a_folder_may_have_any_name(self, tmp_path: Path, name: str) -> None:
        output = FolderOutput(str(tmp_path / name), RUN)
        output.reserve(SPEC)
        publish(output, [stage(output, A, tmp_path)])
        output.reserve(SPEC)

        assert (tmp_path / name / A.data_path).is_file()
        with pytest.raises(UsageError, match="another run"):
            FolderOutput(str(tmp_path / name), "other").reserve(SPEC)

    def test_an_output_below_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")

        with pytest.raises(UsageError, match="Choose an --output that can be written"):
            FolderOutput(str(tmp_path / "file/out"), RUN).reserve(SPEC)

    def test_an_output_that_the_system_refuses_is_refused(self) -> None:
        with pytest.raises(UsageError, match="Choose an --output that can be written"):
            FolderOutput("/proc/shardsift-out", RUN).reserve(SPEC)

    @pytest.mark.parametrize("uri", ["nosuch://bucket/out", "s3a4://bucket"])
    def test_an_unknown_kind_of_output_is_refused(self, uri: str) -> None:
        with pytest.raises(UsageError, match=f"The output {uri} cannot be used"):
            open_output(uri, RUN)


class TestMark:
    RECEIPTS = (a_receipt(RUN, A), a_receipt(RUN, B))

    def test_a_mark_comes_back_from_a_file(self, tmp_path: Path) -> None:
        mark = Mark.of(RUN, self.RECEIPTS)
        table = pa.table({"a": [1]}).replace_schema_metadata(mark.as_metadata())
        pq.write_table(table, tmp_path / "m.parquet")

        assert Mark.read_from(tmp_path / "m.parquet") == mark

    def test_a_file_of_somebody_else_has_none(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [1]}), tmp_path / "m.parquet")

        assert Mark.read_from(tmp_path / "m.parquet") is None

    def test_it_does_not_depend_on_the_order_or_on_who_made_the_files(self) -> None:
        a, b = self.RECEIPTS
        later = replace(b, provenance=replace(b.provenance, worker="w2", attempt=2, finished_at=2e9))

        assert Mark.of(RUN, [later, a]) == Mark.of(RUN, [a, b])

    @pytest.mark.parametrize("change", [{"sha256": "cd" * 32}, {"path": "data/c.parquet"}])
    @pytest.mark.parametrize("which", ["data", "scores"])
    def test_other_content_or_another_place_makes_another(self, which: str, change: dict[str, str]) -> None:
        a, b = self.RECEIPTS
        other = replace(b, **{which: replace(getattr(b, which), **change)})

        assert Mark.of(RUN, [a, other]) != Mark.of(RUN, [a, b])

    def test_fewer_files_or_another_run_make_another(self) -> None:
        marks = {Mark.of(RUN, self.RECEIPTS), Mark.of(RUN, self.RECEIPTS[:1]), Mark.of("other", self.RECEIPTS)}

        assert len(marks) == 3
