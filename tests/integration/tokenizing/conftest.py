"""Saved tokenizers of all families, each saved once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer
from support import tokenizers as families
from support.encoding import MAX_TOKENS
from support.everyday import everyday

CUT: dict[str, Callable[[Path], None]] = {
    "BERT": families.save_bert_tokenizer,
    "BERT cased": families.save_cased_bert_tokenizer,
    "RoBERTa, BART": families.save_roberta_tokenizer,
    "GPT-2": families.save_gpt2_tokenizer,
    "Llama 3": families.save_llama3_tokenizer,
    "ModernBERT": families.save_modernbert_tokenizer,
    "XLM-RoBERTa": families.save_xlm_roberta_tokenizer,
    "DeBERTa v3": families.save_deberta_v3_tokenizer,
    "ALBERT": families.save_albert_tokenizer,
    "SentencePiece, converted": families.save_converted_sentencepiece_tokenizer,
}
NOT_CUT = {"Llama 2": families.save_llama2_tokenizer}
FAMILIES = CUT | NOT_CUT
EVERYDAY = (
    "BERT",
    "RoBERTa, BART",
    "Llama 3",
    "XLM-RoBERTa",
    "Llama 2",
)  # one of each kind of normalizer and splitting


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family's tokenizer."""

    @cache
    def saved(family: str) -> Path:
        folder = tmp_path_factory.mktemp("tokenizer")
        FAMILIES[family](folder)
        return folder

    return saved


@pytest.fixture(scope="module", params=everyday(FAMILIES, only=EVERYDAY))
def folder(request: pytest.FixtureRequest, saved: Callable[[str], Path]) -> Path:
    return saved(request.param)


@pytest.fixture(scope="module", params=everyday(CUT, only={*EVERYDAY} & CUT.keys()))
def cut_folder(request: pytest.FixtureRequest, saved: Callable[[str], Path]) -> Path:
    return saved(request.param)


@pytest.fixture(scope="module")
def encoders(folder: Path) -> tuple[TextTokenizer, Any]:
    """Our tokenizer, and the original."""
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for _ in range(2))
    return TextTokenizer(ours, max_tokens=MAX_TOKENS), theirs


@pytest.fixture(scope="session")
def bert(saved: Callable[[str], Path]) -> Path:
    return saved("BERT")
