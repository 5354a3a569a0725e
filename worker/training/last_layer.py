"""Train only the last layer of a model, as for HuggingFaceFW/fineweb-edu-classifier.

Everything before the last layer is frozen, so each text goes through the model once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.spec import WINDOW_ROWS
from shardsift.worker.scoring import Reading
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.saved_model import SavedModel
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.training.base_model import Trained, head_of, load_base
from shardsift.worker.training.labelled import Split, Target, Targets
from shardsift.worker.training.train_options import TrainOptions

Embeddings = NDArray[np.float32]  # shape (rows, width): inputs of the last layer
Doubles = NDArray[np.float64]
_RIDGE_STRENGTHS = 10.0 ** np.arange(-4.0, 2.5, 0.5)  # per row
_LOGISTIC_STRENGTHS = 10.0 ** np.arange(-4.0, 1.5, 1.0)  # scikit-learn's C: the inverse of a strength
_FOLDS = 5
_MOST_ITERATIONS = 2_000


@dataclass(frozen=True, kw_only=True)
class Head:
    """A linear layer: `weight` of shape (outputs, width), `bias` of shape (outputs,)."""

    weight: Doubles
    bias: Doubles

    def logits(self, embeddings: Embeddings) -> Doubles:
        logits: Doubles = embeddings @ self.weight.T + self.bias
        return logits


def train_last_layer(options: TrainOptions, split: Split, *, device: str, say: Callable[[str], None]) -> Trained:
    """Train the last layer twice: a layer fitted without the held-out rows is measured, and one fitted to all is saved.

    With separate validation rows, the layer is fitted once, then measured and saved. On the CPU of one machine, the
    same options and files give the same weights, bit for bit.
    """
    embedder = _embedder(options, split.target, device)
    began = time.monotonic()
    texts = pa.concat_arrays([split.learned.texts, split.held_out.texts])
    embeddings = _embeddings(texts, embedder, options.max_tokens, say)
    seconds = time.monotonic() - began
    learned, held_out = np.split(embeddings, [len(split.learned)])
    head = fit_head(learned, split.learned.targets, split.target)
    final = head
    if options.validation is None:
        targets = np.concatenate([split.learned.targets, split.held_out.targets])
        final = fit_head(embeddings, targets, split.target)
    return Trained(
        base=_with_head(load_base(options, split.target), final),
        held_out_logits=head.logits(held_out),
        rows_per_second=len(texts) / seconds,
        device=embedder.info.device,
        dtype=embedder.info.dtype,
    )


def _embedder(options: TrainOptions, target: Target, device: str) -> SequenceClassifier:
    def without_head() -> SavedModel:
        base = load_base(options, target)
        head = head_of(base.model)
        width = base.model.get_submodule(head).in_features
        base.model.set_submodule(head, torch.nn.Identity())
        return replace(base, outputs=width)

    return load_classifier(options.base_model, options.dtype, device=device, load=without_head)


def _embeddings(
    texts: pa.LargeStringArray, embedder: SequenceClassifier, max_tokens: int | None, say: Callable[[str], None]
) -> Embeddings:
    """Embed texts in windows, to limit the memory for tokens. Raises UsageError for a text that cannot be embedded."""
    scorer = embedder.reading(Reading(max_tokens=max_tokens)) if max_tokens else embedder
    assert isinstance(scorer, SequenceClassifier)  # for mypy
    windows = []
    for start in range(0, len(texts), WINDOW_ROWS):
        window = scorer.score(texts[start : start + WINDOW_ROWS])
        for row, reason in window.errors.items():
            raise UsageError(f"Labelled text {start + row} has no embedding: {reason}. Leave such rows out.")
        windows.append(window.values)
        say(f"{counted(min(start + WINDOW_ROWS, len(texts)), 'text')} of {len(texts):,} embedded")
    return np.concatenate(windows)


def fit_head(embeddings: Embeddings, targets: Targets, target: Target) -> Head:
    """Fit a last layer to the embeddings. Cross-validation chooses the strength of regularisation."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(embeddings.astype(np.float64))
    features = scaler.transform(embeddings.astype(np.float64))
    if target.is_regression:
        coefficients, intercepts = _ridge(features, targets)
    else:
        coefficients, intercepts = _logistic(features, targets)
    weight = coefficients / scaler.scale_
    return Head(weight=weight, bias=intercepts - weight @ scaler.mean_)


def _ridge(features: Doubles, targets: Targets) -> tuple[Doubles, Doubles]:
    """Fit a ridge regression, with the regularisation that has the smallest leave-one-out error (in closed form)."""
    from sklearn.linear_model import RidgeCV

    ridge = RidgeCV(alphas=_RIDGE_STRENGTHS * len(targets)).fit(features, targets)
    return ridge.coef_[None, :], np.atleast_1d(ridge.intercept_)


def _logistic(features: Doubles, targets: Targets) -> tuple[Doubles, Doubles]:
    """Fit a logistic regression, with the regularisation that has the smallest log loss in cross-validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    model = LogisticRegression(max_iter=_MOST_ITERATIONS)
    folds = min(_FOLDS, int(np.bincount(targets.astype(np.int64)).min()))
    if folds < 2:  # a class has only one row, which cannot be in two folds
        return _of_each_class(model.fit(features, targets))
    search = GridSearchCV(
        model,
        {"C": _LOGISTIC_STRENGTHS},
        scoring="neg_log_loss",
        cv=StratifiedKFold(folds, shuffle=True, random_state=0),
    )
    return _of_each_class(search.fit(features, targets).best_estimator_)


def _of_each_class(model: object) -> tuple[Doubles, Doubles]:
    """Return the coefficients and intercepts of a fitted model, with one output per class.

    For two classes, scikit-learn has a single output: the difference of the two that are returned here.
    """
    coefficients, intercepts = model.coef_, model.intercept_  # type: ignore[attr-defined]
    if len(coefficients) > 1:
        return coefficients, intercepts
    halves = np.array([-0.5, 0.5])
    return halves[:, None] * coefficients, halves * intercepts


def _with_head(base: SavedModel, head: Head) -> SavedModel:
    layer = base.model.get_submodule(head_of(base.model))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(head.weight))
        layer.bias.copy_(torch.from_numpy(head.bias))
    return base
