"""Tiny random classifiers in the layout of repositories that ask for code of their own, and the logits that this code
computes.

Each reference is the formula of the code on the model's card or in its repository, written out for the saved weights.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import gelu, layer_norm
from transformers import AutoTokenizer, DebertaV2Config, DebertaV2Model

from support.families import FAMILIES
from support.models import with_lively_scores
from support.tokenizers import save_bert_tokenizer, save_deberta_v3_tokenizer

Weights = dict[str, Tensor]
_WIDTH, _LAYERS, _HEADS, _INNER = 32, 2, 2, 64
_DEBERTA = FAMILIES["DeBERTa-v3"].sizes
LABELS = ("High", "Medium", "Low")


@dataclass(frozen=True, kw_only=True)
class Repository:
    save: Callable[[Path], None]
    logits: Callable[[Path, list[int]], Tensor]  # folder, token ids of one text → logits
    labels: tuple[str, ...]


def _save(folder: Path, config: dict[str, Any], weights: Weights) -> None:
    """Save weights as PyTorchModelHubMixin does, without the metadata of transformers."""
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def _linear(inner: int, outer: int, name: str) -> Weights:
    return {f"{name}.weight": torch.randn(outer, inner) * 0.15, f"{name}.bias": torch.randn(outer) * 0.15}


def _norm(name: str) -> Weights:
    return {f"{name}.weight": 1 + 0.1 * torch.randn(_WIDTH), f"{name}.bias": 0.1 * torch.randn(_WIDTH)}


# NVIDIA's classifier: softmax(fc(states)[:, 0]). The logits before the softmax are compared.


def _save_first_token(folder: Path) -> None:
    save_deberta_v3_tokenizer(folder)
    backbone = _deberta(folder)
    config = {
        "base_model": "microsoft/deberta-v3-base",
        "fc_dropout": 0.2,
        "id2label": dict(enumerate(LABELS)),
        "label2id": {label: number for number, label in enumerate(LABELS)},
        "model_type": "deberta-v2",
        "vocab_size": backbone.config.vocab_size,
        **_DEBERTA,
    }
    states = {f"model.{name}": tensor for name, tensor in backbone.state_dict().items()}
    _save(folder, config, states | _linear(_WIDTH, len(LABELS), "fc"))


@torch.inference_mode()
def _first_token_logits(folder: Path, ids: list[int]) -> Tensor:
    weights = load_file(folder / "model.safetensors")
    outputs = _states(folder, weights, "model.", ids) @ weights["fc.weight"].T + weights["fc.bias"]
    return outputs[:, 0, :][0]


def _deberta(folder: Path) -> DebertaV2Model:
    torch.manual_seed(0)
    vocabulary = len(AutoTokenizer.from_pretrained(folder))
    return with_lively_scores(DebertaV2Model(DebertaV2Config(vocab_size=vocabulary, **_DEBERTA)), std=0.2).eval()  # type: ignore[no-any-return]


def _states(folder: Path, weights: Weights, prefix: str, ids: list[int]) -> Tensor:
    backbone = _deberta(folder)
    backbone.load_state_dict({n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)})
    return backbone(torch.tensor([ids])).last_hidden_state  # type: ignore[no-any-return]


# EuroFilter: regressor(pooler(states)), beside a binary head.


def _save_two_heads(folder: Path) -> None:
    save_deberta_v3_tokenizer(folder)
    backbone = _deberta(folder)
    config = {
        "architectures": ["DebertaV2ForSequenceClassification"],
        "auto_map": {"AutoModelForSequenceClassification": "modeling_custom.DebertaV2ForSequenceClassification"},
        "model_type": "deberta-v2",
        "pooler_dropout": 0,
        "pooler_hidden_act": "gelu",
        "pooler_hidden_size": _WIDTH,
        "vocab_size": backbone.config.vocab_size,
        **_DEBERTA,
    }
    weights = {f"deberta.{name}": tensor for name, tensor in backbone.state_dict().items()}
    weights |= _linear(_WIDTH, _WIDTH, "pooler.dense") | _linear(_WIDTH, 1, "regressor")
    _save(folder, config, weights | _linear(_WIDTH, 1, "binary_classifier"))


@torch.inference_mode()
def _regressor_logits(folder: Path, ids: list[int]) -> Tensor:
    weights = load_file(folder / "model.safetensors")
    first = _states(folder, weights, "deberta.", ids)[0, 0]
    pooled = gelu(first @ weights["pooler.dense.weight"].T + weights["pooler.dense.bias"])
    return pooled @ weights["regressor.weight"].T + weights["regressor.bias"]


# WebOrganizer's type `new`: packed projections, rotary positions with NTK scaling, a gated layer.


def _save_new(folder: Path) -> None:
    save_bert_tokenizer(folder)
    torch.manual_seed(0)
    vocabulary = len(AutoTokenizer.from_pretrained(folder))
    config = {
        "architectures": ["NewForSequenceClassification"],
        "attention_probs_dropout_prob": 0.0,
        "auto_map": {
            "AutoConfig": "configuration.NewConfig",
            "AutoModelForSequenceClassification": "modeling.NewForSequenceClassification",
        },
        "classifier_dropout": None,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": _WIDTH,
        "id2label": dict(enumerate(LABELS)),
        "intermediate_size": _INNER,
        "label2id": {label: number for number, label in enumerate(LABELS)},
        "layer_norm_eps": 1e-12,
        "layer_norm_type": "layer_norm",
        "logn_attention_clip1": False,
        "logn_attention_scale": False,
        "max_position_embeddings": 8192,
        "model_type": "new",
        "num_attention_heads": _HEADS,
        "num_hidden_layers": _LAYERS,
        "pack_qkv": True,
        "pad_token_id": 0,
        "position_embedding_type": "rope",
        "rope_scaling": {"factor": 2.0, "type": "ntk"},
        "rope_theta": 500_000,
        "type_vocab_size": 0,
        "unpad_inputs": False,
        "use_memory_efficient_attention": False,
        "vocab_size": vocabulary,
    }
    weights: Weights = {"new.embeddings.word_embeddings.weight": torch.randn(vocabulary, _WIDTH)}
    weights |= _norm("new.embeddings.LayerNorm")
    for number in range(_LAYERS):
        layer = f"new.encoder.layer.{number}"
        weights |= _linear(_WIDTH, 3 * _WIDTH, f"{layer}.attention.qkv_proj")
        weights |= _linear(_WIDTH, _WIDTH, f"{layer}.attention.o_proj")
        weights |= {f"{layer}.mlp.up_gate_proj.weight": torch.randn(2 * _INNER, _WIDTH) * 0.15}
        weights |= _linear(_INNER, _WIDTH, f"{layer}.mlp.down_proj")
        weights |= _norm(f"{layer}.attn_ln") | _norm(f"{layer}.mlp_ln")
    weights |= _linear(_WIDTH, _WIDTH, "new.pooler.dense") | _linear(_WIDTH, len(LABELS), "classifier")
    _save(folder, config, weights)


@torch.inference_mode()
def _new_logits(folder: Path, ids: list[int]) -> Tensor:
    weights = load_file(folder / "model.safetensors")

    def linear(name: str, states: Tensor) -> Tensor:
        bias = weights.get(f"{name}.bias")
        return states @ weights[f"{name}.weight"].T + (0 if bias is None else bias)

    def norm(name: str, states: Tensor) -> Tensor:
        return layer_norm(states, (_WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)

    states = norm("new.embeddings.LayerNorm", weights["new.embeddings.word_embeddings.weight"][ids])
    for number in range(_LAYERS):
        layer = f"new.encoder.layer.{number}"
        packed = linear(f"{layer}.attention.qkv_proj", states).split(_WIDTH, dim=-1)
        query, key, value = (part.view(len(ids), _HEADS, -1).transpose(0, 1) for part in packed)
        query, key = _rotated(query), _rotated(key)
        attention = (query @ key.transpose(1, 2) / (_WIDTH // _HEADS) ** 0.5).softmax(-1) @ value
        attended = linear(f"{layer}.attention.o_proj", attention.transpose(0, 1).reshape(len(ids), -1))
        states = norm(f"{layer}.attn_ln", states + attended)
        up, gate = linear(f"{layer}.mlp.up_gate_proj", states).split(_INNER, dim=-1)
        states = norm(f"{layer}.mlp_ln", states + linear(f"{layer}.mlp.down_proj", gelu(gate) * up))
    return linear("classifier", linear("new.pooler.dense", states[0]).tanh())


def _rotated(states: Tensor) -> Tensor:
    """Rotary positions with NTK scaling, as NTKScalingRotaryEmbedding without mixed_b. `states` is (heads, tokens, width)."""
    width, theta, factor = states.shape[-1], 500_000.0, 2.0
    frequencies = (theta * factor) ** -(torch.arange(0, width, 2) / width) / factor ** (2 / width)
    angles = torch.outer(torch.arange(states.shape[1]).float(), frequencies).repeat(1, 2)
    first, second = states.chunk(2, dim=-1)
    return states * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


REPOSITORIES = {
    "nvidia": Repository(save=_save_first_token, logits=_first_token_logits, labels=LABELS),
    "WebOrganizer": Repository(save=_save_new, logits=_new_logits, labels=LABELS),
    "EuroFilter": Repository(save=_save_two_heads, logits=_regressor_logits, labels=("LABEL_0",)),
}
