"""An output in a folder or a bucket: nothing is seen before it is published, and then all of it, however often it is tried."""

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.errors import ShardError, UsageError
from fleet.receipt import OutputFile, Receipt
from fleet.shard import Shard
from fleet.storage.folder import FolderOutput
from fleet.storage.manifest import manifest
from fleet.storage.opening import open_output
from fleet.storage.output import CARD_PATH, MANIFEST_PATH, Mark, output_files
from support.records import a_receipt, a_shard, a_spec

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
    """What a worker does at the end of a shard."""
    data, scores = (
        stage_file(output, path, f"{path} of {attempt}".encode(), folder, attempt=attempt)
        for path in (shard.data_path, shard.scores_path)
    )
    receipt = a_receipt(RUN, shard, data=data, scores=scores)
    output.keep_receipt(receipt)
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
    """Content by path of all that a reader of the dataset sees."""
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

        with pytest.raises(ShardError, match=f"has lost .*{B.scores_path}"):
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

        with pytest.raises(ShardError, match="has lost"):
            publish(output, [receipt])

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

        assert hidden(uri) == {f".shardsift/{RUN}/spec.json", f".shardsift/{RUN}/receipts/{A.name}.json"}

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
        kept = files.cat_file(f"{root}/.shardsift/{RUN}/receipts/{A.name}.json")
        assert Receipt.from_json(kept) == receipt

    def test_the_receipt_of_a_later_attempt_replaces_it(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        stage(output, A, tmp_path, attempt="1-aa")
        later = stage(output, A, tmp_path, attempt="2-bb")

        files, root = fsspec.url_to_fs(uri)
        kept = files.cat_file(f"{root}/.shardsift/{RUN}/receipts/{A.name}.json")
        assert Receipt.from_json(kept) == later

    def test_workers_that_write_at_once_do_not_mix_up_their_receipts(self, tmp_path: Path) -> None:
        output = FolderOutput(str(tmp_path / "out"), RUN)
        shards = [a_shard(name) for name in ("a/b/c", "a_b/c", "a/b_c", "a_b_c")]
        receipts = [a_receipt(RUN, shard) for shard in shards] * 40

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(output.keep_receipt, receipts))

        folder = tmp_path / "out/.shardsift" / RUN / "receipts"
        kept = {shard.name: Receipt.from_json((folder / f"{shard.name}.json").read_bytes()) for shard in shards}
        assert {name: receipt.shard for name, receipt in kept.items()} == {shard.name: shard.name for shard in shards}


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
