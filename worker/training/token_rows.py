"""Tokenised texts with their targets, as the Trainer reads them. Tokenised once, by the scorer's tokenizer."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from fleet.errors import UsageError
from worker.scoring.tokenizing.tokenize import TextTokenizer
from worker.training.base_model import BaseModel
from worker.training.rows import Rows, Target


class TokenRows(Dataset[dict[str, Any]]):
    """Held as flat tensors, which PyTorch puts into shared memory when a process of a DataLoader needs them."""

    def __init__(self, rows: Rows, target: Target, tokenizer: TextTokenizer) -> None:
        tokens = tokenizer.encode(rows.texts)
        if not tokens.lengths.all():
            row = int(np.argmin(tokens.lengths))
            raise UsageError(f'There is no token in the labelled text "{rows.texts[row]}". Leave such rows out.')
        self._ids = torch.from_numpy(tokens.ids)  # shape (tokens,)
        self._offsets = torch.from_numpy(tokens.offsets)  # shape (rows + 1,)
        self._targets = torch.tensor(rows.targets)  # shape (rows,)
        self._as_label = float if target.is_regression else int

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, row: int) -> dict[str, Any]:
        ids = self._ids[self._offsets[row] : self._offsets[row + 1]]
        return {"input_ids": ids.tolist(), "labels": self._as_label(self._targets[row])}


def tokenizer_of(base: BaseModel, max_tokens: int | None) -> TextTokenizer:
    """Raises UsageError if the model does not take as many tokens."""
    tokenizer = TextTokenizer(base.tokenizer, max_tokens=base.max_tokens)
    try:
        return tokenizer.limited_to(max_tokens) if max_tokens else tokenizer
    except ValueError as error:
        raise UsageError(f"{error} Choose another --max-tokens.") from error
