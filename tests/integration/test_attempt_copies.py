"""Attempts at a training copy checkpoints to one place: each begins with the newest, and none harms those of a later one."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import fsspec
import pytest

from fleet.errors import ShardError, TransientError, UsageError
from support.dying_storage import dies_after
from worker.training.attempt_checkpoints import AttemptCheckpoints, attempt_checkpoints, drop_local
from worker.training.attempt_copies import AttemptCopies
from worker.training.attempt_name import AttemptName

TRAINING, OTHER = "train-model.0123456789ab", "train-other.ba9876543210"
DESCRIPTION = {"seed": 0}
_numbers = count()


@pytest.fixture
def bucket() -> Iterator[str]:
    uri = f"memory://attempts-{next(_numbers)}"
    yield uri
    files = fsspec.filesystem("memory")
    if files.exists(uri):
        files.rm(uri, recursive=True)


class Attempt:
    """An attempt on a machine of its own, which holds some checkpoints."""

    def __init__(self, bucket: str, folder: Path, token: str, *, data: str = "a", training: str = TRAINING) -> None:
        self.name = AttemptName.of(training, data_identity=data, token=token)
        self.copies = AttemptCopies(bucket, self.name)
        self.folder = folder / str(self.name)
        self.folder.mkdir(parents=True)

    def begin(self) -> list[int]:
        """Returns the steps of the checkpoints that it begins with."""
        self.copies.claim(DESCRIPTION)
        self.copies.fetch(self.folder)
        return self.steps

    def save(self, step: int, *, best: int | None = None) -> None:
        """Keeps the newest and the best, as the Trainer does."""
        checkpoint = self.folder / f"checkpoint-{step}"
        checkpoint.mkdir()
        for name in ("model.safetensors", "optimizer.pt", "trainer_state.json"):
            (checkpoint / name).write_text(f"{step} of {self.name}")
        for old in set(self.steps) - {step, best}:
            shutil.rmtree(self.folder / f"checkpoint-{old}")

    def copy(self, step: int, *, best: int | None = None) -> None:
        self.save(step, best=best)
        self.copies.push(self.folder)

    @property
    def steps(self) -> list[int]:
        return sorted(int(path.name.removeprefix("checkpoint-")) for path in self.folder.glob("checkpoint-*"))


Begin = Callable[..., Attempt]


@pytest.fixture
def attempt(bucket: str, tmp_path: Path) -> Begin:
    def begin(token: str, **others: str) -> Attempt:
        return Attempt(bucket, tmp_path, token, **others)

    return begin


def files_in(bucket: str) -> list[str]:
    return [path for path in fsspec.filesystem("memory").find(bucket) if "checkpoint-" in path]


def test_an_attempt_begins_with_the_newest_copies_of_any_attempt(attempt: Begin) -> None:
    first, second = attempt("1-aa"), attempt("2-bb")
    first.begin()
    first.copy(4)
    first.copy(8, best=4)
    assert second.begin() == [4, 8]
    second.copy(12, best=4)

    third = attempt("3-cc")

    assert third.begin() == [4, 12]
    assert (third.folder / "checkpoint-12" / "model.safetensors").read_text() == f"12 of {second.name}"


def test_copies_of_earlier_attempts_go_when_a_later_one_has_newer_ones(attempt: Begin, bucket: str) -> None:
    first, second = attempt("1-aa"), attempt("2-bb")
    first.begin()
    first.copy(4)
    second.begin()
    assert files_in(bucket) != []
    assert all(str(first.name) in path for path in files_in(bucket))

    second.copy(8)

    assert all(str(second.name) in path for path in files_in(bucket))


def test_an_attempt_that_comes_back_harms_nothing_of_a_later_one(attempt: Begin, bucket: str) -> None:
    late, living = attempt("1-aa"), attempt("2-bb")
    late.begin()
    late.copy(4)
    living.begin()
    living.copy(8, best=4)
    before = {path for path in files_in(bucket) if str(living.name) in path}

    late.copy(8)  # it has not noticed yet that its lease is lost
    late.copy(12)
    late.copies.withdraw()

    assert before <= set(files_in(bucket))
    third = attempt("3-cc")
    assert third.begin() == [12]  # a checkpoint of the same training, and whole


def test_an_attempt_that_lost_its_lease_leaves_what_the_next_one_goes_on_from(attempt: Begin) -> None:
    late, living = attempt("1-aa"), attempt("2-bb")
    late.begin()
    late.copy(8)
    living.begin()

    late.copies.withdraw()  # the living one has copied nothing yet

    assert attempt("3-cc").begin() == [8]


def test_an_attempt_that_lost_its_lease_removes_what_a_later_one_has_too(attempt: Begin, bucket: str) -> None:
    late, living = attempt("1-aa"), attempt("2-bb")
    late.begin()
    late.copy(4)
    living.begin()
    living.copy(12)
    late.save(8)
    late.copies.push(late.folder)

    late.copies.withdraw()

    assert all(str(living.name) in path for path in files_in(bucket))


def test_copies_of_other_data_and_of_another_training_are_not_used(attempt: Begin) -> None:
    for other in (attempt("1-aa", data="b"), attempt("1-aa", training=OTHER)):
        other.begin()
        other.copy(4)

    assert attempt("2-bb").begin() == []


def test_copies_of_another_base_model_are_one_clear_error(attempt: Begin) -> None:
    first, second = attempt("1-aa"), attempt("2-bb")
    first.begin()
    first.copy(4)
    second.copies.claim({"seed": 1})

    with pytest.raises(UsageError, match="are of another training: seed was 0, is 1"):
        second.copies.fetch(second.folder)


def test_a_damaged_copy_is_not_used(attempt: Begin, bucket: str) -> None:
    first, second = attempt("1-aa"), attempt("2-bb")
    first.begin()
    first.copy(4)
    second.begin()
    second.copy(8, best=4)
    fsspec.filesystem("memory").pipe_file(f"{bucket}/{second.name}/checkpoint-8/optimizer.pt", b"damaged")

    assert attempt("3-cc").begin() == [4]


def test_the_end_of_a_training_removes_its_copies_and_nothing_else(attempt: Begin, bucket: str) -> None:
    for one in (attempt("1-aa"), attempt("2-bb", data="b"), attempt("3-cc", training=OTHER)):
        one.begin()
        one.copy(4)
    fsspec.filesystem("memory").pipe_file(f"{bucket}/notes.txt", b"mine")

    attempt("4-dd").copies.drop()

    left = fsspec.filesystem("memory").ls(bucket, detail=False)
    assert {Path(path).name for path in left} == {
        "notes.txt",
        str(AttemptName.of(OTHER, data_identity="a", token="3-cc")),
    }


def test_an_attempt_may_die_between_any_two_changes(
    attempt: Begin, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next one begins with is whole, and never older than what was there."""
    first = attempt("1-aa")
    first.begin()
    first.copy(4)
    first.copy(8, best=4)
    second = attempt("2-bb")
    second.begin()
    second.save(12, best=4)

    for changes in range(60):
        dies_after(monkeypatch, changes)
        with suppress(ShardError):
            second.copies.push(second.folder)
        monkeypatch.undo()
        found = attempt(f"3-{changes:04x}").begin()
        assert found in ([4, 8], [4, 12])
        if found == [4, 12] and not any(str(first.name) in path for path in files_in(bucket)):
            break
    assert 5 < changes < 59


