"""Score texts with a loaded model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from worker.scoring.batches import plan_batches
from worker.scoring.tokenize import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Raw logits, float32, shape (rows, outputs); NaN in the rows that `errors` names with a reason."""

    values: npt.NDArray[np.float32]
    errors: dict[int, str] = field(default_factory=dict)


def _ignore(rows: int) -> None:
    """No one watches."""


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A sequence classifier on a device. Not safe to share between threads."""

    model: torch.nn.Module
    tokenizer: TextTokenizer
    device: torch.device
    dtype: torch.dtype
    outputs: int
    token_types: bool  # the model takes token type ids, all zero for single texts
    max_batch_tokens: int

    @property
    def device_name(self) -> str:
        """The GPU's name, or the kind of device."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type

    def score(self, texts: Sequence[str | None], on_batch: Callable[[int], None] = _ignore) -> Scores:
        """The logits of `pipeline("text-classification", function_to_apply="none", truncation=True)`, in row order.

        `on_batch` is told the rows scored so far after each batch; what it raises ends the scoring.
        """
        errors = {row: "null text" for row, text in enumerate(texts) if text is None}
        rows = np.array([row for row in range(len(texts)) if row not in errors], dtype=np.int64)
        ids = self.tokenizer.encode([text for text in texts if text is not None])
        values = np.full((len(texts), self.outputs), np.nan, dtype=np.float32)
        done = 0
        lengths = np.array([len(row_ids) for row_ids in ids], dtype=np.int64)
        for batch in plan_batches(lengths, max_batch_tokens=self.max_batch_tokens):
            values[rows[batch]] = self._forward([ids[row] for row in batch])
            done += len(batch)
            on_batch(done)
        for row in rows[~np.isfinite(values[rows]).all(axis=1)]:
            errors[int(row)] = "score is not finite"
            values[row] = np.nan
        return Scores(values=values, errors=errors)

    @torch.inference_mode()
    def _forward(self, ids: list[npt.NDArray[np.int32]]) -> npt.NDArray[np.float32]:
        inputs = self._padded(ids)
        logits = self.model(**inputs).logits
        return logits.float().cpu().numpy()  # type: ignore[no-any-return]

    def _padded(self, ids: list[npt.NDArray[np.int32]]) -> dict[str, torch.Tensor]:
        longest = max(1, max(len(row) for row in ids))
        padded = np.full((len(ids), longest), self.tokenizer.pad_id, dtype=np.int64)
        mask = np.zeros((len(ids), longest), dtype=np.int64)
        for row, row_ids in enumerate(ids):
            padded[row, : len(row_ids)] = row_ids
            mask[row, : len(row_ids)] = 1
        inputs = {"input_ids": torch.from_numpy(padded).to(self.device)}
        if not mask.all():  # without a mask, attention takes its fast path
            inputs["attention_mask"] = torch.from_numpy(mask).to(self.device)
        if self.token_types:
            inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
        return inputs
