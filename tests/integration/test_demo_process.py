"""The demo's shards do not depend on the process that writes them."""

import subprocess
import sys
from pathlib import Path

import pytest

from producer.local.demo_data import write_shards


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    (here,) = write_shards(tmp_path / "here", shards=1, rows=20, seed=1)
    script = (
        "import sys, pathlib; from producer.local.demo_data import write_shards;"
        "write_shards(pathlib.Path(sys.argv[1]), shards=1, rows=20, seed=1);"
        "assert not {'torch', 'transformers', 'sklearn', 'sentence_transformers'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", script, str(tmp_path / "there")], check=True, timeout=60)

    assert (tmp_path / "there" / here.name).read_bytes() == here.read_bytes()
