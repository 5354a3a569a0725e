"""Fit a classification head on a frozen encoder, the recipe of HuggingFaceFW/fineweb-edu-classifier.

Takes texts and labels, writes a model folder. Knows nothing of Parquet, queues or runs.
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

from fleet.errors import UsageError
from worker.scoring.quiet import quiet_transformers

Floats = NDArray[np.float64]
FEWEST_ROWS = 20
STRENGTHS = 10.0 ** np.arange(-4.0, 2.5, 0.5)  # of the ridge, per row


class HeadError(UsageError):
    """No head can be fitted to this encoder or these labels. The message says why."""


@dataclass(frozen=True, kw_only=True)
class HeadReport:
    """How well a head that was fitted without the held-out rows predicts them. The saved head is fitted on all rows."""

    rows: int  # including held-out ones
    seconds: float
    held_out_rows: int
    held_out_accuracy: float  # share of rows whose score and label are on the same side of the threshold
    held_out_mae: float  # mean absolute error, in the unit of the labels


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
    """Fit a regression head to the labels, and save encoder and head at `output`. The encoder's weights do not change.

    `AutoModelForSequenceClassification.from_pretrained(output)` loads the result. On the CPU of one machine, the same
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


def _check_rows(texts: list[str], labels: Floats) -> None:
    if labels.shape != (len(texts),):
        raise HeadError(f"There are {len(texts)} texts but the labels have shape {labels.shape}; give one per text.")
    if len(texts) < FEWEST_ROWS:
        raise HeadError(f"{len(texts)} labelled texts are too few to fit a head; give {FEWEST_ROWS} or more.")
    if not np.isfinite(labels).all():
        raise HeadError(f"Label {int(np.argmin(np.isfinite(labels)))} is not a finite number; leave such rows out.")


def _check_free(output: Path) -> None:
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise HeadError(f"{output} already exists. Name another folder for the model, or remove this one.")


def _load(encoder: str) -> tuple[Any, Any]:
    """The encoder with a new head that can be fitted, and its tokenizer."""
    try:
        with quiet_transformers():
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
            tokenizer = AutoTokenizer.from_pretrained(encoder)
    except (OSError, ValueError) as error:  # what transformers raises for a model that it cannot find or does not know
        reason = " ".join(str(error).split())
        raise HeadError(f"The encoder {encoder} cannot be loaded: {reason}") from error
    _check_head(encoder, model)
    if untrained := sorted(key for key in loading["missing_keys"] if not key.startswith("classifier.")):
        raise HeadError(
            f"{encoder} has no weights for {', '.join(untrained)}, whose output the head of {type(model).__name__} reads. "
            "A head fitted to random weights is useless. Name an encoder that was trained with these layers."
        )
    return model.eval(), tokenizer


def _check_head(encoder: str, model: Any) -> None:
    head = getattr(model, "classifier", None)
    if not (isinstance(head, torch.nn.Linear) and head.out_features == 1 and head.bias is not None):
        found = "no classifier" if head is None else f"a {type(head).__name__} as its classifier"
        raise HeadError(
            f"{encoder} loads as {type(model).__name__}, which has {found}. Only a head that is a single Linear layer "
            "with a bias can be fitted. Name an encoder like BERT."
        )


def _features(model: Any, tokenizer: Any, texts: list[str], *, max_tokens: int, batch_rows: int) -> Floats:
    """The inputs of the head, one row per text. The longest texts run first, so a lack of memory shows at once."""
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
    """Collect the inputs of a layer, independent of the architecture before it."""
    seen: list[torch.Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        hook.remove()


def fit_ridge(features: Floats, labels: Floats) -> tuple[Floats, float]:
    """The weight (in the features' own unit) and bias of a ridge regression.

    The strength is the one with the smallest leave-one-out error. That error has a closed form, the residual divided by
    one minus the leverage (Allen's PRESS), so no rows have to be set aside to choose the strength.
    """
    centre, mean_label = features.mean(axis=0), labels.mean()
    scale = features.std(axis=0)
    scale[scale == 0] = 1.0  # a constant feature gets weight 0
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
    """Write to a folder beside the output, then rename it, so that the output is never incomplete."""
    with torch.no_grad():
        model.classifier.weight.copy_(torch.from_numpy(weight)[None, :])
        model.classifier.bias.fill_(bias)
    partial = output.with_name(f".{output.name}.partial")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        with quiet_transformers():
            model.save_pretrained(partial)
            AutoTokenizer.from_pretrained(encoder).save_pretrained(partial)  # a new one: ours has truncation set
        _let_others_read(partial)
        partial.replace(output)
    except OSError as error:
        raise HeadError(f"The classifier cannot be saved at {output}: {error.strerror or error}.") from error


def _let_others_read(folder: Path) -> None:
    """Make the files readable for others, within the umask.

    safetensors makes its files readable for their owner only, and a worker may run as another user.
    """
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)
