"""torch.compile gives the same scores, or a warning and the same scores. Each test uses a process, which stays compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCORE = """
import json, logging, sys
import torch
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.parity_trial import sample_texts

torch.set_num_threads(1)
scorer = load_classifier(sys.argv[1], "float32", compile=sys.argv[2] == "compiled", parity_rows=0, max_batch_tokens=4096)
values = scorer.score([*sample_texts(8), "", "x"]).values  # one padded batch: each other shape would be compiled again
print(json.dumps({"backend": scorer.backend.name, "scores": values[:, 0].tolist()}))
"""


def scored(model: Path, how: str, **environment: str) -> tuple[dict[str, object], str]:
    done = subprocess.run(
        [sys.executable, "-c", SCORE, str(model), how],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    return json.loads(done.stdout), done.stderr


@pytest.mark.slow
def test_a_compiled_model_gives_its_scores_and_leaves_code_for_the_next_start(tiny_model: Path, tmp_path: Path) -> None:
    plain, _ = scored(tiny_model, "plain")

    compiled, _ = scored(tiny_model, "compiled", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "code"))

    assert (plain["backend"], compiled["backend"]) == ("padded", "padded, compiled")
    assert compiled["scores"] == pytest.approx(plain["scores"], abs=1e-4)
    assert any((tmp_path / "code").rglob("*.so"))


@pytest.mark.slow
def test_without_a_compiler_the_model_runs_uncompiled_with_a_warning(tiny_model: Path, tmp_path: Path) -> None:
    found, said = scored(
        tiny_model, "compiled", CXX="/no/such/compiler", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "code")
    )

    assert found["backend"] == "padded"
    assert "Continuing without torch.compile: " in said
