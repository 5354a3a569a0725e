"""Fit the classification head of a frozen encoder, the recipe of HuggingFaceFW/fineweb-edu-classifier.

Knows nothing of Parquet, queues or runs: texts and labels in, a model directory out.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as transformers_logging

Floats = NDArray[np.float64]


class HeadError(ValueError):
    """This encoder or these labels cannot give a head; the message says why."""


@dataclass(frozen=True, kw_only=True)
class HeadReport:
    """How a head fitted without the held-out rows did on them; the saved head is then fitted on all rows."""

    rows: int  # fitted and held out
    seconds: float
    held_out_rows: int
    held_out_accuracy: float  # share of rows that score and label put on the same side of the threshold
    held_out_mae: float  # mean absolute error, in the labels' unit


def fit_head(
    encoder: str,
    texts: list[str],
    labels: Floats,
    output: Path,
    *,
    threshold: float = 3.0,
    max_tokens: int = 512,
    batch_rows: int = 32,
    held_out_share: float = 0.2,
    seed: int = 0,
    device: str = "cpu",
) -> HeadReport:
    """Save at `output` the encoder with a regression head fitted to the labels; the encoder's weights do not change.

    `AutoModelForSequenceClassification.from_pretrained(output)` loads it. On one machine and its CPU the same
    arguments give the same weights, bit for bit. `output` appears whole or not at all, and is never overwritten.
    """
    started = time.monotonic()
    labels = np.asarray(labels, dtype=np.float64)
    _check_rows(texts, labels)
    _check_free(output)

    model, tokenizer = _load(encoder)
    features = _features(model.to(device), tokenizer, texts, max_tokens=max_tokens, batch_rows=batch_rows)
    order = np.random.default_rng(seed).permutation(len(texts))
    held_out, fitted = np.split(order, [max(1, round(held_out_share * len(texts)))])
    weight, bias = fit_ridge(features[fitted], labels[fitted])
    scores = features[held_out] @ weight + bias
    _save(model.cpu(), encoder, *fit_ridge(features, labels), output)

    return HeadReport(
        rows=len(texts),
        seconds=time.monotonic() - started,
        held_out_rows=len(held_out),
        held_out_accuracy=float(np.mean((scores >= threshold) == (labels[held_out] >= threshold))),
        held_out_mae=float(np.mean(np.abs(scores - labels[held_out]))),
    )


FEWEST_ROWS = 20


def _check_rows(texts: list[str], labels: Floats) -> None:
    if labels.shape != (len(texts),):
        raise HeadError(f"There are {len(texts)} texts but the labels have shape {labels.shape}; give one per text.")
    if len(texts) < FEWEST_ROWS:
        raise HeadError(f"{len(texts)} labelled texts are too few to fit a head; give {FEWEST_ROWS} or more.")
    if not np.isfinite(labels).all():
        raise HeadError(f"Label {int(np.argmin(np.isfinite(labels)))} is not a finite number; leave such rows out.")


def _check_free(output: Path) -> None:
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise HeadError(f"{output} already exists. Name another folder for the model, or remove that one.")


def _load(encoder: str) -> tuple[Any, Any]:
    """The encoder with a fresh head, checked to be one that can be fitted; without the library's noise about it."""
    with _quiet_transformers():
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            encoder,
            num_labels=1,
            problem_type="regression",
            id2label={0: "score"},
            label2id={"score": 0},
            ignore_mismatched_sizes=True,  # the head of an encoder that already has one is replaced
            dtype=torch.float32,
            output_loading_info=True,
        )
    _check_head(encoder, model)
    if untrained := sorted(key for key in loading["missing_keys"] if not key.startswith("classifier.")):
        raise HeadError(
            f"{encoder} has no weights for {', '.join(untrained)}, on which the head of {type(model).__name__} stands; "
            "a head fitted on random weights is worth little. Name an encoder that was trained with them."
        )
    return model.eval(), AutoTokenizer.from_pretrained(encoder)


def _check_head(encoder: str, model: Any) -> None:
    head = getattr(model, "classifier", None)
    if not (isinstance(head, torch.nn.Linear) and head.out_features == 1 and head.bias is not None):
        found = "no classifier" if head is None else f"a {type(head).__name__} as its classifier"
        raise HeadError(
            f"{encoder} loads as {type(model).__name__}, which has {found}; only a head that is one Linear layer "
            "with a bias can be fitted here. Name an encoder like BERT's."
        )


def _features(model: Any, tokenizer: Any, texts: list[str], *, max_tokens: int, batch_rows: int) -> Floats:
    """What the model feeds its head, one row a text; longest first, so that a lack of memory shows at once."""
    limit = min(max_tokens, tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", math.inf))
    tokens = tokenizer(texts, truncation=True, max_length=limit, padding=False)
    longest_first = sorted(range(len(texts)), key=lambda row: -len(tokens["input_ids"][row]))
    features = np.empty((len(texts), model.classifier.in_features))
    with _inputs_of(model.classifier) as seen, torch.inference_mode():
        for first in range(0, len(texts), batch_rows):
            rows = longest_first[first : first + batch_rows]
            batch = {name: [values[row] for row in rows] for name, values in tokens.items()}
            model(**tokenizer.pad(batch, return_tensors="pt").to(model.device))
            features[rows] = seen.pop().cpu().numpy()
    return features


@contextmanager
def _inputs_of(layer: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """Collect what a layer is given, whatever the architecture computes before it."""
    seen: list[torch.Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        hook.remove()


STRENGTHS = 10.0 ** np.arange(-4.0, 2.5, 0.5)  # of the ridge, per row


def fit_ridge(features: Floats, labels: Floats) -> tuple[Floats, float]:
    """Weight (in the features' own unit) and bias of the ridge regression that does best on left-out rows.

    Each row is left out once for each strength, in closed form: its error is then the plain residual divided by
    one minus its leverage (Allen's PRESS), so no row has to be given up to choose the strength.
    """
    centre, mean_label = features.mean(axis=0), labels.mean()
    scale = features.std(axis=0)
    scale[scale == 0] = 1.0  # a constant feature says nothing; its weight comes out as 0
    left, singular, right = np.linalg.svd((features - centre) / scale, full_matrices=False)
    projected = left.T @ (labels - mean_label)

    def left_out_error(strength: float) -> float:
        shrink = singular**2 / (singular**2 + strength * len(labels))
        residuals = labels - mean_label - left @ (shrink * projected)
        leverages = left**2 @ shrink + 1 / len(labels)
        return float(np.mean((residuals / (1 - leverages)) ** 2))

    strength = min(STRENGTHS, key=left_out_error)
    weight = right.T @ (singular / (singular**2 + strength * len(labels)) * projected) / scale
    return weight, float(mean_label - centre @ weight)


def _save(model: Any, encoder: str, weight: Floats, bias: float, output: Path) -> None:
    """Write beside the output and rename, so that a folder that is there is whole."""
    with torch.no_grad():
        model.classifier.weight.copy_(torch.from_numpy(weight)[None, :])
        model.classifier.bias.fill_(bias)
    partial = output.with_name(f".{output.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    with _quiet_transformers():
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(encoder).save_pretrained(partial)  # ours has our truncation set by now
    _let_others_read(partial)
    partial.replace(output)


def _let_others_read(folder: Path) -> None:
    """As far as the umask does: safetensors writes its files for their owner alone, and a worker may be another user."""
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars, nor the report that the head is new: that is what we are here for."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
