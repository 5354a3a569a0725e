"""Memory is bounded by the window: a shard ten times as large, or one great row group, needs no more of it.

Each shard is scored in a process of its own, by the real reader, filter, writer and folder output. Only the model and the
lease are stand-ins: they hold no memory that grows with a shard, and a real model would take an hour for these files.
"""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from producer.demo.shards import write_shard_of_size

LARGER = 10
ALL_ROWS = 1_000_000

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc"
)

SCORE = """
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np, pyarrow.parquet as pq
from fleet.columns import describe_columns
from fleet.ledger import Claim
from fleet.shard import Shard
from fleet.storage.identity import identity_now
from fleet.storage.opening import open_output
from support.records import a_spec
from worker.shard.checkpoint import Checkpoint
from worker.scoring import ScorerInfo, Scores
from worker.shard.score_shard import score_shard

source, output = sys.argv[1:]

class LengthScorer:
    info = ScorerInfo()

    def encode(self, texts, place):
        return texts

    def score_encoded(self, texts, go_on, earlier):
        go_on(len(texts))
        return Scores(values=np.array([[len(text) % 6] for text in texts.to_pylist()], dtype=np.float32))

class NoLease:
    def on_batch(self, rows): return True
    def on_window(self): ...
    def on_progress(self): ...
    def check(self): ...

spec = a_spec(columns=describe_columns(pq.read_schema(source)), where="score >= 1", output_uri=output)
spec = replace(spec, window_rows=1000, window_bytes=4 << 20)  # so that the small shard too has windows in every step
shard = Shard(name="s", uri=source, identity=identity_now(source)[0])
claim = Claim(run_id=spec.run_id, shard=shard, spec=spec, token="1-a", attempt=1)
checkpoint = Checkpoint({}, lambda first_row, scores: None)
output = open_output(output, spec.run_id)
receipt = score_shard(claim, [LengthScorer()], NoLease(), checkpoint, output, worker="w", scratch_dir=None)
(peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(receipt.rows_in, peak.split()[1])
"""


@pytest.fixture(scope="module")
def shard_files(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Path]:
    """A shard and one of ten times its rows, each in row groups of 1,000 rows as FineWeb has them, and in one."""
    folder = tmp_path_factory.mktemp("sizes")
    source = folder / "source.parquet"
    write_shard_of_size(source, megabytes=50, seed=1)
    files = {}
    for times in (1, LARGER):
        for row_group_rows in (1000, ALL_ROWS):
            files[times, row_group_rows] = folder / f"{times}-{row_group_rows}.parquet"
            write_repeated(source, files[times, row_group_rows], times=times, row_group_rows=row_group_rows)
    return files


def write_repeated(source: Path, target: Path, *, times: int, row_group_rows: int) -> None:
    rows = pa.concat_tables([pq.read_table(source)] * times)
    pq.write_table(rows, target, row_group_size=row_group_rows, use_dictionary=False)


def peak_megabytes(source: Path, output: Path) -> float:
    """The most memory that a process held which scored this shard; all its rows went through."""
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", SCORE, str(source), str(output)],
        env={"PYTHONPATH": f"{tests.parent}:{tests}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, kilobytes = done.stdout.split()
    assert int(rows) == pq.read_metadata(source).num_rows
    return int(kilobytes) / 1000


@pytest.mark.parametrize("row_group_rows", [1000, pytest.param(ALL_ROWS, marks=pytest.mark.slow)])
def test_peak_memory_does_not_grow_with_the_shard(
    shard_files: dict[tuple[int, int], Path], tmp_path: Path, row_group_rows: int
) -> None:
    sizes = [shard_files[times, row_group_rows] for times in (1, LARGER)]
    small, large = (peak_megabytes(file, tmp_path / file.stem) for file in sizes)
    grown = (sizes[1].stat().st_size - sizes[0].stat().st_size) / 1e6

    assert grown > 50
    assert large - small < grown / 4


def test_one_row_group_is_what_it_says(shard_files: dict[tuple[int, int], Path]) -> None:
    groups = {key: pq.read_metadata(file).num_row_groups for key, file in shard_files.items()}

    assert groups[LARGER, ALL_ROWS] == groups[1, ALL_ROWS] == 1
    assert groups[LARGER, 1000] > 200
