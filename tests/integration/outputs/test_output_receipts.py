"""What workers store beside the output: receipts and checkpoints, from which a run continues."""

from dataclasses import replace
from pathlib import Path

import pytest

from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import output_files
from support.output_runs import RUN, A, B, Place, without_the_hub
from support.records import a_receipt, a_shard, stage_file


@without_the_hub
class TestReceipts:
    def test_a_receipt_whose_files_are_not_there_does_not_count(self, place: Place) -> None:
        whole, halved, cut = (place.stage(a_shard(name)) for name in ("a", "b", "c"))
        place.files.delete(halved.scores.staged_path)
        place.files.write(cut.data.staged_path, b"cut")

        assert place.recovered() == [whole]

    @pytest.mark.parametrize("order", [("1-aa", "2-bb"), ("2-bb", "1-aa")])
    def test_of_several_attempts_the_published_one_counts(self, place: Place, order: tuple[str, str]) -> None:
        published, later = (place.stage(A, attempt=attempt) for attempt in order)
        place.publish(published)
        for path in (A.data_path, A.scores_path):  # an attempt that was frozen for a while
            stage_file(place.output, path, f"{path} of {order[1]}".encode(), place.folder, attempt=order[1])
        place.output.store_receipt(later)

        assert place.recovered() == [published]

    @pytest.mark.parametrize("moved", [1, 2])
    def test_after_a_dead_publication_its_attempt_or_a_whole_one_counts(self, place: Place, moved: int) -> None:
        begun, other = (place.stage(A, attempt=attempt) for attempt in ("1-aa", "2-bb"))
        place.move_into_place(output_files(begun)[:moved])
        assert place.recovered() == [other]

        for file in output_files(other):
            place.files.delete(file.staged_path)

        assert place.recovered() == [begun]  # with the same size, so only the content differs

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"{", b"\xff", b"[]"),
            a_receipt("other-run", A).to_json(),
            replace(a_receipt(RUN, A), shard=B.name).to_json(),  # points to other paths
        ],
    )
    def test_foreign_receipts_are_skipped(self, place: Place, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
        receipt = place.stage(A)
        place.files.write(f".shardsift/{RUN}/receipts/{A.name}/9-zz.json", content)

        assert place.recovered() == [receipt]
        assert "Skipped .shardsift/" in caplog.text


@without_the_hub
class TestCheckpoints:
    def test_a_checkpoint_is_there_for_the_next_attempt(self, place: Place) -> None:
        for name, content in (("0-8192", b"old"), ("0-8192", b"scores"), ("8192-16384", b"more")):
            assert place.output.store_checkpoint(A.name, name, content)

        assert place.output.checkpoints(A.name) == {"0-8192": b"scores", "8192-16384": b"more"}
        assert place.files.visible() == {}

    def test_a_shard_has_its_own_checkpoints_even_if_another_is_named_like_one(self, place: Place) -> None:
        shards = ("a", "a/1", "a_b")
        for shard in shards:
            place.output.store_checkpoint(shard, "1", shard.encode())

        place.output.drop_checkpoints("a")

        assert [place.output.checkpoints(shard) for shard in shards] == [{}, {"1": b"a/1"}, {"1": b"a_b"}]


def test_checkpoints_of_a_dataset_on_the_hub_are_in_the_place_for_its_state(tmp_path: Path) -> None:
    stateless, *outputs = (
        open_output("hf://datasets/org/out", RUN, state_uri=uri) for uri in (None, *[str(tmp_path)] * 2)
    )

    assert outputs[0].store_checkpoint(A.name, "0", b"scores")
    found = outputs[1].checkpoints(A.name)
    outputs[1].drop_checkpoints(A.name)

    assert (found, outputs[0].checkpoints(A.name)) == ({"0": b"scores"}, {})
    assert not stateless.store_checkpoint(A.name, "0", b"scores")
