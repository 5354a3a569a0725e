"""Classifiers that ask for code from the Hub give the scores of that code, which is never run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer, PreTrainedConfig

from shardsift.fleet.scorers.sequence_classifier import resolve_classifier
from shardsift.worker.scoring import ModelError, Reading
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.models import configured
from support.repositories import REPOSITORIES, Repository

pytestmark = pytest.mark.usefixtures("one_thread")
MOST_TOKENS = {"nvidia": 1_024, "WebOrganizer": 8_192, "EuroFilter": 512}  # what the recipes read at most
TEXTS = [
    "Light becomes sugar.",
    "Buy now!",
    "  ",
    "日本の首都は東京です。" * 9,
    "A sentence of some words that repeats. " * 40,
]


has_gte = pytest.mark.skipif(
    not hasattr(transformers, "GteForSequenceClassification"), reason="transformers has no gte"
)


@pytest.fixture(scope="module", params=["nvidia", pytest.param("WebOrganizer", marks=has_gte), "EuroFilter"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def repository(kind: str) -> Repository:
    return REPOSITORIES[kind]


@pytest.fixture(scope="module")
def folder(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    repository.save(folder)
    for code in ("modeling.py", "configuration.py", "modeling_custom.py"):
        (folder / code).write_text('raise RuntimeError("code from the Hub was run")\n')
    return folder


@pytest.fixture(scope="module")
def classifier(folder: Path) -> SequenceClassifier:
    return load_classifier(str(folder), "float32", device="cpu", parity_rows=4)


def reference(kind: str, folder: Path) -> np.ndarray[Any, Any]:
    repository = REPOSITORIES[kind]
    tokenizer = AutoTokenizer.from_pretrained(folder, config=PreTrainedConfig())
    ids = tokenizer(TEXTS, truncation=True, max_length=MOST_TOKENS[kind])["input_ids"]
    return torch.stack([repository.logits(folder, one) for one in ids]).numpy()


def test_logits_are_those_of_the_repositorys_code(kind: str, folder: Path, classifier: SequenceClassifier) -> None:
    scores = classifier.score(TEXTS)

    assert not scores.errors
    assert scores.values == pytest.approx(reference(kind, folder), abs=1e-4)
    assert classifier.info.parity.max_error < 1e-4


def test_both_sides_name_the_same_outputs(repository: Repository, folder: Path, classifier: SequenceClassifier) -> None:
    model = resolve_classifier(str(folder), None)

    assert model.labels == repository.labels
    assert model.function == ("softmax" if len(repository.labels) > 1 else "none")
    assert classifier.outputs == len(repository.labels)


def test_the_recipes_length_can_be_read(kind: str, classifier: SequenceClassifier) -> None:
    assert classifier.reading(Reading(max_tokens=MOST_TOKENS[kind]))
    with pytest.raises(ModelError, match=f"to {MOST_TOKENS[kind]} tokens"):
        classifier.reading(Reading(max_tokens=MOST_TOKENS[kind] + 1))


@has_gte
class TestWhatIsNotSupported:
    def changed(self, kind: str, folder: Path, **changes: Any) -> str:
        REPOSITORIES[kind].save(folder)
        return str(configured(folder, **changes))

    @pytest.mark.parametrize(
        ("kind", "changes", "says"),
        [
            ("nvidia", {"base_model": "me/backbone"}, "its backbone 'me/backbone' is not known"),
            ("WebOrganizer", {"layer_norm_type": "rms_norm"}, "layer_norm_type='rms_norm'.*'layer_norm' only"),
            ("WebOrganizer", {"rope_scaling": {"type": "yarn", "factor": 2}}, "only ntk is supported"),
            ("WebOrganizer", {"num_hidden_layers": 3}, "no trained classification head"),
        ],
    )
    def test_a_variant_that_is_not_supported_is_refused_with_the_reason(
        self, kind: str, changes: dict[str, Any], says: str, tmp_path: Path
    ) -> None:
        with pytest.raises(ModelError, match=says):
            load_classifier(self.changed(kind, tmp_path, **changes), device="cpu")

    def test_rotary_positions_without_scaling_are_supported(self, tmp_path: Path) -> None:
        folder = self.changed("WebOrganizer", tmp_path, rope_scaling=None)

        assert load_classifier(folder, "float32", device="cpu", parity_rows=0).outputs == 3
