"""A shard that is given up says why, and leaves neither output nor scratch files."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardsift.fleet.errors import LeaseLost, ShardError, TransientError
from shardsift.fleet.ledger import Ledger
from shardsift.producer.local.demo_data import write_shards
from support.claimed_shards import Office
from support.waiting import wait_until


def test_a_lost_lease_ends_the_shard_with_nothing_published(ledger: Ledger, office: Office, shards: Path) -> None:
    desk = office.claim(shards)
    office.taken_over(desk.claim)

    with desk.lease:
        wait_until(lambda: not desk.lease.on_batch(0), description="the lease is noticed to be lost", seconds=20)
        with pytest.raises(LeaseLost, match="another attempt took it over"):
            desk.work_under_the_lease()

    assert desk.produced() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 kB; only root can mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if not mount:
        pytest.skip("there is no mount program here")
    mounted = subprocess.run([mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user cannot mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_transient_and_says_what_to_do(office: Office, small_disk: Path, tmp_path: Path) -> None:
    write_shards(tmp_path / "in", shards=1, rows=300, seed=2)
    desk = office.claim(tmp_path / "in", scratch=small_disk)

    with pytest.raises(TransientError, match="no space left.*SHARDSIFT_SCRATCH_DIR"):
        desk.work()

    assert desk.produced() == []


def test_a_filter_that_fails_on_a_rows_value_fails_the_shard_with_the_reason(office: Office, shards: Path) -> None:
    desk = office.claim(shards, where="CAST(url AS INTEGER) > 0")

    with pytest.raises(ShardError, match=r'Shard 000_00000: The filter "CAST\(url AS INTEGER\) > 0" cannot be used'):
        desk.work()

    assert desk.produced() == []
