"""Without padding, each supported family gives the same logits as for each text alone.

torch has the attention kernel for CUDA only. Here a mask over all tokens replaces it. The gate of every worker compares the
kernel itself with padded batches, and so does the last test if there is a GPU.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from shardsift.fleet.run.text import pairs
from shardsift.worker.scoring import Hypotheses, Reading, Scorer
from shardsift.worker.scoring.backends import Backend
from shardsift.worker.scoring.backends.graphed import Graphed
from shardsift.worker.scoring.backends.in_float32 import InFloat32
from shardsift.worker.scoring.backends.last_layer import reduce_last_layer
from shardsift.worker.scoring.backends.packed import FAMILIES, packed
from shardsift.worker.scoring.backends.padded import Padded
from shardsift.worker.scoring.device import best_device, convert, has_packed_attention
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.parity_trial import sample_texts
from shardsift.worker.scoring.shared_encoder import joint_backend
from shardsift.worker.scoring.tokenizing.tokens import Tokens
from support.everyday import everyday
from support.models import with_lively_scores
from support.nli import nli_classifier

CPU = torch.device("cpu")
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
DECODER = {**SMALL, **SPECIAL, "pad_token_id": 3, "num_key_value_heads": 1, "head_dim": 16}

KINDS: dict[str, dict[str, Any]] = {
    "bert": SMALL,
    "roberta": {**SMALL, "max_position_embeddings": 514},
    "xlm-roberta": {**SMALL, "max_position_embeddings": 514},
    "distilbert": {"dim": 32, "hidden_dim": 64, "n_layers": 3, "n_heads": 2, "num_labels": 3, "vocab_size": 1000},
    "modernbert, first token": {**MODERN, "classifier_pooling": "cls"},
    "modernbert, mean": {**MODERN, "classifier_pooling": "mean"},
    "llama": DECODER,
    "mistral": {**DECODER, "sliding_window": 16},
    "qwen2": DECODER,
    "qwen3": DECODER,
    "gemma": DECODER,
    "gemma3_text": {**DECODER, "sliding_window": 16, "layer_types": ["sliding_attention"] * 2 + ["full_attention"]},
}


def made(kind: str, *, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind.partition(",")[0], **KINDS[kind])
    model = with_lively_scores(AutoModelForSequenceClassification.from_config(config)).eval()
    convert(model, "float32")
    return model


def padded(model: PreTrainedModel, *, has_cache: bool = False) -> Padded:
    return Padded(model=model, device=CPU, pad_id=3, takes_token_types=False, has_cache=has_cache)


def logits_alone(backend: Backend, tokens: Tokens) -> torch.Tensor:
    """Of each text in a batch of its own."""
    return torch.cat([backend.logits(tokens.take(np.array([text]))) for text in range(len(tokens))])


def stand_in(
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
    """Compute what the kernel computes, by a mask over the tokens of all texts."""
    if not torch.compiler.is_compiling():
        assert query_starts.diff().max() <= most_queries
        assert key_starts.diff().max() <= most_keys
    (of_queries, at_query), (of_keys, at_key) = (places(query, query_starts), places(key, key_starts))
    distance = at_query[:, None] - at_key
    before, after = (size if size >= 0 else most_keys for size in window_size)
    mask = (of_queries[:, None] == of_keys) & (distance <= before) & (-distance <= after)
    heads_first = [states.transpose(0, 1)[None] for states in (query, key, value)]
    attended = scaled_dot_product_attention(*heads_first, attn_mask=mask, scale=scale, enable_gqa=True)
    return attended[0].transpose(0, 1)


def places(states: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The text of each token, and the token's place in it."""
    tokens = torch.arange(len(states), dtype=starts.dtype)
    text = torch.searchsorted(starts[1:].contiguous(), tokens, right=True)
    return text, tokens - starts[text]


def random_tokens(lengths: list[int]) -> Tokens:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.random.default_rng(0).integers(10, 900, offsets[-1])
    return Tokens(ids=ids.astype(np.int32), offsets=offsets)


