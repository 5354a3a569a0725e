"""Fit the last layer of a classifier to embeddings with scikit-learn. Knows nothing of texts or models."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from worker.training.spec import ClassWeights
from worker.training.targets import Target, Targets

Floats = npt.NDArray[np.float64]
_RIDGE_STRENGTHS = 10.0 ** np.arange(-4.0, 2.5, 0.5)  # per row
_LOGISTIC_STRENGTHS = 10.0 ** np.arange(-4.0, 1.5, 1.0)  # scikit-learn's C: the inverse of a strength
_FOLDS = 5
_MOST_ITERATIONS = 2_000


@dataclass(frozen=True, kw_only=True)
class Head:
    """A linear layer: `weight` of shape (outputs, width), `bias` of shape (outputs,)."""

    weight: Floats
    bias: Floats

    def logits(self, embeddings: npt.NDArray[np.float32]) -> Floats:
        logits: Floats = embeddings @ self.weight.T + self.bias
        return logits


def fit_head(
    embeddings: npt.NDArray[np.float32], targets: Targets, target: Target, class_weights: ClassWeights = "none"
) -> Head:
    """The head that predicts the targets best, by cross-validation over strengths of regularisation."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(embeddings.astype(np.float64))
    features = scaler.transform(embeddings.astype(np.float64))
    if target.is_regression:
        coefficients, intercepts = _ridge(features, targets)
    else:
        coefficients, intercepts = _logistic(features, targets, class_weights)
    weight = coefficients / scaler.scale_
    return Head(weight=weight, bias=intercepts - weight @ scaler.mean_)


def _ridge(features: Floats, targets: Targets) -> tuple[Floats, Floats]:
    """The strength is the one with the smallest leave-one-out error, which has a closed form."""
    from sklearn.linear_model import RidgeCV

    ridge = RidgeCV(alphas=_RIDGE_STRENGTHS * len(targets)).fit(features, targets)
    return ridge.coef_[None, :], np.atleast_1d(ridge.intercept_)


def _logistic(features: Floats, targets: Targets, class_weights: ClassWeights) -> tuple[Floats, Floats]:
    """The strength is the one with the smallest log loss over folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    model = LogisticRegression(
        max_iter=_MOST_ITERATIONS, class_weight="balanced" if class_weights == "balanced" else None
    )
    folds = min(_FOLDS, int(np.bincount(targets.astype(np.int64)).min()))
    if folds < 2:  # a class of one row cannot be in two folds
        return _of_each_class(model.fit(features, targets))
    search = GridSearchCV(
        model,
        {"C": _LOGISTIC_STRENGTHS},
        scoring="neg_log_loss",
        cv=StratifiedKFold(folds, shuffle=True, random_state=0),
    )
    return _of_each_class(search.fit(features, targets).best_estimator_)


def _of_each_class(model: object) -> tuple[Floats, Floats]:
    """scikit-learn has one output for two classes; a sequence classifier has two, whose difference it is."""
    coefficients, intercepts = model.coef_, model.intercept_  # type: ignore[attr-defined]
    if len(coefficients) > 1:
        return coefficients, intercepts
    halves = np.array([-0.5, 0.5])
    return halves[:, None] * coefficients, halves * intercepts
