"""Candidates that run transformers' own pipeline at several batch sizes, in float32, with texts in input order."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import pipeline

from fleet.errors import UsageError
from worker.scoring.batches import padded_tokens
from worker.scoring.forward import is_lack_of_memory
from worker.tuning.trials import Candidate, Setting, TooLargeError, Way

_CLASSIFY = {"padding": "longest", "truncation": True, "function_to_apply": "none"}
BATCH_SIZES = (*range(5, 45, 5), 64, 128, 256, 768)  # rows


def reference_candidates(
    model: str,
    revision: str | None,
    texts: list[str],
    lengths: npt.NDArray[np.int64],
    device: torch.device,
    *,
    labels: Sequence[str] = (),
) -> list[Candidate]:
    """One candidate for each batch size that the texts fill. With labels, for zero-shot classification.

    `lengths` are the tokens of each sequence: of each text, or of each text with each label. The pipeline's time includes
    tokenizing.
    """
    task: Any = "zero-shot-classification" if labels else "text-classification"
    pipe = pipeline(task, model=model, revision=revision, dtype=torch.float32, device=device)
    call = {"candidate_labels": list(labels)} if labels else _CLASSIFY
    sizes = [size for size in BATCH_SIZES if size <= len(lengths)]
    return [_candidate(partial(pipe, texts, batch_size=size, **call), lengths, size) for size in sizes]


def _candidate(score: Callable[[], object], lengths: npt.NDArray[np.int64], size: int) -> Candidate:
    def run() -> None:
        try:
            score()
        except RuntimeError as error:
            if is_lack_of_memory(error):
                raise TooLargeError from error
            raise
        except ValueError as error:  # for example a tokenizer without a padding token, which our scorer handles
            raise UsageError(f"The plain pipeline cannot score these texts: {error}. Leave out --reference.") from error

    return Candidate(setting=Setting(way=Way.PIPELINE, size=size), waste=_waste(lengths, size), run=run)


def _waste(lengths: npt.NDArray[np.int64], size: int) -> float:
    rows = np.arange(len(lengths))
    sent = sum(padded_tokens(lengths, rows[first : first + size]) for first in range(0, len(rows), size))
    return 1 - int(lengths.sum()) / sent
