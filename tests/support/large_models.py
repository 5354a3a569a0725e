"""A tiny Llama classifier whose weights can be divided among two ranks, or over devices with a megabyte of memory each."""

from pathlib import Path

import psutil
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

from shardsift.fleet.run.model_config import THRESHOLD
from support.models import with_lively_scores
from support.tokenizers import save_llama3_tokenizer


def divisible_llama(folder: Path, *, layers: int = 4) -> Path:
    """Save a Llama with random weights, about 130 KiB per layer, whose scores differ from text to text.

    Small weights in the layers keep the rounding of bfloat16 far below what the parity gate allows. A larger head
    spreads the scores.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_llama3_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        max_position_embeddings=512,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
    )
    config.update({THRESHOLD: 3.0})
    torch.manual_seed(0)
    model = with_lively_scores(LlamaForSequenceClassification(config), std=0.05)
    with torch.no_grad():
        model.score.weight.normal_(std=0.3)
    model.save_pretrained(folder)
    return folder


def ranks_of(process: psutil.Process) -> list[psutil.Process]:
    """Return the processes that `torch.multiprocessing` has started below this one."""
    return [child for child in process.children(recursive=True) if "--multiprocessing-fork" in child.cmdline()]
