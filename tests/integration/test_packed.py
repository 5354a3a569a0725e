"""Without padding, each supported family gives the same logits as for each text alone.

torch has the attention kernel for CUDA only. Here a loop over the texts replaces it. The gate of every worker compares the
kernel itself with padded batches, and so does the last test if there is a GPU.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from fleet.run.text import pairs
from support.models import with_lively_scores
from support.nli import nli_classifier
from worker.scoring import Hypotheses, Place, Reading, Scorer
from worker.scoring.backends.last_layer import reduce_last_layer
from worker.scoring.backends.packed import FAMILIES, packed
from worker.scoring.backends.padded import Padded
from worker.scoring.device import best_device, convert, has_packed_attention
from worker.scoring.load import load_scorer
from worker.scoring.parity_trial import sample_texts
from worker.scoring.shared_encoder import joint_backend
from worker.scoring.tokenizing.tokens import Tokens

CPU = torch.device("cpu")
NOWHERE = Place(shard="", source_identity="", first_row=0)
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "num_labels": 3,
    "vocab_size": 1000,
}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
MODERN = {**SMALL, **SPECIAL, "pad_token_id": 3, "local_attention": 16}  # attends to 8 tokens on either side


KINDS: dict[str, dict[str, Any]] = {
    "bert": SMALL,
    "roberta": {**SMALL, "max_position_embeddings": 514},
    "xlm-roberta": {**SMALL, "max_position_embeddings": 514},
    "distilbert": {"dim": 32, "hidden_dim": 64, "n_layers": 3, "n_heads": 2, "num_labels": 3, "vocab_size": 1000},
    "modernbert, first token": {**MODERN, "classifier_pooling": "cls"},
    "modernbert, mean": {**MODERN, "classifier_pooling": "mean"},
}


def made(kind: str) -> PreTrainedModel:
    config = AutoConfig.for_model(kind.partition(",")[0], **KINDS[kind])
    return with_lively_scores(AutoModelForSequenceClassification.from_config(config)).eval()


def one_by_one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_starts: torch.Tensor,
    key_starts: torch.Tensor,
    most_queries: int,
    most_keys: int,
    *,
    scale: float | None,
    window_size: tuple[int, int],
) -> torch.Tensor:
    """Compute what the kernel computes, one text after another."""
    attended = []
    for queries, keys in zip(pairwise(query_starts.tolist()), pairwise(key_starts.tolist()), strict=True):
        assert queries[1] - queries[0] <= most_queries
        assert keys[1] - keys[0] <= most_keys
        parts = (part(query, queries), part(key, keys), part(value, keys))
        near = torch.arange(queries[1] - queries[0])[:, None] - torch.arange(keys[1] - keys[0])[None, :]
        mask = None if window_size == (-1, -1) else near.abs() <= window_size[0]
        attended.append(scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale)[0].transpose(0, 1))
    return torch.cat(attended)


def part(states: torch.Tensor, limits: tuple[int, int]) -> torch.Tensor:
    """(1, heads, tokens, width) of one text."""
    return states[slice(*limits)].transpose(0, 1)[None]


def random_tokens(lengths: list[int]) -> Tokens:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.random.default_rng(0).integers(10, 900, offsets[-1])
    return Tokens(ids=ids.astype(np.int32), offsets=offsets)


@pytest.mark.parametrize("reduced", [False, True], ids=["whole", "last layer reduced"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_logits_are_those_of_each_text_alone(kind: str, reduced: bool) -> None:
    torch.manual_seed(0)
    model = made(kind)
    convert(model, "float32")
    tokens = random_tokens([5, 40, 17, 1, 500, 2, 40])
    padded = Padded(model=model, device=CPU, pad_id=3, pad_left=False, takes_token_types=False, has_cache=False)
    alone = torch.cat([padded.logits(tokens.take(np.array([text]))) for text in range(len(tokens))])

    first_only = reduced and reduce_last_layer(model)
    logits = packed(model, CPU, first_only=first_only, attention=one_by_one).logits(tokens)

    assert logits.shape == alone.shape == (7, 3)
    assert alone.std(dim=0).min() > 0.1  # equal logits would prove nothing
    assert (logits - alone).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert, mean"])
def test_two_heads_on_one_packed_encoder_have_their_own_logits(kind: str) -> None:
    torch.manual_seed(0)
    one, other = made(kind), made(kind)
    other.base_model.load_state_dict(one.base_model.state_dict())
    backends = [packed(model, CPU, attention=one_by_one) for model in (one, other)]
    tokens = random_tokens([5, 40, 17, 1])

    joint = joint_backend(backends)

    assert joint
    logits = joint.logits(tokens)
    alone = [backend.logits(tokens) for backend in backends]
    assert (alone[0] - alone[1]).abs().max() > 0.1
    assert torch.equal(logits, torch.cat(alone, dim=1))


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "distilbert"])
def test_padded_logits_are_the_same_with_the_last_layer_reduced(kind: str) -> None:
    torch.manual_seed(0)
    model = made(kind)
    convert(model, "float32")
    tokens = random_tokens([5, 40, 17, 1, 500, 2, 40])
    padded = Padded(model=model, device=CPU, pad_id=3, pad_left=False, takes_token_types=False, has_cache=False)
    whole = padded.logits(tokens)

    assert reduce_last_layer(model)

    assert (padded.logits(tokens) - whole).abs().max() < 1e-5


TEXTS = [
    "Light becomes sugar.",
    " ",
    "日本の首都は東京です。" * 5,
    "A sentence that repeats itself, [SEP] </s> and ends. " * 9,
]
LABELS = Hypotheses(texts=("This is about food.", "This is about C++."), entailment=2, multi_label=False)
READINGS = {
    "labels": Reading(hypotheses=LABELS),
    "labels of passages": Reading(max_tokens=48, passages="stride:10", hypotheses=LABELS),
    "pairs": Reading(pairs=True),
    "passages": Reading(max_tokens=24, passages="head+tail", pool="mean"),
}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "family",
    [
        "BERT",
        "ModernBERT",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("DistilBERT", "RoBERTa", "XLM-R")),
    ],
)
def test_labels_pairs_and_passages_have_the_scores_of_padded_batches(family: str, tmp_path: Path) -> None:
    folder = nli_classifier(tmp_path / "model", family)
    in_pads = load_scorer(str(folder), "float32", device="cpu", parity_rows=0, max_batch_tokens=256)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    in_packs = replace(in_pads, backend=packed(model, CPU, attention=one_by_one))

    for name, reading in READINGS.items():
        texts = pairs(*(pa.array(texts, pa.large_string()) for texts in (TEXTS, TEXTS[::-1])))
        given = texts if reading.pairs else texts.field(0)
        expected, found = (scored(classifier.reading(reading), given) for classifier in (in_pads, in_packs))
        assert expected.std(axis=0).min() > 0.01, name
        assert np.abs(found - expected).max() < 1e-4, name


def scored(scorer: Scorer[Any], texts: pa.Array) -> np.ndarray[Any, Any]:
    scores = scorer.score_encoded(scorer.encode(texts, NOWHERE), lambda rows: True, None)
    assert not scores.errors
    return scores.values


def test_every_family_that_may_be_packed_is_tested_here() -> None:
    assert {kind.partition(",")[0] for kind in KINDS} == set(FAMILIES)


@pytest.mark.skipif(not has_packed_attention(best_device()), reason="needs a CUDA GPU since Ampere")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_on_a_gpu_packed_scores_equal_padded_scores(minilm_model: Path, dtype: str) -> None:
    texts = sample_texts(500)

    in_packs, in_pads = (load_scorer(str(minilm_model), dtype, backend=way) for way in ("auto", "padded"))

    assert in_packs.backend.name == "packed"
    assert np.abs(in_packs.score(texts).values - in_pads.score(texts).values).max() < 5e-2
