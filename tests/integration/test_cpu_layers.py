"""The layers that replace a model's own on a CPU give the same logits: oneDNN's linear layers, attention by batched products
and BART's last decoder layer."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.activations import GELUActivation

from shardsift.worker.scoring.backends.cpu import (
    CPU_ATTENTION,
    ONEDNN_FAMILIES,
    attend_by_products,
    fuse_linear_layers,
    products_are_faster,
)
from shardsift.worker.scoring.backends.last_layer import reduce_last_decoder_layer, reduce_last_layer
from shardsift.worker.scoring.backends.padded import Padded
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.tokenizing.tokens import Tokens
from support.families import family_classifier
from support.models import with_lively_scores

pytestmark = pytest.mark.usefixtures("one_thread")
EVERYDAY, OTHERS = ("BART", "BERT", "DeBERTa-v3", "ModernBERT"), ("DistilBERT", "RoBERTa", "XLM-R")
NAMES = [*EVERYDAY, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
END = 2  # of BART


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return family_classifier("BART", tmp_path_factory.mktemp("bart"), labels=3)


def padded(model: PreTrainedModel) -> Padded:
    return Padded(
        model=model,
        device=torch.device("cpu"),
        pad_id=model.config.pad_token_id,
        takes_token_types=False,
        has_cache=model.config.model_type == "bart",
    )


def texts_of(lengths: list[int], *, ends: int = 1, after_the_end: int = 0) -> Tokens:
    """Random texts, each with as many end tokens: the last one is followed by `after_the_end` other tokens."""
    random = np.random.default_rng(0)
    texts = []
    for length in lengths:
        ids = random.integers(10, 90, length)
        ids[random.choice(length - after_the_end - 1, ends - 1, replace=False)] = END
        ids[length - after_the_end - 1] = END
        texts.append(ids)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens(ids=np.concatenate(texts).astype(np.int32), offsets=offsets)


@pytest.mark.parametrize("name", NAMES)
def test_fused_linear_layers_which_take_gelu_in_give_the_same_logits(name: str, tmp_path: Path) -> None:
    folder = family_classifier(name, tmp_path / "model", labels=3)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    texts = texts_of([5, 40, 17, 3, 30])
    whole = padded(model).logits(texts)

    assert fuse_linear_layers(model.base_model)

    assert model.config.model_type in ONEDNN_FAMILIES
    kinds = {type(module) for module in model.base_model.modules()}
    assert torch.nn.Linear not in kinds
    assert GELUActivation not in kinds or name == "ModernBERT"  # whose GELU is not right after the product
    assert whole.std(dim=0).min() > 1e-3  # equal logits would prove nothing
    assert (padded(model).logits(texts) - whole).abs().max() < 1e-5


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(texts_of([5, 40, 17, 3, 30]), id="of several lengths"),
        pytest.param(texts_of([12, 12, 12]), id="without padding"),
        pytest.param(texts_of([12]), id="alone"),
        pytest.param(texts_of([9, 30, 12], ends=3), id="with end tokens inside"),
        pytest.param(texts_of([9, 30, 12], ends=2, after_the_end=4), id="that go on after the end"),
    ],
)
def test_barts_last_decoder_layer_is_computed_for_the_heads_position_alone(texts: Tokens, bart: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(bart).eval()
    whole = padded(model).logits(texts)

    for change in (reduce_last_decoder_layer, lambda model: fuse_linear_layers(model.base_model)):
        assert change(model)
        assert (padded(model).logits(texts) - whole).abs().max() < 1e-5
    assert whole.abs().max() > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_attends_by_products_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(family_classifier(name, tmp_path / "model")).eval()
    model, texts = with_lively_scores(model), texts_of([5, 40, 17, 3, 30])
    backend = padded(model)
    reduce_last_layer(model)
    reduce_last_decoder_layer(model)
    before = backend.logits(texts)

    assert attend_by_products(model) == (name != "DeBERTa-v3")

    assert (model.config._attn_implementation == CPU_ATTENTION) == (name != "DeBERTa-v3")
    assert before.std(dim=0).min() > 1e-3
    assert (backend.logits(texts) - before).abs().max() < 1e-5


def test_a_scorer_attends_by_products_where_they_are_faster(tmp_path: Path) -> None:
    """On machines of both kinds: this one has AVX512-BF16 without AMX, or not."""
    folder = str(family_classifier("BERT", tmp_path / "model"))
    for dtype in ("float32", "bfloat16"):
        model = load_classifier(folder, dtype, device="cpu").backend.model
        assert (model.config._attn_implementation == CPU_ATTENTION) == products_are_faster(dtype)
