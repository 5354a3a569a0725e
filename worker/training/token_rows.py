"""Tokenised texts with their targets, as the Trainer reads them. Tokenised once, by the scorer's tokenizer."""

from typing import Any

import numpy as np
from torch.utils.data import Dataset

from fleet.errors import UsageError
from worker.scoring.tokenizing.tokenize import TextTokenizer
from worker.training.base_model import BaseModel
from worker.training.splits import Rows
from worker.training.targets import Target


class TokenRows(Dataset[dict[str, Any]]):
    """Held as flat arrays, so that processes of a DataLoader share their memory."""

    def __init__(self, rows: Rows, target: Target, tokenizer: TextTokenizer) -> None:
        self._tokens = tokenizer.encode(rows.texts)
        self._targets = rows.targets
        self._as_label = float if target.is_regression else int
        if not self._tokens.lengths.all():
            row = int(np.argmin(self._tokens.lengths))
            raise UsageError(f'There is no token in the labelled text "{rows.texts[row]}". Leave such rows out.')

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"input_ids": self._tokens[row].tolist(), "labels": self._as_label(self._targets[row])}


def tokenizer_of(base: BaseModel, max_tokens: int | None) -> TextTokenizer:
    """Raises UsageError if the model does not take as many tokens."""
    tokenizer = TextTokenizer(base.tokenizer, max_tokens=base.max_tokens)
    try:
        return tokenizer.limited_to(max_tokens) if max_tokens else tokenizer
    except ValueError as error:
        raise UsageError(f"{error} Choose another --max-tokens.") from error
