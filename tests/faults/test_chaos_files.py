"""What storms do to files is what they say: a fault that changed nothing would prove nothing."""

import random
from pathlib import Path

import pytest

from chaos.faults import Kind, Planned
from chaos.files import FileVictim
from producer.demo.shards import write_shards

SHARDS, BEFORE, DURING, AFTER = 4, 0.0, 1.0, 10.0


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    write_shards(tmp_path / "shards", shards=SHARDS, rows=6, seed=1)
    return tmp_path / "shards"


def victim_of(kind: Kind, shards: Path, output: Path, *, seed: int = 1) -> FileVictim:
    planned = Planned(kind=kind, after_seconds=0.5, lasts_seconds=2.0)
    return FileVictim(planned, "run 1", shards, output, random.Random(seed))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def open_shards(shards: Path) -> set[str]:
    return {path.stem for path in shards.glob("*.parquet")}


def test_an_input_is_another_for_a_while_and_then_byte_for_byte_what_it_was(shards: Path, tmp_path: Path) -> None:
    victim = victim_of(Kind.INPUT, shards, tmp_path / "out")
    before = contents(shards)
    names = open_shards(shards)

    early = list(victim.tick(BEFORE, names, lambda: True))
    (fault,) = victim.tick(DURING, names, lambda: True)
    during = {name: content for name, content in contents(shards).items() if name in before}
    late = list(victim.tick(AFTER, names, lambda: True))

    assert early == late == []
    assert {name for name in before if during[name] != before[name]} == {f"{shard}.parquet" for shard in victim.touched}
    assert len(victim.touched) == 1
    assert fault.over_at == AFTER
    assert contents(shards) == before


def test_each_shards_staged_files_are_damaged_once_and_only_while_shards_are_open(shards: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for shard in open_shards(shards):
        staged = output / ".shardsift/a-run/staged/data" / f"{shard}.parquet" / "1-a"
        staged.parent.mkdir(parents=True)
        staged.write_bytes(b"all that a worker made")
    before = contents(output)
    victim = victim_of(Kind.STAGED, shards, output)
    list(victim.tick(BEFORE, open_shards(shards), lambda: True))

    refused = [
        *victim.tick(DURING, open_shards(shards), lambda: False),
        *victim.tick(DURING, {"000_00000"}, lambda: True),
    ]
    untouched = contents(output)
    faults = [fault for now in range(1, 20) for fault in victim.tick(float(now), open_shards(shards), lambda: True)]

    assert refused == []
    assert untouched == before
    assert len(faults) == SHARDS
    after = contents(output)
    assert all(after.get(path) != content for path, content in before.items())


@pytest.mark.parametrize("seed", range(8))
def test_a_published_output_is_damaged_once(seed: int, shards: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for kind in ("data", "scores"):
        (output / kind).mkdir(parents=True)
        for shard in open_shards(shards):
            (output / kind / f"{shard}.parquet").write_bytes(b"published rows")
    (output / "manifest.parquet").write_bytes(b"what is published")
    before = contents(output)
    victim = victim_of(Kind.OUTPUT, shards, output, seed=seed)

    first, second = victim.damage_output(DURING), victim.damage_output(AFTER)

    assert first is not None
    assert second is None
    assert contents(output) != before
