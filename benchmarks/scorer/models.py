"""Classifiers with the shapes of well-known models, random weights and a real tokenizer. Downloads nothing."""

from pathlib import Path

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from benchmarks.scorer.case import Model

MAX_TOKENS = 512


def read_tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """Read a tokenizer from a folder with its files. Drops its settings for truncation and padding."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    tokenizer.model_max_length = MAX_TOKENS
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def save_model(model: Model, folder: Path, *, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Create and save a model with one output, like FineWeb-Edu's classifier."""
    config = config_of(model, vocabulary=len(tokenizer))
    config.num_labels = 1
    return save_random(config, folder, tokenizer=tokenizer)


def save_random(config: PreTrainedConfig, folder: Path, *, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Create and save a classifier with random weights in float32, the format in which classifiers are published."""
    torch.manual_seed(0)
    made = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    _make_scores_differ(made)
    made.save_pretrained(folder)
    takes_token_types = hasattr(config, "type_vocab_size")
    tokenizer.model_input_names = ["input_ids", "attention_mask"] + ["token_type_ids"] * takes_token_types
    tokenizer.save_pretrained(folder)
    return folder


def config_of(model: Model, *, vocabulary: int = 30_522) -> PreTrainedConfig:
    match model:
        case Model.BERT_BASE:
            return _bert(layers=12, hidden=768, heads=12, vocabulary=vocabulary)
        case Model.MINILM:
            return _bert(layers=6, hidden=384, heads=12, vocabulary=vocabulary)
        case Model.DISTILBERT:
            return DistilBertConfig(vocab_size=vocabulary)
        case Model.BERT_LARGE:
            return _bert(layers=24, hidden=1_024, heads=16, vocabulary=vocabulary)
        case Model.TINY:
            return _bert(layers=2, hidden=32, heads=2, vocabulary=vocabulary)


def _bert(*, layers: int, hidden: int, heads: int, vocabulary: int) -> BertConfig:
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )


def _make_scores_differ(model: PreTrainedModel) -> None:
    """Enlarge the weights. A newly initialised model gives all texts nearly the same score."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim == 2 and "embeddings" not in name:
                weights.normal_(std=weights.shape[1] ** -0.5)
