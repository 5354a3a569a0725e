"""Activations turn stored logits into the same scores on every CPU."""

import math

import numpy as np

from shardsift.worker.scoring import apply

LOGITS = np.random.default_rng(1).normal(scale=6, size=(20_000, 2)).astype(np.float32)


def test_a_sigmoid_is_the_exact_one_rounded_once() -> None:
    expected = [[1 / (1 + math.exp(-logit)) for logit in row] for row in LOGITS.tolist()]

    scores = apply("sigmoid", LOGITS)

    assert scores.dtype == np.float32
    assert np.array_equal(scores, np.array(expected).astype(np.float32))


def test_a_softmax_is_the_exact_one_rounded_once() -> None:
    powers = np.array([[math.exp(logit - max(row)) for logit in row] for row in LOGITS.tolist()])

    scores = apply("softmax", LOGITS)

    assert scores.dtype == np.float32
    assert np.array_equal(scores, (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32))


def test_extreme_logits_have_the_scores_of_the_limit() -> None:
    extremes = np.array([[-1e30, 1e30]], np.float32)

    assert apply("sigmoid", extremes).tolist() == apply("softmax", extremes).tolist() == [[0, 1]]
