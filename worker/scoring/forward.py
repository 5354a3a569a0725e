"""Run all batches of a window. Where memory lacks, a batch is halved; a row that fails alone is an errored row."""

from collections import deque

import numpy as np
import numpy.typing as npt
import torch

from worker.scoring.backends import Backend
from worker.scoring.batches import Rows, padded_tokens, plan_batches
from worker.scoring.errors import DeviceFault
from worker.scoring.rows import GoOn, Scores, always
from worker.scoring.tokenizing.tokens import Tokens

Known = npt.NDArray[np.bool_]  # shape (texts,)


def forward(
    backend: Backend,
    tokens: Tokens,
    *,
    outputs: int,
    max_batch_tokens: int,
    go_on: GoOn = always,
    known: Known | None = None,
) -> Scores:
    """The logits of texts, in their order; `missing` are texts of batches that were not reached, or wholly `known`.

    What the device computes is fetched once, at the end. Depends on nothing that was scored before: a budget lowered
    by a lack of memory is lowered for this window only, so that the same window is always rounded the same. For the same
    reason a batch is computed whole or not at all.
    Raises MemoryError where memory lacks for rows no longer than others that fit: then it is the machine, not the row;
    DeviceFault where the device fails.
    """
    lengths = tokens.lengths
    pending = deque(plan_batches(lengths, max_batch_tokens=max_batch_tokens))
    done: list[tuple[Rows, torch.Tensor]] = []
    errors: dict[int, str] = {}
    rows_done = 0
    while pending:
        batch = pending.popleft()
        if known is not None and known[batch].all():
            rows_done += len(batch)
            continue
        if len(batch) > 1 and padded_tokens(lengths, batch) > max_batch_tokens:
            pending.extendleft(reversed(np.array_split(batch, 2)))
            continue
        logits, reason = _try(backend, tokens.take(batch))
        if logits is not None:
            done.append((batch, logits))
        elif len(batch) > 1:
            max_batch_tokens = _halved(max_batch_tokens, reason)
            pending.extendleft(reversed(np.array_split(batch, 2)))
            continue
        else:
            errors[int(batch[0])] = reason
        rows_done += len(batch)
        if not go_on(rows_done):
            break
    _check_that_the_rows_are_to_blame(lengths, [batch for batch, _ in done], errors)
    return _scores(done, errors, (len(tokens), outputs))


def _check_that_the_rows_are_to_blame(lengths: Rows, fitted: list[Rows], errors: dict[int, str]) -> None:
    """Else a machine short of memory would turn row after row into errored ones."""
    lost = [row for row, reason in errors.items() if reason == _NO_MEMORY]
    longest_fitted = max((int(lengths[batch].max()) for batch in fitted), default=0)
    if lost and lengths[lost].min() <= longest_fitted:
        raise MemoryError(
            "Memory lacks for rows that should fit. Free some, or set a smaller SHARDSIFT_MAX_BATCH_TOKENS."
        )


_NO_MEMORY = "not enough memory for this row"


def _try(backend: Backend, batch: Tokens) -> tuple[torch.Tensor | None, str]:
    """The logits, or why not. Raises DeviceFault for an error that is neither the text's nor a lack of memory."""
    try:
        return backend.logits(batch), ""
    except ValueError as error:  # what transformers raises for a text that it cannot take
        return None, str(error)
    except (RuntimeError, MemoryError) as error:
        if not is_lack_of_memory(error):
            raise DeviceFault(str(error)) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # after the except block, whose traceback holds the batch's tensors
    return None, _NO_MEMORY


_CPU_SIGNS = ("DefaultCPUAllocator: can't allocate memory", "std::bad_alloc")


def is_lack_of_memory(error: RuntimeError | MemoryError) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(sign in str(error) for sign in _CPU_SIGNS)


def _halved(max_batch_tokens: int, reason: str) -> int:
    return max(1, max_batch_tokens // 2) if reason == _NO_MEMORY else max_batch_tokens


def _scores(done: list[tuple[Rows, torch.Tensor]], errors: dict[int, str], shape: tuple[int, int]) -> Scores:
    values = np.full(shape, np.nan, dtype=np.float32)
    missing = np.ones(shape[0], dtype=np.bool_)
    if done:
        rows = np.concatenate([batch for batch, _ in done])
        values[rows] = _fetched([logits for _, logits in done])
        missing[rows] = False
    missing[list(errors)] = False
    odd = np.flatnonzero(~missing & ~np.isfinite(values).all(axis=1)).tolist()
    errors = dict.fromkeys(odd, "score is not finite") | errors
    values[list(errors)] = np.nan
    return Scores(values=values, errors=errors, missing=np.flatnonzero(missing))


def _fetched(logits: list[torch.Tensor]) -> npt.NDArray[np.float32]:
    """One copy from the device, where errors of what was queued there show."""
    try:
        fetched: npt.NDArray[np.float32] = torch.cat(logits).cpu().numpy()
    except RuntimeError as error:
        if is_lack_of_memory(error):
            raise
        raise DeviceFault(str(error)) from error
    return fetched