@pytest.mark.parametrize("how", ["whole", "last layer reduced", "one by one in float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_logits_are_those_of_each_text_alone(kind: str, how: str) -> None:
    model = made(kind)
    tokens = random_tokens([5, 40, 17, 1, 500, 2, 40])
    alone = logits_alone(padded(model), tokens)

    first_only = how != "whole" and reduce_last_layer(model)
    backend = packed(model, CPU, first_only=first_only, attention=stand_in)
    logits = logits_alone(InFloat32([backend]), tokens) if "float32" in how else backend.logits(tokens)

    assert logits.shape == alone.shape == (7, 3)
    assert alone.std(dim=0).min() > 0.1  # equal logits would prove nothing
    assert (logits - alone).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_decoder_judges_a_text_by_its_last_token_that_is_not_padding(kind: str) -> None:
    model = made(kind)
    tokens = random_tokens([5, 4, 3])
    tokens.ids[7:9] = tokens.ids[9:] = (
        model.config.pad_token_id
    )  # the second text ends so, and the third is nothing else
    alone = logits_alone(padded(model, has_cache=True), tokens)

    logits = packed(model, CPU, attention=stand_in).logits(tokens)

    assert (logits - alone).abs().max() < 1e-5


# --- at one fixed size ----------------------------------------------------------------------------------------------------

SIZE = 1_024  # tokens, and so 4 or 16 texts, or 64 of 128 tokens at most
BATCHES = {
    "of few long texts": [500, 400],
    "that is full": [500, 500, 24],
    "of texts of one token": [2] * 10 + [500],
    "with too few tokens": [30] * 3,
    "of too many texts": [9] * 100,
    "of many short texts": [20] * 40,
    "of as many shorter texts": [14] * 40,
    "larger than the size": [500] * 3,
    "with a longer text": [510, 490],
}


@pytest.fixture
def uncompiled() -> Iterator[None]:
    with torch.compiler.set_stance("force_eager"):
        yield


def check_graphed(kind: str, batches: dict[str, list[int]]) -> None:
    model = made(kind)
    eager = packed(model, CPU, first_only=reduce_last_layer(model), attention=stand_in)
    at_one_size = Graphed(eager, tokens=SIZE, longest=500)

    for name, lengths in batches.items():
        tokens = random_tokens(lengths)
        expected, logits = eager.logits(tokens), at_one_size.logits(tokens)
        assert expected.std(dim=0).max() > 0.01, name  # equal logits would prove nothing
        assert (logits - expected).abs().max() < 1e-5, name


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("kind", everyday(KINDS, only=("bert", "modernbert, first token", "llama", "gemma3_text")))
def test_batches_that_are_filled_up_to_a_fixed_size_have_their_logits(kind: str) -> None:
    check_graphed(kind, BATCHES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler gives them about torch
@pytest.mark.parametrize("kind", ["bert", "modernbert, mean", "llama"])
def test_one_compilation_serves_every_batch_of_a_size(kind: str) -> None:
    by_size = dict[str, dict[str, list[int]]]()
    for name, lengths in BATCHES.items():
        word = next((word for word in ("short", "one token") if word in name), "long")
        by_size.setdefault(word, {})[name] = lengths
    for batches in by_size.values():
        torch._dynamo.reset()  # of other models and sizes
        with torch._dynamo.config.patch(error_on_recompile=True):
            check_graphed(kind, batches)


class SmallMemory:
    """Stands for a packed model whose device has room for four texts."""

    device = CPU
    name = "packed"

    def inputs(self, _batch: Tokens, filled: Tokens) -> dict[str, Any]:
        return {"starts": filled.offsets.astype(np.int32)}

    def run(self, inputs: dict[str, torch.Tensor], *, longest: int) -> torch.Tensor:
        if len(inputs["starts"]) > 5:
            raise torch.OutOfMemoryError("out of memory")
        return torch.zeros(len(inputs["starts"]) - 1, 1)

    def logits(self, batch: Tokens) -> torch.Tensor:
        return torch.zeros(len(batch), 1)


@pytest.mark.usefixtures("uncompiled")
def test_sizes_for_which_memory_lacks_run_packed_and_the_name_and_log_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graphs = Graphed(SmallMemory(), tokens=SIZE, longest=512)  # type: ignore[arg-type]

    names = [graphs.name]
    for name in ("of many short texts", "of few long texts", "that is full"):
        graphs.logits(random_tokens(BATCHES[name]))
        names.append(graphs.name)

    assert names == ["graphed", "packed", "partly graphed", "partly graphed"]
    assert caplog.messages == ["Batches of texts of up to 128 tokens are not graphed: out of memory"]


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert, mean"])
def test_two_heads_on_one_packed_encoder_have_their_own_logits(kind: str) -> None:
    one, other = made(kind), made(kind, seed=1)
    other.base_model.load_state_dict(one.base_model.state_dict())
    backends = [packed(model, CPU, attention=stand_in) for model in (one, other)]
    tokens = random_tokens([5, 40, 17, 1])

    joint = joint_backend(backends)

    assert joint
    logits = joint.logits(tokens)
    alone = [backend.logits(tokens) for backend in backends]
    assert (alone[0] - alone[1]).abs().max() > 0.1
    assert torch.equal(logits, torch.cat(alone, dim=1))


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
    in_pads = load_classifier(str(folder), "float32", device="cpu", parity_rows=0, max_batch_tokens=256)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    in_packs = replace(in_pads, backend=packed(model, CPU, attention=stand_in))

    for name, reading in READINGS.items():
        texts = pairs(*(pa.array(texts, pa.large_string()) for texts in (TEXTS, TEXTS[::-1])))
        given = texts if reading.pairs else texts.field(0)
        expected, found = (scored(classifier.reading(reading), given) for classifier in (in_pads, in_packs))
        assert expected.std(axis=0).min() > 0.01, name
        assert np.abs(found - expected).max() < 1e-4, name


def scored(scorer: Scorer[Any], texts: pa.Array) -> np.ndarray[Any, Any]:
    scores = scorer.score_encoded(scorer.encode(texts), lambda rows: True, None)
    assert not scores.errors
    return scores.values


def test_every_family_that_may_be_packed_is_tested_here() -> None:
    assert {kind.partition(",")[0] for kind in KINDS} == set(FAMILIES)


@pytest.mark.skipif(not has_packed_attention(best_device()), reason="needs a CUDA GPU since Ampere")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_on_a_gpu_packed_scores_equal_padded_scores(minilm_model: Path, dtype: str) -> None:
    texts = sample_texts(500)

    in_packs, in_pads = (load_classifier(str(minilm_model), dtype, backend=way) for way in ("auto", "padded"))

    assert in_packs.backend.name in ("graphed", "packed")
    assert np.abs(in_packs.score(texts).values - in_pads.score(texts).values).max() < 5e-2
