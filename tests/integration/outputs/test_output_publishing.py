"""Readers see nothing before the publication, and everything after it."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hubserver import HubServer
from shardsift.fleet.errors import OutputDamaged, ShardError
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH, output_files
from support.output_runs import RUN, A, B, Place, in_a_folder, without_the_hub
from support.outputs import Published
from support.records import a_shard


def test_a_publication_shows_all_files_and_proves_it(place: Place) -> None:
    receipts = [place.stage(shard) for shard in (A, B)]
    before = place.files.visible()

    place.publish(*receipts)

    seen = place.files.visible()
    assert before == {}
    assert seen.keys() == {A.data_path, A.scores_path, B.data_path, B.scores_path, MANIFEST_PATH, CARD_PATH}
    for receipt in receipts:
        for file in output_files(receipt):
            assert hashlib.sha256(seen[file.path]).hexdigest() == file.sha256
    assert place.output.is_published()
    assert place.recovered() == receipts


def test_of_two_attempts_the_recorded_one_is_published(place: Place) -> None:
    place.stage(A, attempt="1-aa")
    recorded = place.stage(A, attempt="2-bb")

    place.publish(recorded)

    assert place.files.read(A.data_path) == f"{A.data_path} of 2-bb".encode()
    assert place.recovered() == [recorded]


@without_the_hub
@pytest.mark.parametrize("moved", [1, 2, 3, 4])
def test_a_publication_that_died_between_two_moves_is_completed(place: Place, moved: int) -> None:
    receipts = [place.stage(shard) for shard in (A, B)]
    place.move_into_place([file for receipt in receipts for file in output_files(receipt)][:moved])
    assert not place.output.is_published()

    place.publish(*receipts)

    assert len(place.files.visible()) == 6
    assert place.output.is_published()


def test_a_publication_in_a_bucket_sends_documents_alone(bucket: str, running_hub: HubServer, tmp_path: Path) -> None:
    place = Place(Published(bucket), tmp_path).reserve()
    receipts = [place.stage(shard) for shard in (A, B)]
    running_hub.forget_requests()

    place.publish(*receipts)

    assert len(place.files.visible()) == 6
    assert sum("/xorbs/" in request.path for request in running_hub.requests) <= 2  # manifest and card


@without_the_hub
@pytest.mark.parametrize("kind", ["data", "scores"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Published.delete, "is missing"),
        (Published.truncate, "its size differs"),
        (Published.flip, "its sha256 differs"),
    ],
)
def test_a_damaged_staged_file_is_named_and_nothing_becomes_visible(
    place: Place, kind: str, damage: Callable[[Published, str], None], said: str
) -> None:
    receipts = [place.stage(shard) for shard in (A, B)]
    damage(place.files, getattr(receipts[1], kind).staged_path)

    with pytest.raises(OutputDamaged) as refused:
        place.publish(*receipts)

    assert refused.value.damaged.keys() == {B.name}
    assert said in refused.value.damaged[B.name]
    assert place.files.visible() == {}


@without_the_hub
def test_a_damaged_copy_of_what_is_published_already_is_no_trouble(place: Place) -> None:
    receipt = place.stage(A)
    place.publish(receipt)
    before = place.files.visible()
    place.stage(A)
    place.files.flip(receipt.data.staged_path)

    place.publish(receipt)

    assert place.files.visible() == before


@without_the_hub
def test_a_damaged_published_file_is_named_by_the_next(place: Place) -> None:
    receipts = [place.stage(shard) for shard in (A, B)]
    place.publish(*receipts)
    place.files.flip(B.data_path)

    with pytest.raises(OutputDamaged) as refused:
        place.publish(*receipts)

    assert refused.value.damaged == {B.name: f"{B.data_path} has changed since it was written (its sha256 differs)"}


@without_the_hub
def test_nothing_but_spec_and_receipts_stays_behind_a_publication(place: Place) -> None:
    place.stage(A, attempt="1-aa")

    place.publish(place.stage(A, attempt="2-bb"))

    attempts = {f".shardsift/{RUN}/receipts/{A.name}/{attempt}.json" for attempt in ("1-aa", "2-bb")}
    assert place.hidden() == {f".shardsift/{RUN}/spec.json", *attempts}


@in_a_folder
@pytest.mark.parametrize("path", [A.data_path, MANIFEST_PATH, CARD_PATH])
def test_a_folder_in_the_place_of_a_file_is_found_and_nothing_is_moved_into_it(place: Place, path: str) -> None:
    place.publish(place.stage(A))
    folder = Path(place.uri) / path
    folder.unlink()
    folder.mkdir()
    receipt = place.stage(A)

    found = place.output.inspect([receipt], hashes=True)
    with pytest.raises(ShardError, match=rf"there is a folder in the place of a file; move it away \({folder}"):
        place.publish(receipt)
    folder.rmdir()  # it is empty
    place.publish(receipt)

    assert [str(finding) for finding in found] == [f"{path} is missing"]
    assert place.output.inspect([receipt], hashes=True) == []


@in_a_folder
def test_finalizers_that_race_make_one_whole_publication(place: Place) -> None:
    receipts = [place.stage(a_shard(f"{number}")) for number in range(30)]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: place.publish(*receipts), range(4)))

    assert place.output.is_published()
    assert len(place.files.visible()) == 62
