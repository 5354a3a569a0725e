"""Real transformers that tests create: tiny random ones within seconds, or MiniLM with a random head."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedModel,
)

from shardsift.fleet.run.model_config import THRESHOLD
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.training.base_model import verified_demo_encoder


def tiny_classifier(folder: Path, *, labels: int = 1, seed: int = 0) -> Path:
    """Save an untrained two-layer BERT of width 32 with MiniLM's tokenizer. Its scores lie on both sides of 3."""
    torch.manual_seed(seed)
    model = with_lively_scores(BertForSequenceClassification(_small_config(layers=2, labels=labels, heads=2)))
    _spread_scores(model, bias=8.0)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(verified_demo_encoder()).save_pretrained(folder)
    return folder


def plain_scorer(model: Path, **options: Any) -> SequenceClassifier:
    """Load a model on the CPU in float32, without a parity trial."""
    return load_classifier(str(model), "float32", **{"device": "cpu", "parity_rows": 0, **options})


def configured(model: Path, file: str = "config.json", **values: Any) -> Path:
    """Change values in one of the folder's JSON files. Returns the folder."""
    config = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps(config | values))
    return model


def with_labels(model: Path, labels: Sequence[str]) -> Path:
    """Name the outputs of the model in this folder. Returns the folder."""
    numbers = {label: number for number, label in enumerate(labels)}
    return configured(model, id2label=dict(enumerate(labels)), label2id=numbers)


def minilm_classifier(folder: Path) -> Path:
    """Save the real MiniLM encoder with a random head. Its scores lie on both sides of 3."""
    torch.manual_seed(0)
    encoder = verified_demo_encoder()
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1)
    _spread_scores(model, bias=3.0)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
    return folder


def with_another_head(model: Path, folder: Path, *, labels: int, pooler: bool = False) -> Path:
    """Save a classifier with the same encoder and another head. With `pooler`, it also has another pooler."""
    torch.manual_seed(labels)
    other = AutoModelForSequenceClassification.from_pretrained(model, num_labels=labels, ignore_mismatched_sizes=True)
    heads = [part for part in other.children() if part is not other.base_model]
    with torch.no_grad():
        for part in [*heads, *([other.base_model.pooler] if pooler else [])]:
            for weights in part.parameters():
                weights.normal_(std=0.5)
    return _saved(other, folder, model)


def three_models(model: Path, folder: Path) -> dict[str, Path]:
    """Save three models: two with the same encoder, and one with another encoder. Returns their folders by name."""
    return {
        "edu": model,
        "tox": with_another_head(model, folder / "tox", labels=3),
        "far": tiny_classifier(folder / "far", labels=2, seed=5),
    }


def overflowing_classifier(folder: Path, model: Path, *, factor: float = 1e5) -> Path:
    """Save a model with the scores of `model`, but with activations beyond 65,504, which float16 cannot represent.

    With the factor 1e4, the tiny classifier has such activations in about half of the texts, and every weight fits in
    float16.
    """
    overflowing = BertForSequenceClassification.from_pretrained(model)
    with torch.no_grad():
        overflowing.bert.encoder.layer[0].intermediate.dense.weight.mul_(factor)
        overflowing.bert.encoder.layer[0].output.dense.weight.div_(factor)
    return _saved(overflowing, folder, model)


EVEN_HEADS = ("fresh", "skewed", "saturated", "constant")


def even_classifier(folder: Path, model: Path, head: str) -> Path:
    """Save a model with newly initialised weights, whose logits hardly differ from text to text.

    `head` is one of EVEN_HEADS.
    """
    torch.manual_seed(1)
    even = BertForSequenceClassification(_small_config(layers=3, labels=1))
    with torch.no_grad():
        even.classifier.bias.fill_({"skewed": 30.0, "saturated": 3.0}.get(head, 0.0))
        even.classifier.weight.mul_({"saturated": 1e-3, "constant": 0.0}.get(head, 1.0))
    return _saved(even, folder, model)


def chaotic_classifier(folder: Path, model: Path) -> Path:
    """Save a model of two classes with large random weights, which magnify rounding errors below float32's precision."""
    torch.manual_seed(2)
    chaotic = BertForSequenceClassification(_small_config(layers=8, labels=2))
    return _saved(with_lively_scores(chaotic, std=2.0), folder, model)


def _small_config(*, layers: int, labels: int, heads: int = 4) -> BertConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": heads}
    return BertConfig(**sizes, num_hidden_layers=layers, num_labels=labels)


def _saved(classifier: PreTrainedModel, folder: Path, model: Path) -> Path:
    classifier.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def with_lively_scores(model: PreTrainedModel, *, std: float = 0.3) -> PreTrainedModel:
    """Enlarge the weights. A newly initialised model gives all texts nearly the same score."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim == 2 and "embeddings" not in name:
                weights.normal_(std=std)
    return model


def _spread_scores(model: BertForSequenceClassification, *, bias: float) -> None:
    """Give the head random weights and this bias, so that the demo's texts score on both sides of 3."""
    with torch.no_grad():
        model.classifier.weight.normal_(std=1.0)
        model.classifier.bias.fill_(bias)
    model.config.update({THRESHOLD: 3.0})
