"""NVIDIA's DeBERTa classifiers: a linear layer `fc` on the last state of the first token.

The repository's config.json names a backbone and the labels, and nothing else of the network. Its weights are `model.*`, those of
the backbone, and `fc.*`. Source: the code on the card of https://huggingface.co/nvidia/quality-classifier-deberta and NeMo
Curator's nemo_curator/stages/text/classifiers/base.py, which reads up to 1,024 tokens of a text.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import DebertaV2Config, DebertaV2Model, DebertaV2PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from worker.scoring.adapters.adapter import Adapter
from worker.scoring.errors import ModelError

_CONTEXT_TOKENS = (
    1024  # DeBERTa v3 has no positions of its own: relative ones of more than 512 tokens are as those of 512
)
_DEBERTA_V3_BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "layer_norm_eps": 1e-7,
    "type_vocab_size": 0,
}
_BACKBONES: dict[str, dict[str, Any]] = {
    "microsoft/deberta-v3-base": {**_DEBERTA_V3_BASE, "vocab_size": 128_100},
    "microsoft/mdeberta-v3-base": {**_DEBERTA_V3_BASE, "vocab_size": 251_000},
}


class FirstTokenClassifier(DebertaV2PreTrainedModel):
    base_model_prefix = "model"

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        self.model = DebertaV2Model(config)
        self.fc = torch.nn.Linear(config.hidden_size, len(config.id2label or ()))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any) -> Any:
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.fc(states[:, 0]))


def _serves(config: Mapping[str, Any]) -> bool:
    return {"base_model", "fc_dropout", "id2label"} <= config.keys()


def _config(config: Mapping[str, Any]) -> DebertaV2Config:
    """The settings of the backbone that config.json names, unless it has them itself."""
    backbone = config["base_model"]
    if backbone not in _BACKBONES:
        raise ModelError(f"its backbone {backbone!r} is not known; known are {' and '.join(_BACKBONES)}")
    settings = config if "hidden_size" in config else _BACKBONES[backbone]
    return DebertaV2Config(**{**settings, "id2label": config["id2label"]})


FIRST_TOKEN = Adapter(
    serves=_serves,
    config=_config,
    classifier=lambda: FirstTokenClassifier,
    max_tokens=lambda config: _CONTEXT_TOKENS,
)