def a_name(training: str, token: str) -> AttemptName:
    return AttemptName.of(training, data_identity="a", token=token)


def test_what_no_attempt_needs_is_deleted_here_and_its_age_is_that_of_the_newest_file(tmp_path: Path) -> None:
    done = attempt_checkpoints(None, a_name(TRAINING, "1-aa"), tmp_path).take_over()
    (done / "checkpoint-4").mkdir(parents=True)
    other = attempt_checkpoints(None, a_name(OTHER, "1-aa"), tmp_path).take_over()
    other.mkdir()
    for path in (done / "checkpoint-4", done, done.parent):
        os.utime(path, (0, 0))
    ages: dict[str, float] = {}

    def is_needed(digits: str, unused_seconds: float) -> bool:
        ages[digits] = unused_seconds
        return digits != a_name(TRAINING, "1-aa").training

    drop_local(tmp_path, is_needed)

    assert not done.parent.exists()
    assert other.exists()
    assert ages[a_name(TRAINING, "1-aa").training] > 1e9
    assert ages[a_name(OTHER, "1-aa").training] < 3600
    assert other.parents[1].stat().st_mode & 0o077 == 0


def test_a_scratch_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    attempt_checkpoints(None, a_name(TRAINING, "1-aa"), tmp_path)
    (folder,) = tmp_path.iterdir()
    folder.chmod(0o777)

    with pytest.raises(TransientError, match="others can write to it. Set SHARDSIFT_SCRATCH_DIR"):
        attempt_checkpoints(None, a_name(TRAINING, "2-bb"), tmp_path)


def in_shared_folder(tmp_path: Path, token: str) -> AttemptCheckpoints:
    return attempt_checkpoints(str(tmp_path / "shared"), a_name(TRAINING, token), None)


def test_checkpoints_in_a_shared_folder_stay_until_another_attempt_has_taken_them(tmp_path: Path) -> None:
    """They also stay if the lease is lost because the training has failed: `producer retry` goes on from them."""
    late = in_shared_folder(tmp_path, "1-aa")
    (late.take_over() / "checkpoint-4").mkdir(parents=True)

    late.withdraw(is_done=False)

    assert (in_shared_folder(tmp_path, "2-bb").take_over() / "checkpoint-4").is_dir()


def test_what_an_attempt_has_written_after_another_took_over_is_removed(tmp_path: Path) -> None:
    late, living = in_shared_folder(tmp_path, "1-aa"), in_shared_folder(tmp_path, "2-bb")
    (late.take_over() / "checkpoint-4").mkdir(parents=True)
    living.take_over()
    (late.folder / "checkpoint-8").mkdir(parents=True)

    late.withdraw(is_done=False)

    assert not late.folder.exists()
    assert (living.folder / "checkpoint-4").is_dir()


def test_what_an_attempt_has_written_after_the_end_is_removed(tmp_path: Path) -> None:
    late = in_shared_folder(tmp_path, "1-aa")
    (late.take_over() / "checkpoint-8").mkdir(parents=True)

    late.withdraw(is_done=True)

    assert not late.folder.exists()


def test_a_listing_writes_no_file_outside_of_its_checkpoint(tmp_path: Path) -> None:
    bucket, disk = tmp_path / "bucket", tmp_path / "disk"
    first = Attempt(f"file://{bucket}", disk, "1-aa")
    first.begin()
    first.copy(4)
    (bucket / "mine.txt").write_bytes(b"theirs")
    listing = {"../../mine.txt": hashlib.sha256(b"theirs").hexdigest()}
    (bucket / str(first.name) / "checkpoint-4.json").write_text(json.dumps(listing))

    assert Attempt(f"file://{bucket}", disk, "2-bb").begin() == []
    assert not (disk / "mine.txt").exists()
