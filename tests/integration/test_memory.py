"""Memory is bounded by the window: a shard ten times as large, or with one huge row group, needs no more.

Each shard is scored in a separate process, with the real reader, filter, writer and folder output. Only the model and the
lease are replaced: their memory does not grow with a shard, and a real model would need an hour for these files.
"""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.inputs.open_input import open_input
from shardsift.producer.local.demo_data import write_shards
from support.line_files import write_csv, write_json_lines

LARGER = 10
ALL_ROWS = 1_000_000
SMALL_MEGABYTES = 50

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc"),
    pytest.mark.slow,  # files of half a gigabyte
]

SCORE = """
import sys
from pathlib import Path
import numpy as np
from support.scored_alone import score_alone
from shardsift.worker.scoring import ScorerInfo, Scores

class LengthScorer:
    info = ScorerInfo()

    def encode(self, texts):
        return texts

    def score_encoded(self, texts, go_on, earlier):
        go_on(len(texts))
        return Scores(values=np.array([[len(text) % 6] for text in texts.to_pylist()], dtype=np.float32))

small = {"window_rows": 1000, "window_bytes": 4 << 20}  # so that the small shard too has windows in every step
receipt = score_alone(Path(sys.argv[1]), Path(sys.argv[2]), LengthScorer(), where="score >= 1", **small)
(peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(receipt.rows_in, peak.split()[1])
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sizes")
    (part,) = write_shards(folder / "part", shards=1, rows=2_000, seed=1)
    rows = pq.read_table(part)
    file = folder / "source.parquet"
    with file.open("wb") as raw, pq.ParquetWriter(raw, rows.schema, use_dictionary=False) as writer:
        while raw.tell() < SMALL_MEGABYTES * 1e6:
            writer.write_table(rows, row_group_size=1_000)
    return file


def peak_megabytes(source: Path, output: Path) -> float:
    """The peak memory of a process that scores this shard, and checks that all rows were scored."""
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
    with open_input(str(source)) as file:
        assert int(rows) == file.count_rows()
    return int(kilobytes) / 1000


@pytest.mark.parametrize("row_group_rows", [1000, ALL_ROWS], ids=["row groups as FineWeb has them", "one row group"])
def test_peak_memory_does_not_grow_with_the_shard(source: Path, tmp_path: Path, row_group_rows: int) -> None:
    files = (tmp_path / "small.parquet", tmp_path / "large.parquet")
    for file, times in zip(files, (1, LARGER), strict=True):
        rows = pa.concat_tables([pq.read_table(source)] * times)
        pq.write_table(rows, file, row_group_size=row_group_rows, use_dictionary=False)

    small, large = (peak_megabytes(file, tmp_path / file.stem) for file in files)

    grown = (files[1].stat().st_size - files[0].stat().st_size) / 1e6
    assert grown > 50
    assert large - small < grown / 4
    groups = [pq.read_metadata(file).num_row_groups for file in files]
    assert groups == [1, 1] if row_group_rows == ALL_ROWS else groups[1] > 200


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.zst", ".csv.gz"])
def test_peak_memory_does_not_grow_with_a_file_of_lines(source: Path, tmp_path: Path, ending: str) -> None:
    rows = pq.read_table(source).to_pylist()
    small, large = tmp_path / f"small{ending}", tmp_path / f"large{ending}"
    if ".csv" in ending:
        header = write_csv(tmp_path / f"header{ending}", rows[:1]).read_bytes()
        content = write_csv(tmp_path / f"body{ending}", rows, header=False).read_bytes()
        small.write_bytes(header + content)
        large.write_bytes(header + content * LARGER)
    else:
        content = write_json_lines(small, rows).read_bytes()
        large.write_bytes(content * LARGER)  # of one file; of several frames if it is compressed

    peaks = [peak_megabytes(file, tmp_path / file.stem) for file in (small, large)]

    assert peaks[1] - peaks[0] < SMALL_MEGABYTES
