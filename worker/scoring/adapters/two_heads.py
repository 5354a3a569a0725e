"""utter-project/EuroFilter-v1: mDeBERTa with two heads on one pooled state, `regressor` and `binary_classifier`.

Served is the score of `regressor`, from 0 to 5, which is `logits` in the repository's code. Its `binary_logits` are left out,
because a model's outputs are labels of one kind here. Source: modeling_custom.py of the repository.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import DebertaV2Config, DebertaV2Model, DebertaV2PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.deberta_v2.modeling_deberta_v2 import ContextPooler

from worker.scoring.adapters.adapter import Adapter

_CODE = "modeling_custom.DebertaV2ForSequenceClassification"


class RegressorOfTwoHeads(DebertaV2PreTrainedModel):
    _keys_to_ignore_on_load_unexpected = ["position_embeddings", "binary_classifier"]

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        self.deberta = DebertaV2Model(config)
        self.pooler = ContextPooler(config)
        self.regressor = torch.nn.Linear(self.pooler.output_dim, 1)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any) -> Any:
        states = self.deberta(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.regressor(self.pooler(states)))


def _serves(config: Mapping[str, Any]) -> bool:
    code = (config.get("auto_map") or {}).get("AutoModelForSequenceClassification", "")
    return config.get("model_type") == "deberta-v2" and str(code).endswith(_CODE)


def _config(config: Mapping[str, Any]) -> DebertaV2Config:
    kept = {name: value for name, value in config.items() if name not in ("auto_map", "id2label", "label2id")}
    return DebertaV2Config(**{**kept, "num_labels": 1})


TWO_HEADS = Adapter(
    serves=_serves,
    config=_config,
    classifier=lambda: RegressorOfTwoHeads,
    max_tokens=lambda config: int(config.max_position_embeddings),
)
