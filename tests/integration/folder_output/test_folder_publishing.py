"""Readers see nothing before the publication, and everything after it."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hubserver import HubServer
from shardsift.fleet.errors import OutputDamaged, ShardError
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH, output_files
from support.folder_runs import RUN, SPEC, A, B, move_into_place, publish, stage
from support.outputs import Published, hidden, visible
from support.records import a_shard


class TestPublishing:
    def test_a_publication_shows_all_files_and_proves_it(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]

        publish(output, receipts)

        seen = visible(uri)
        assert seen.keys() == {A.data_path, A.scores_path, B.data_path, B.scores_path, MANIFEST_PATH, CARD_PATH}
        for receipt in receipts:
            for file in output_files(receipt):
                assert hashlib.sha256(seen[file.path]).hexdigest() == file.sha256
        assert output.published() == RUN

    @pytest.mark.parametrize("moved", [1, 2, 3, 4])
    def test_a_publication_that_died_between_two_moves_is_completed(
        self, uri: str, output: FolderOutput, tmp_path: Path, moved: int
    ) -> None:
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]
        for file in [file for receipt in receipts for file in output_files(receipt)][:moved]:
            move_into_place(output, file)
        assert output.published() is None

        publish(output, receipts)

        assert len(visible(uri)) == 6
        assert output.published() == RUN

    def test_in_a_bucket_of_the_hub_it_is_completed_too_and_sends_the_documents_alone(
        self, bucket: str, running_hub: HubServer, tmp_path: Path
    ) -> None:
        output = FolderOutput(bucket, RUN)
        output.reserve(SPEC)
        receipts = [stage(output, shard, tmp_path) for shard in (A, B)]
        move_into_place(output, receipts[0].scores)
        assert list(output.recovered().whole) == receipts
        running_hub.forget_requests()

        publish(output, receipts)

        assert len(visible(bucket)) == 6
        assert output.published() == RUN
        assert hidden(bucket) == {
            f".shardsift/{RUN}/spec.json",
            *(f".shardsift/{RUN}/receipts/{shard.name}/1-aa.json" for shard in (A, B)),
        }
        assert sum("/xorbs/" in request.path for request in running_hub.requests) <= 2  # manifest and card

    @pytest.mark.parametrize("kind", ["data", "scores"])
    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (Published.delete, "is missing"),
            (Published.empty, "its size differs"),
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

    def test_nothing_but_spec_and_receipts_stays_behind(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        publish(output, [stage(output, A, tmp_path)])

        assert hidden(uri) == {f".shardsift/{RUN}/spec.json", f".shardsift/{RUN}/receipts/{A.name}/1-aa.json"}

    @pytest.mark.parametrize("path", [A.data_path, MANIFEST_PATH, CARD_PATH])
    def test_a_folder_in_the_place_of_a_published_file_is_found_and_the_file_is_not_moved_into_it(
        self, tmp_path: Path, path: str
    ) -> None:
        output = FolderOutput(str(tmp_path / "out"), RUN)
        output.reserve(SPEC)
        publish(output, [stage(output, A, tmp_path)])
        (tmp_path / "out" / path).unlink()
        (tmp_path / "out" / path).mkdir()
        receipt = stage(output, A, tmp_path)

        found = output.inspect([receipt], hashes=True)
        with pytest.raises(
            ShardError, match=rf"there is a folder in the place of a file; move it away \({tmp_path}/out/{path}"
        ):
            publish(output, [receipt])
        nothing_in_it = list((tmp_path / "out" / path).iterdir())
        (tmp_path / "out" / path).rmdir()
        publish(output, [receipt])

        assert [str(finding) for finding in found] == [f"{path} is missing"]
        assert nothing_in_it == []
        assert output.inspect([receipt], hashes=True) == []

    def test_finalizers_that_race_make_one_whole_publication(self, tmp_path: Path) -> None:
        output = FolderOutput(str(tmp_path / "out"), RUN)
        output.reserve(SPEC)
        receipts = [stage(output, a_shard(f"{number}"), tmp_path) for number in range(30)]
        outputs = [FolderOutput(output.uri, RUN) for _ in range(4)]

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda output: publish(output, receipts), outputs))

        assert output.published() == RUN
        assert len(visible(output.uri)) == 62
