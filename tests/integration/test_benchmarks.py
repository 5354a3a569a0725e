"""The benchmarks run to their end on a few rows, and all contenders give the same scores."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scorer.case import Case, Model, Name
from benchmarks.scorer.compare import Comparison, compare
from benchmarks.scorer.lineup import load_lineup
from benchmarks.scorer.models import read_tokenizer, save_model
from benchmarks.scorer.ours import OurSettings
from benchmarks.scorer.texts import Lengths
from shardsift.worker.training.base_model import verified_demo_encoder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GPU_KIT = ("start", "kernels", "graphs", "sizes", "right", "shards", "two")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Every contender on a few rows."""
    tokenizer = read_tokenizer(verified_demo_encoder())
    model = save_model(Model.TINY, tmp_path_factory.mktemp("models") / "tiny", tokenizer=tokenizer)
    case = Case(model=Model.TINY, lengths=Lengths.FINEWEB, rows=6, repeats=2, contenders=tuple(Name))
    lineup = load_lineup(Name, model, OurSettings())
    return compare(case, lineup, model=model, tokenizer=tokenizer, warmup_rows=2, say=lambda line: None)


def test_all_contenders_give_the_same_scores(measured: Comparison) -> None:
    assert set(measured.entrants) == set(Name) - set(measured.unavailable)
    assert set(measured.unavailable) <= {Name.REFERENCE_16BIT}  # of a CPU that is slow in 16 bits
    for name, entrant in measured.entrants.items():
        assert entrant.max_difference is not None
        allowed = 1e-4 if entrant.dtype == "float32" else 0.2 * measured.score_spread
        assert entrant.max_difference <= allowed, name
    assert measured.score_spread > 0.05


# --- on a GPU, and on a simulated one -------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", GPU_KIT)
def test_each_part_of_the_gpu_kit_runs(part: str, tmp_path: Path) -> None:
    run_module("benchmarks.gpu_kit", part, str(tmp_path), TINY="1")

    found = json.loads((tmp_path / f"gpu-kit-{part}.json").read_text())
    assert len(found) > 2
    assert "failed" not in json.dumps(found)


def test_a_worker_keeps_a_simulated_gpu_busy(tmp_path: Path) -> None:
    """Within a shard, with a graph: 0.996 on a quiet machine. The floor is for one that is not."""
    run_module("benchmarks.device_feed", "--graphed", "--shards", "1", "--windows", "4", "--results", str(tmp_path))

    (file,) = tmp_path.glob("*.json")
    assert json.loads(file.read_text())["busy"] > 0.9


def run_module(*command: str, **environment: str) -> None:
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=os.environ | environment, check=True, timeout=600)
