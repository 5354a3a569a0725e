"""Scratch folders of dead processes are removed, and never one that is in use or just being made."""

import threading
from pathlib import Path

import pytest

from shardsift.fleet.errors import TransientError
from shardsift.fleet.storage.scratch import remove_abandoned, scratch_folder


def test_a_folder_that_is_being_made_while_a_worker_starts_stays(tmp_path: Path) -> None:
    is_over = threading.Event()

    def start_workers() -> None:
        while not is_over.is_set():
            remove_abandoned(tmp_path)

    starting = threading.Thread(target=start_workers)
    starting.start()
    lost = 0
    for _ in range(500):
        with scratch_folder(tmp_path) as folder:
            lost += not folder.is_dir()
    is_over.set()
    starting.join()

    assert lost == 0


def test_a_place_that_cannot_be_used_is_named_with_its_setting(tmp_path: Path) -> None:
    told = pytest.raises(TransientError, match="nope cannot be used .* name another with SHARDSIFT_SCRATCH_DIR")
    with told, scratch_folder(tmp_path / "nope"):
        pass


def test_the_folder_of_a_process_that_has_ended_is_removed(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as used:
        dead = tmp_path / used.name.replace("scratch-", "scratch-dead")
        dead.mkdir()
        (dead / "lock").touch()

        remove_abandoned(tmp_path)

        assert used.is_dir()
        assert not dead.exists()
