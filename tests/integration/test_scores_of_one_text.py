"""A text has the score that the pipeline gives to it alone, whatever it is batched with, however a model is saved."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import processors
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)

from shardsift.worker.scoring.load import load_classifier
from support.everyday import everyday
from support.models import with_lively_scores
from support.odd_texts import real_texts
from support.tokenizers import save_albert_tokenizer, save_bert_tokenizer, save_llama3_tokenizer

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
LLAMA = {**SMALL, "num_key_value_heads": 1, "max_position_embeddings": 512}
PARTS_OF_CONVBERT = {"embedding_size": 16, "head_ratio": 1, "conv_kernel_size": 5}
BLOCKS_OF_BIGBIRD = {"block_size": 8, "num_random_blocks": 1, "max_position_embeddings": 512}
XLNET = {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64}
TEXTS = [*real_texts(4), "a", "nine words", "a text that ends <|end_of_text|>", "x " * 30, "tail\n", "tail"]


def as_it_is(tokenizer: Any) -> Any:
    return tokenizer


def pad_left(tokenizer: Any) -> Any:
    tokenizer.padding_side = "left"
    return tokenizer


def end_texts(tokenizer: Any) -> Any:
    """Have the tokenizer add an end of text, which is also what transformers would pad with."""
    begin, end = "<|begin_of_text|>", "<|end_of_text|>"
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in (begin, end)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A $B {end}", special_tokens=ids
    )
    return tokenizer


def type_texts(tokenizer: Any) -> Any:
    """A tokenizer that gives a single text the token type 1. BERT's own class replaces its template."""
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:1 [SEP]:1", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        pad_token="[PAD]",
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    kind: str
    save_tokenizer: Callable[[Path], None] = save_bert_tokenizer
    config: dict[str, Any]
    change: Callable[[Any], Any] = as_it_is
    pad_id: int | None = 0  # in config.json
    backend: str = "padded"


CASES = {
    "a padding id that is none": Case(
        kind="llama", save_tokenizer=save_llama3_tokenizer, config=LLAMA, pad_id=-1, change=end_texts
    ),
    "no padding token": Case(
        kind="llama", save_tokenizer=save_llama3_tokenizer, config=LLAMA, pad_id=None, change=end_texts
    ),
    "another padding token than the tokenizer's": Case(
        kind="llama", save_tokenizer=save_llama3_tokenizer, config=LLAMA, pad_id=5
    ),
    "padding on the left": Case(kind="bert", config=SMALL, change=pad_left),
    "a head that reads the last token": Case(
        kind="xlnet", save_tokenizer=save_albert_tokenizer, config=XLNET, change=pad_left, backend="equal lengths"
    ),
    "token types of single texts": Case(kind="bert", config=SMALL, change=type_texts),
    "no attention mask": Case(kind="fnet", config=SMALL, backend="equal lengths"),
    "convolutions": Case(kind="convbert", config=SMALL | PARTS_OF_CONVBERT, backend="equal lengths"),
    "attention that a short text changes": Case(
        kind="big_bird", save_tokenizer=save_albert_tokenizer, config=SMALL | BLOCKS_OF_BIGBIRD, backend="equal lengths"
    ),
}


@pytest.mark.parametrize(
    "name", everyday(CASES, only=CASES.keys() - {"no attention mask", "convolutions", "token types of single texts"})
)
def test_float32_scores_are_those_of_the_text_alone(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = saved(case, tmp_path)

    scorer = load_classifier(str(model), "float32", threads=1)

    assert scorer.info.backend == case.backend
    for _ in range(2):  # what was scored before changes nothing
        np.testing.assert_allclose(scorer.score(TEXTS).values, alone(model), atol=1e-5)


def saved(case: Case, folder: Path) -> Path:
    case.save_tokenizer(folder)
    tokenizer = case.change(AutoTokenizer.from_pretrained(folder))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(case.kind, vocab_size=len(tokenizer), num_labels=1, **case.config)
    model = with_lively_scores(AutoModelForSequenceClassification.from_config(config))
    if case.kind == "bert":  # as random weights, all types are alike
        torch.nn.init.normal_(model.base_model.embeddings.token_type_embeddings.weight, std=0.5)
    model.config.pad_token_id = case.pad_id
    model.save_pretrained(folder)
    return folder


def alone(model: Path) -> NDArray[np.float32]:
    """The logits that transformers' pipeline gives to each text by itself. BigBird is loaded for each, since it changes."""
    plain = None
    logits = []
    for text in TEXTS:
        if plain is None or "big_bird" in plain.model.config.model_type:
            plain = pipeline("text-classification", model=str(model), dtype=torch.float32, device="cpu")
        with torch.inference_mode():
            logits.append(plain._forward(plain.preprocess(text, truncation=True)).logits[0].numpy())
    return np.stack(logits)
