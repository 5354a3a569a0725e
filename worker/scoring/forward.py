"""Run all batches of a window. Where memory lacks, a batch is halved; a row that fails alone is an errored row."""

from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from worker.scoring.backends import Backend
from worker.scoring.batches import Rows, padded_tokens, plan_batches
from worker.scoring.tokenizing.tokens import Tokens


def ignore(rows: int) -> None:
    """No one watches."""


def forward(
    backend: Backend, tokens: Tokens, *, outputs: int, max_batch_tokens: int, on_batch: Callable[[int], None] = ignore
) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
    """The logits, shape (texts, outputs), and the texts without any, with the reason; those hold NaN.

    What the device computes is fetched once, at the end. Depends on nothing that was scored before: a budget lowered
    by a lack of memory is lowered for this window only, so that the same window is always rounded the same.
    Raises MemoryError where memory lacks for rows no longer than others that fit: then it is the machine, not the row.
    """
    lengths = tokens.lengths
    pending = deque(plan_batches(lengths, max_batch_tokens=max_batch_tokens))
    done: list[tuple[Rows, torch.Tensor]] = []
    errors: dict[int, str] = {}
    rows_done = 0
    while pending:
        batch = pending.popleft()
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
        on_batch(rows_done)
    _check_that_the_rows_are_to_blame(lengths, errors)
    return _fetched(done, (len(tokens), outputs)), errors


def _check_that_the_rows_are_to_blame(lengths: Rows, errors: dict[int, str]) -> None:
    """Else a machine short of memory would turn row after row into errored ones."""
    lost = [row for row, reason in errors.items() if reason == _NO_MEMORY]
    fitted = np.delete(lengths, list(errors))
    if lost and lengths[lost].min() <= fitted.max(initial=0):
        raise MemoryError(
            "Memory lacks for rows that should fit. Free some, or set a smaller SHARDSIFT_MAX_BATCH_TOKENS."
        )


_NO_MEMORY = "not enough memory for this row"


def _try(backend: Backend, batch: Tokens) -> tuple[torch.Tensor | None, str]:
    """The logits, or why not. An error of the device itself is raised: its process is done for."""
    try:
        return backend.logits(batch), ""
    except ValueError as error:  # what transformers raises for a text that it cannot take
        return None, str(error)
    except (RuntimeError, MemoryError) as error:
        if not is_lack_of_memory(error):
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # after the except block, whose traceback holds the batch's tensors
    return None, _NO_MEMORY


_CPU_SIGNS = ("DefaultCPUAllocator: can't allocate memory", "std::bad_alloc")


def is_lack_of_memory(error: RuntimeError | MemoryError) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(sign in str(error) for sign in _CPU_SIGNS)


def _halved(max_batch_tokens: int, reason: str) -> int:
    return max(1, max_batch_tokens // 2) if reason == _NO_MEMORY else max_batch_tokens


def _fetched(done: list[tuple[Rows, torch.Tensor]], shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    """One copy from the device, put into the order of the texts."""
    values = np.full(shape, np.nan, dtype=np.float32)
    if done:
        rows, logits = zip(*done, strict=True)
        values[np.concatenate(rows)] = torch.cat(logits).cpu().numpy()
    return values
