"""Score texts with a loaded model."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch

from worker.scoring.backends import Backend
from worker.scoring.device import device_name
from worker.scoring.forward import forward, ignore
from worker.scoring.parity import Parity
from worker.scoring.tokenizing.texts import Texts, plain_texts
from worker.scoring.tokenizing.tokenize import TextTokenizer
from worker.scoring.tokenizing.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Raw logits, float32, shape (rows, outputs); NaN in the rows that `errors` names with a reason."""

    values: npt.NDArray[np.float32]
    errors: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EncodedRows:
    """The token ids of some rows' texts, but for those that have none."""

    rows: int  # all of them
    tokens: Tokens
    row_of_text: npt.NDArray[np.int64]
    errors: dict[int, str]  # of the rows that are not in `tokens`


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A sequence classifier on a device. `encode` may run in one thread while another is in `score_encoded`."""

    backend: Backend
    tokenizer: TextTokenizer
    device: torch.device
    dtype: str
    outputs: int
    max_batch_tokens: int
    parity: Parity | None = None  # how its logits differ from those of the plain way, if that was tried

    @property
    def device_name(self) -> str:
        return device_name(self.device)

    def score(self, texts: Texts, on_batch: Callable[[int], None] = ignore) -> Scores:
        """The logits of `pipeline("text-classification", function_to_apply="none", truncation=True)`, in row order.

        `on_batch` is told the rows given to the model so far, after each batch; what it raises ends the scoring.
        """
        return self.score_encoded(self.encode(texts), on_batch)

    def encode(self, texts: Texts) -> EncodedRows:
        column = plain_texts(texts)
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        tokens = self.tokenizer.encode(column.drop_null())
        errors = dict.fromkeys(np.setdiff1d(np.arange(len(column)), present).tolist(), "null text")
        if not tokens.lengths.all():
            errors |= dict.fromkeys(present[tokens.lengths == 0].tolist(), "no token in the text")
            filled = np.flatnonzero(tokens.lengths)
            tokens, present = tokens.take(filled), present[filled]
        return EncodedRows(rows=len(column), tokens=tokens, row_of_text=present, errors=errors)

    def score_encoded(self, encoded: EncodedRows, on_batch: Callable[[int], None] = ignore) -> Scores:
        logits, failed = self.forward(encoded.tokens, on_batch)
        failed |= dict.fromkeys(
            (set(np.flatnonzero(~np.isfinite(logits).all(axis=1)).tolist()) - set(failed)), "score is not finite"
        )
        logits[list(failed)] = np.nan
        values = np.full((encoded.rows, self.outputs), np.nan, dtype=np.float32)
        values[encoded.row_of_text] = logits
        errors = encoded.errors | {int(encoded.row_of_text[text]): reason for text, reason in failed.items()}
        return Scores(values=values, errors=dict(sorted(errors.items())))

    def forward(
        self, tokens: Tokens, on_batch: Callable[[int], None] = ignore
    ) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """The logits of tokenised texts, shape (texts, outputs), and the texts that failed, with the reason."""
        return forward(
            self.backend, tokens, outputs=self.outputs, max_batch_tokens=self.max_batch_tokens, on_batch=on_batch
        )

    def with_parity(self, parity: Parity) -> "Scorer":
        return replace(self, parity=parity)
