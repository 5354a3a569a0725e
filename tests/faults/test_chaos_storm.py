"""A storm is what it says: a seed is one schedule, and the faults of files really change them."""

import random
from itertools import islice
from pathlib import Path

import pytest

from chaos.events import Event, work
from chaos.faults import Kind, Planned, Schedule
from chaos.files import FileVictim
from producer.local.demo_data import write_shards

SHARDS, BEFORE, DURING, AFTER = 4, 0.0, 1.0, 10.0


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    write_shards(tmp_path / "shards", shards=SHARDS, rows=6, seed=1)
    return tmp_path / "shards"


def victim_of(shards: Path, output: Path, *kinds: Kind, output_faults: int = 0, seed: int = 1) -> FileVictim:
    faults = (Planned(kind=kind, after_seconds=0.5, lasts_seconds=2.0) for kind in kinds)
    return FileVictim("run 1", shards, output, faults, output_faults=output_faults, rng=random.Random(seed))


def always(_: Kind) -> bool:
    return True


def never(_: Kind) -> bool:
    return False


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def open_shards(shards: Path) -> set[str]:
    return {path.stem for path in shards.glob("*.parquet")}


def test_a_seed_is_a_schedule_and_another_seed_another() -> None:
    first, again, other = (list(islice(Schedule(seed, lease_seconds=2).of_worker("w1"), 50)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_rows_scored_again_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "work.log"
    log.write_text("9.1 11 2 aa,bb\n9.2 11 2 cc,dd\n13.1 21 2 cc,dd\n13.2 21 2 ee,ff\n")
    events = [
        Event(at=at, what="claim", pid=pid, parent=1, run="run", shard="a") for at, pid in ((9.0, 11), (13.0, 21))
    ]

    found = work(log, events)

    assert (found.scored, found.redone) == (8, 2)


def test_each_shards_staged_files_are_damaged_once_and_only_while_shards_are_open(shards: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for shard in open_shards(shards):
        staged = output / ".shardsift/a-run/staged/data" / f"{shard}.parquet" / "1-a"
        staged.parent.mkdir(parents=True)
        staged.write_bytes(b"all that a worker made")
    before = contents(output)
    victim = victim_of(shards, output, *[Kind.STAGED] * 20)
    list(victim.tick(BEFORE, open_shards(shards), always))

    refused = [
        *victim.tick(DURING, open_shards(shards), never),
        *victim.tick(DURING, {"000_00000"}, always),
    ]
    untouched = contents(output)
    faults = [fault for now in range(1, 20) for fault in victim.tick(float(now), open_shards(shards), always)]

    assert refused == []
    assert untouched == before
    assert len(faults) == SHARDS
    after = contents(output)
    assert all(after.get(path) != content for path, content in before.items())


def test_inputs_are_replaced_one_at_a_time_and_each_once(shards: Path, tmp_path: Path) -> None:
    victim = victim_of(shards, tmp_path / "out", *[Kind.INPUT] * 40)
    before = contents(shards)
    names = open_shards(shards)

    replaced = []
    for now in range(60):
        for fault in victim.tick(float(now), names, always):
            replaced.append(fault)
            assert not victim.is_input_whole
            changed = {name for name, content in contents(shards).items() if before.get(name, content) != content}
            assert len(changed) == 1
        if now == 2:
            assert len(replaced) == 1

    assert len(replaced) == SHARDS
    assert victim.touched == names
    assert victim.is_input_whole
    assert contents(shards) == before


@pytest.mark.parametrize("seed", range(8))
def test_a_published_output_is_damaged_as_often_as_it_should_be(seed: int, shards: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    victim = victim_of(shards, output, output_faults=2, seed=seed)

    for _ in range(2):
        before = publish(output, open_shards(shards))
        assert victim.damage_output(DURING) is not None
        assert contents(output) != before

    assert victim.damage_output(AFTER) is None


def publish(output: Path, names: set[str]) -> dict[str, bytes]:
    for kind in ("data", "scores"):
        (output / kind).mkdir(parents=True, exist_ok=True)
        for shard in names:
            (output / kind / f"{shard}.parquet").write_bytes(b"published rows")
    (output / "manifest.parquet").write_bytes(b"what is published")
    return contents(output)
