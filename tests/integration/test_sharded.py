"""A model that is divided over several devices gives the scores of the undivided one.

Here the devices are the CPU and the disk, or the CPU for each of two ranks; on GPUs only the names of the devices differ.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from transformers import AutoConfig

from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.parity_trial import sample_texts
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.sharded import Sharded, Sharding
from shardsift.worker.scoring.sharded.load import why_not_tensor
from support.families import family_classifier
from support.injected_faults import ROOT, InjectedFaults
from support.large_models import divisible_llama, ranks_of
from support.leftovers import processes_with
from support.models import plain_scorer
from support.waiting import wait_until

RANKS = 2
TOO_LITTLE = {"cpu": "1000KB"}  # for the model, which has 1.1 MB of weights
TEXTS = [*sample_texts(24), "short", "a"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return divisible_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def plain(llama: Path) -> np.ndarray:
    """The scores of the undivided model."""
    return plain_scorer(llama).score(TEXTS).values


@contextmanager
def divided(model: Path, dtype: str, sharding: Sharding) -> Iterator[tuple[SequenceClassifier, Sharded]]:
    scorer = load_classifier(str(model), dtype, device="cpu", sharding=sharding, parity_rows=8)
    assert isinstance(scorer.backend, Sharded)
    try:
        yield scorer, scorer.backend
    finally:
        scorer.backend.close()


def ranks_of_this_process() -> list[psutil.Process]:
    return ranks_of(psutil.Process())


def test_layers_on_cpu_and_disk_give_the_models_own_scores(llama: Path, plain: np.ndarray, tmp_path: Path) -> None:
    sharding = Sharding(devices=2, way="layers", max_memory=TOO_LITTLE, scratch_dir=tmp_path)

    with divided(llama, "float32", sharding) as (scorer, backend):
        scores = scorer.score(TEXTS)

        assert set(backend.padded.model.hf_device_map.values()) == {"cpu", "disk"}
    assert scorer.info.backend == "padded, layers over 2"
    assert np.abs(scores.values - plain).max() <= 1e-5
    assert not list(tmp_path.iterdir())


def test_ranks_give_the_scores_of_the_undivided_model_and_hold_half_its_weights(llama: Path, plain: np.ndarray) -> None:
    of_other_tests = ranks_of_this_process()
    with divided(llama, "float32", Sharding(devices=RANKS)) as (scorer, backend):
        ranks = [rank for rank in ranks_of_this_process() if rank not in of_other_tests]
        scores = scorer.score(TEXTS)

        assert len(ranks) == RANKS - 1
        whole = sum(file.stat().st_size for file in llama.glob("*.safetensors"))
        weights = backend.padded.model.part.saved.model.parameters()
        own = sum((part.to_local() if hasattr(part, "to_local") else part).nbytes for part in weights)
        assert 0.49 <= own / whole <= 0.51
    assert scorer.info.backend == "padded, tensor parallel over 2"
    assert scorer.info.parity.max_error <= 1e-5
    assert np.abs(scores.values - plain).max() <= 1e-5
    assert not any(rank.is_running() for rank in ranks)


def test_without_a_plan_layers_are_divided_as_the_log_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = family_classifier("BERT", tmp_path / "bert")

    with caplog.at_level(logging.INFO), divided(model, "float32", Sharding(devices=RANKS, way="tensor")) as (scorer, _):
        own = plain_scorer(model).score(TEXTS).values
        assert np.abs(scorer.score(TEXTS).values - own).max() <= 1e-5

    assert (
        "divided by layers, not by tensor: transformers has no tensor parallel plan for the family bert" in caplog.text
    )


def test_heads_that_cannot_be_divided_among_the_ranks_are_named(llama: Path) -> None:
    config = AutoConfig.from_pretrained(llama)

    assert why_not_tensor(config, 2, CPU) is None
    assert why_not_tensor(config, 4, CPU) == "its num_key_value_heads of 2 cannot be divided by 4"


@pytest.mark.slow  # it starts three processes that import torch
def test_the_example_divides_a_model_and_leaves_no_rank_behind(llama: Path, tmp_path: Path) -> None:
    faults = InjectedFaults(tmp_path)  # none; by it, `processes_with` knows the processes
    environment = {**os.environ, **faults.environment, "SHARDSIFT_DEVICE": "cpu", "SHARDSIFT_STATE_DIR": str(tmp_path)}

    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(f"Paragraph {number} of this file." for number in range(12)))

    done = subprocess.run(
        [sys.executable, ROOT / "examples/larger_than_a_gpu.py", texts, llama],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    first, *scores = done.stdout.splitlines()
    assert first.endswith("padded, tensor parallel over 2")
    assert len(scores) == 10
    wait_until(lambda: not processes_with(faults.folder), description="the rank is gone")
