"""Run all batches of a window. A batch that does not fit in memory is halved. A single sequence gets an error instead."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from shardsift.worker.scoring import DeviceFault, GoOn, NoRoom, Scores, always
from shardsift.worker.scoring.backends import Backend
from shardsift.worker.scoring.peak import DeviceWork
from shardsift.worker.scoring.tokenizing.tokens import Int64s, Sequences, Tokens, padded_tokens, plan_batches

Known = npt.NDArray[np.bool_]  # shape (sequences,)

_NO_MEMORY = "not enough memory for this row"
_SIGNS_OF_NO_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",
    "std::bad_alloc",
    "out of memory",  # CUDA error, MPS backend
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
)

# Only one thread at a time may run a model, because graphs and joint encoders hold one batch. There may be a thread for
# each shard in hand, and one that computes a window again after memory ran out.
_DEVICE = threading.Lock()


def launch(
    backend: Backend,
    tokens: Sequences,
    *,
    outputs: int,
    max_batch_tokens: int,
    vocabulary: int | None = None,
    go_on: GoOn = always,
    known: Known | None = None,
    work: DeviceWork | None = None,
) -> Callable[[], Scores]:
    """Give all batches of a window to the device. Returns a function that waits for the scores.

    Any thread may call that function, once. Its result has the logits of each sequence, in order. A batch is skipped if
    all its sequences are `known`. The result's `missing` lists the sequences that were skipped, or not reached because
    `go_on` returned False.

    The same window must always give the same bytes. So a batch is computed as a whole or not at all, and a token budget
    that is lowered for lack of memory applies only to this window. If memory runs out only while the function waits,
    it computes the window again with half the budget.

    A sequence is errored if it has an id outside the model's `vocabulary`, or does not fit in memory alone. Raises
    MemoryError instead if a sequence at least as long did fit, because then the machine is short of memory. Raises
    DeviceFault if the device fails.
    """
    run = partial(_run_batches, backend, tokens, vocabulary=vocabulary, go_on=go_on, known=known, work=work)
    done, errors = run(max_batch_tokens)

    def fetched() -> Scores:
        found, budget = (done, errors), max_batch_tokens
        while True:
            try:
                return _scores(*found, (len(tokens), outputs))
            except MemoryError:
                if budget <= tokens.batch_lengths.max():
                    raise
            budget //= 2
            found = run(budget)

    return fetched


def _run_batches(
    backend: Backend,
    tokens: Sequences,
    max_batch_tokens: int,
    *,
    vocabulary: int | None,
    go_on: GoOn,
    known: Known | None,
    work: DeviceWork | None,
) -> tuple[list[tuple[Int64s, torch.Tensor]], dict[int, str]]:
    lengths = tokens.batch_lengths
    pending = deque(plan_batches(lengths, max_batch_tokens=max_batch_tokens))
    done: list[tuple[Int64s, torch.Tensor]] = []
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
        taken = tokens.take(batch)
        logits, reason = _try(backend, taken, vocabulary)
        if logits is not None:
            done.append((batch, logits))
            if work:
                with _DEVICE:
                    work.add(taken.lengths)
        elif len(batch) > 1:
            if reason == _NO_MEMORY:
                max_batch_tokens = max(1, max_batch_tokens // 2)
            pending.extendleft(reversed(np.array_split(batch, 2)))
            continue
        else:
            errors[int(batch[0])] = reason
        rows_done += len(batch)
        if not go_on(rows_done):
            break
    _check_memory(lengths, [batch for batch, _ in done], errors)
    return done, errors


def _check_memory(lengths: Int64s, fitted: list[Int64s], errors: dict[int, str]) -> None:
    lost = [row for row, reason in errors.items() if reason == _NO_MEMORY]
    longest_fitted = max((int(lengths[batch].max()) for batch in fitted), default=0)
    if lost and lengths[lost].min() <= longest_fitted:
        raise MemoryError(
            "Out of memory on rows that should fit. Free some memory or lower SHARDSIFT_MAX_BATCH_TOKENS."
        )


def _try(backend: Backend, batch: Tokens, vocabulary: int | None) -> tuple[torch.Tensor | None, str]:
    """Compute a batch. Returns the logits, or the reason why there are none.

    Raises DeviceFault for an error that is due neither to the text nor to a lack of memory.
    """
    highest = int(batch.ids.max())
    if vocabulary and highest >= vocabulary:  # on a GPU, such an id would end the process
        return None, f"the tokenizer's id {highest} is not among the model's {vocabulary}"
    try:
        with _DEVICE:
            return backend.logits(batch), ""
    except ValueError as error:  # transformers raises it for a text that it cannot handle
        return None, str(error)
    except (RuntimeError, MemoryError) as error:
        if not is_lack_of_memory(error):
            raise DeviceFault(str(error)) from error
    _empty_cache()  # not in the except block, whose traceback holds the batch's tensors
    return None, _NO_MEMORY


def _empty_cache() -> None:
    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.empty_cache()
    except RuntimeError as error:  # the device has failed, and the lack of memory was the first sign
        raise DeviceFault(str(error)) from error


@contextmanager
def room_or(complaint: str) -> Iterator[None]:
    """Raise NoRoom with the message `complaint` if the block runs out of memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        raise NoRoom(complaint) from error


def is_lack_of_memory(error: RuntimeError | MemoryError) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        sign in str(error) for sign in _SIGNS_OF_NO_MEMORY
    )


def _scores(done: list[tuple[Int64s, torch.Tensor]], errors: dict[int, str], shape: tuple[int, int]) -> Scores:
    values = np.full(shape, np.nan, dtype=np.float32)
    missing = np.ones(shape[0], dtype=np.bool_)
    if done:
        rows = np.concatenate([batch for batch, _ in done])
        values[rows] = _fetched([logits for _, logits in done])
        missing[rows] = False
    missing[list(errors)] = False
    return Scores(values=values, errors=errors, missing=np.flatnonzero(missing)).with_errors()


def _fetched(logits: list[torch.Tensor]) -> npt.NDArray[np.float32]:
    """Copy all logits from the device at once. Raises errors of batches that a GPU had not computed yet.

    These are MemoryError for a lack of memory, and DeviceFault for any other error.
    """
    try:
        fetched: npt.NDArray[np.float32] = torch.cat(logits).cpu().numpy()
    except RuntimeError as error:
        kind = MemoryError if is_lack_of_memory(error) else DeviceFault
        raise kind(str(error)) from error
    return fetched
