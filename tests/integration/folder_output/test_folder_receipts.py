"""What workers store beside the output: receipts and checkpoints, from which a run continues."""

from dataclasses import replace
from pathlib import Path

import pytest

from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import output_files
from support.folder_runs import RUN, A, B, move_into_place, publish, stage
from support.outputs import Published, hidden, visible
from support.records import a_receipt, a_shard, stage_file


class TestReceipts:
    def test_an_attempt_that_lost_its_shard_cannot_overwrite_the_winners_receipt(
        self, uri: str, output: FolderOutput, tmp_path: Path
    ) -> None:
        winner = stage(output, A, tmp_path, attempt="2-bb")

        loser = stage(output, A, tmp_path, attempt="1-aa")

        assert {f".shardsift/{RUN}/receipts/{A.name}/{attempt}.json" for attempt in ("1-aa", "2-bb")} <= hidden(uri)
        output.discard(loser)
        assert list(output.recovered().whole) == [winner]

    def test_a_receipt_whose_files_are_not_there_does_not_count(self, output: FolderOutput, tmp_path: Path) -> None:
        whole, halved, cut = (stage(output, a_shard(name), tmp_path) for name in ("a", "b", "c"))
        Published(output.uri).delete(halved.scores.staged_path)
        Published(output.uri).write(cut.data.staged_path, b"cut")

        assert list(output.recovered().whole) == [whole]

    def test_a_shard_has_one_receipt_however_many_attempts_left_theirs(
        self, output: FolderOutput, tmp_path: Path
    ) -> None:
        attempts = [stage(output, A, tmp_path, attempt=attempt) for attempt in ("1-aa", "2-bb", "3-cc")]
        other = stage(output, B, tmp_path)

        of_a, of_b = output.recovered().whole

        assert of_a in attempts
        assert of_b == other

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
        for file in output_files(begun)[:moved]:
            move_into_place(output, file)
        assert list(output.recovered().whole) == [other]

        for file in output_files(other):
            Published(output.uri).delete(file.staged_path)

        assert list(output.recovered().whole) == [begun]  # with the same size, so only the content differs

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"{", b"\xff", b"[]"),
            a_receipt("other-run", A).to_json(),
            replace(a_receipt(RUN, A), shard=B.name).to_json(),  # points to other paths
        ],
    )
    def test_what_is_no_receipt_of_this_run_is_skipped(
        self, output: FolderOutput, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        receipt = stage(output, A, tmp_path)
        Published(output.uri).write(f".shardsift/{RUN}/receipts/{A.name}/9-zz.json", content)

        assert list(output.recovered().whole) == [receipt]
        assert "Skipped .shardsift/" in caplog.text


class TestDiscarding:
    def test_other_attempts_and_other_shards_stay(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        kept = [stage(output, A, tmp_path, attempt="2-bb"), stage(output, B, tmp_path, attempt="1-aa")]
        before = hidden(uri)
        lost = stage(output, A, tmp_path, attempt="1-aa")

        output.discard(lost)
        output.discard(lost)

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
    def test_a_checkpoint_is_no_folder_of_another_shard(self, output: FolderOutput) -> None:
        assert output.store_checkpoint(A.name, "0", b"a")
        assert output.store_checkpoint(f"{A.name}/0", "0", b"b")

        assert [output.checkpoints(name) for name in (A.name, f"{A.name}/0")] == [{"0": b"a"}, {"0": b"b"}]

    def test_a_checkpoint_is_there_for_the_next_attempt(self, uri: str, output: FolderOutput) -> None:
        assert output.store_checkpoint(A.name, "0-8192", b"old")
        assert output.store_checkpoint(A.name, "0-8192", b"scores")
        assert output.store_checkpoint(A.name, "8192-16384", b"more")

        assert FolderOutput(uri, RUN).checkpoints(A.name) == {"0-8192": b"scores", "8192-16384": b"more"}
        assert visible(uri) == {}

    def test_those_for_a_dataset_on_the_hub_are_in_the_place_for_its_state(self, tmp_path: Path) -> None:
        stateless, *outputs = (
            open_output("hf://datasets/org/out", RUN, state_uri=uri) for uri in (None, *[str(tmp_path)] * 2)
        )

        assert outputs[0].store_checkpoint(A.name, "0", b"scores")
        found = outputs[1].checkpoints(A.name)
        outputs[1].drop_checkpoints(A.name)

        assert (found, outputs[0].checkpoints(A.name)) == ({"0": b"scores"}, {})
        assert not stateless.store_checkpoint(A.name, "0", b"scores")

    def test_a_shard_has_its_own(self, output: FolderOutput) -> None:
        for shard in ("a", "a/b", "a_b"):
            output.store_checkpoint(shard, "1", shard.encode())

        output.drop_checkpoints("a")

        assert [output.checkpoints(shard) for shard in ("a", "a/b", "a_b")] == [{}, {"1": b"a/b"}, {"1": b"a_b"}]

    def test_a_tidied_output_has_none(self, uri: str, output: FolderOutput, tmp_path: Path) -> None:
        receipt = stage(output, A, tmp_path)
        before = hidden(uri)
        output.store_checkpoint(A.name, "1", b"scores")

        output.tidy([])
        output.tidy([])

        assert hidden(uri) == before
        assert list(output.recovered().whole) == [receipt]
