"""A tiny random classifier of every family that users bring, with its kind of tokenizer, as transformers saves them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from support.models import with_lively_scores
from support.tokenizers import (
    save_bert_tokenizer,
    save_deberta_v3_tokenizer,
    save_gpt2_tokenizer,
    save_llama3_tokenizer,
    save_modernbert_tokenizer,
    save_roberta_tokenizer,
    save_xlm_roberta_tokenizer,
)

_WIDTHS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@dataclass(frozen=True, kw_only=True)
class Family:
    model_type: str  # of transformers
    sizes: dict[str, int | str | list[int]]
    save_tokenizer: Callable[[Path], None]
    besides: dict[str, Any] | None = None  # of a config of several parts: all but `text_config`
    weights_std: float = 0.3  # large enough to tell texts apart, small enough for the activations to stay in proportion


FAMILIES = {
    "BERT": Family(model_type="bert", sizes={**_WIDTHS}, save_tokenizer=save_bert_tokenizer),
    "DistilBERT": Family(
        model_type="distilbert",
        sizes={"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2},
        save_tokenizer=save_bert_tokenizer,
    ),
    "RoBERTa": Family(
        model_type="roberta",
        sizes={**_WIDTHS, "max_position_embeddings": 514, "type_vocab_size": 1},
        save_tokenizer=save_roberta_tokenizer,
    ),
    "XLM-R": Family(
        model_type="xlm-roberta",
        sizes={**_WIDTHS, "max_position_embeddings": 514, "type_vocab_size": 1},
        save_tokenizer=save_xlm_roberta_tokenizer,
    ),
    "DeBERTa-v3": Family(
        model_type="deberta-v2",
        sizes={
            **_WIDTHS,
            "relative_attention": True,
            "position_buckets": 32,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
        save_tokenizer=save_deberta_v3_tokenizer,
        weights_std=0.2,
    ),
    "ModernBERT": Family(
        model_type="modernbert",
        sizes={**_WIDTHS, "num_hidden_layers": 4, "local_attention": 32, "classifier_pooling": "mean"},
        save_tokenizer=save_modernbert_tokenizer,
        weights_std=0.15,
    ),
    "BART": Family(
        model_type="bart",
        sizes={
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_position_embeddings": 512,
        },
        save_tokenizer=save_roberta_tokenizer,
    ),
    "GPT-2": Family(
        model_type="gpt2",
        sizes={"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512},
        save_tokenizer=save_gpt2_tokenizer,
    ),
    "Llama": Family(
        model_type="llama",
        sizes={**_WIDTHS, "num_key_value_heads": 1, "max_position_embeddings": 512},
        save_tokenizer=save_llama3_tokenizer,
        weights_std=0.15,
    ),
    "Gemma 3": Family(  # with a part for pictures
        model_type="gemma3",
        sizes={**_WIDTHS, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512},
        besides={"vision_config": {**_WIDTHS, "image_size": 28, "patch_size": 14}, "mm_tokens_per_image": 4},
        save_tokenizer=save_llama3_tokenizer,
        weights_std=0.15,
    ),
}


def family_classifier(name: str, folder: Path, *, labels: int = 1) -> Path:
    family = FAMILIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    family.save_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    special = {
        f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("pad", "bos", "eos", "cls", "sep")
    }
    torch.manual_seed(0)
    text: dict[str, Any] = {"vocab_size": len(tokenizer), **family.sizes, **special}
    if family.besides is not None:
        text = {"text_config": text, **family.besides}
    config = AutoConfig.for_model(family.model_type, num_labels=labels, **text)
    model = AutoModelForSequenceClassification.from_config(config)
    with_lively_scores(model, std=family.weights_std).save_pretrained(folder)
    return folder
