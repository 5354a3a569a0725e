"""All batches of a window are scored or fail properly: without memory, with a bad row, or on a broken device."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from shardsift.worker.scoring import DeviceFault, Scores
from shardsift.worker.scoring.forward import launch
from shardsift.worker.scoring.tokenizing.tokens import Tokens

OUTPUTS = 2


@dataclass
class MeanOfIds:
    """A backend whose logits identify their text. It fails as `failing` says, and records the sizes of its batches."""

    failing: Callable[[Tokens], Exception | None] = lambda batch: None
    tried: list[list[int]] = field(default_factory=list)  # the lengths of each batch
    name: str = "stand-in"

    def logits(self, batch: Tokens) -> torch.Tensor:
        self.tried.append(batch.lengths.tolist())
        if error := self.failing(batch):
            raise error
        return torch.tensor([[batch[i].mean(), len(batch[i])] for i in range(len(batch))], dtype=torch.float32)


def window(lengths: list[int]) -> Tokens:
    """Token ids in which text i consists of the id i."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens(ids=np.repeat(np.arange(len(lengths)), lengths).astype(np.int32), offsets=offsets)


def forward(backend: MeanOfIds, tokens: Tokens, **options: Any) -> Scores:
    return launch(backend, tokens, outputs=OUTPUTS, **options)()


def padded(batch: Tokens) -> int:
    return len(batch) * int(batch.lengths.max())


def above(limit: int, error: type[Exception] | str) -> Callable[[Tokens], Exception | None]:
    """A device with room for `limit` padded tokens."""
    lack = (
        error("out of memory")
        if isinstance(error, type)
        else RuntimeError(f"[enforce fail at alloc_cpu.cpp:121] {error}")
    )
    return lambda batch: lack if padded(batch) > limit else None


LENGTHS = [7, 3, 64, 64, 12, 40, 1, 64, 33, 5, 5, 29]
EXPECTED = np.array([[i, length] for i, length in enumerate(LENGTHS)], dtype=np.float32)


LACKS = [
    torch.OutOfMemoryError,
    "DefaultCPUAllocator: can't allocate memory: you tried",
    "CUDA error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
]


@pytest.mark.parametrize(("error", "room"), [*zip(LACKS, (64, 65, 100, 200, 400), strict=True)])
def test_if_memory_lacks_all_rows_are_scored_in_smaller_batches(room: int, error: type[Exception] | str) -> None:
    backend = MeanOfIds(failing=above(room, error))

    scores = forward(backend, window(LENGTHS), max_batch_tokens=1024)

    assert scores.values.tolist() == EXPECTED.tolist()
    assert scores.errors == {}


def test_a_window_is_batched_the_same_whatever_went_before() -> None:
    backend = MeanOfIds(failing=above(100, torch.OutOfMemoryError))

    forward(backend, window(LENGTHS), max_batch_tokens=512)
    first, backend.tried = backend.tried, []
    forward(backend, window(LENGTHS), max_batch_tokens=512)

    assert backend.tried == first


def test_a_row_too_large_for_the_memory_is_an_errored_row_and_the_others_keep_their_scores() -> None:
    backend = MeanOfIds(failing=above(50, torch.OutOfMemoryError))

    scores = forward(backend, window(LENGTHS), max_batch_tokens=1024)

    too_long = [row for row, length in enumerate(LENGTHS) if length > 50]
    assert scores.errors == dict.fromkeys(too_long, "not enough memory for this row")
    assert np.isnan(scores.values[too_long]).all()
    kept = [row for row in range(len(LENGTHS)) if row not in too_long]
    assert scores.values[kept].tolist() == EXPECTED[kept].tolist()


def test_memory_that_lacks_for_short_rows_too_is_the_machines_fault_and_loses_no_row() -> None:
    lack = torch.OutOfMemoryError("out of memory")
    backend = MeanOfIds(failing=lambda batch: lack if 8 in batch.ids else None)

    with pytest.raises(MemoryError, match="rows that should fit.*SHARDSIFT_MAX_BATCH_TOKENS"):
        forward(backend, window(LENGTHS), max_batch_tokens=1024)


def test_a_row_that_the_model_refuses_is_an_errored_row_and_the_others_keep_their_scores() -> None:
    refusal = ValueError("All examples must have the same number of <eos> tokens.")
    backend = MeanOfIds(failing=lambda batch: refusal if 5 in batch.ids else None)

    scores = forward(backend, window(LENGTHS), max_batch_tokens=1024)

    assert scores.errors == {5: "All examples must have the same number of <eos> tokens."}
    assert np.delete(scores.values, 5, axis=0).tolist() == np.delete(EXPECTED, 5, axis=0).tolist()


def test_an_error_of_the_device_ends_the_scoring() -> None:
    backend = MeanOfIds(failing=lambda batch: RuntimeError("CUDA error: an illegal memory access was encountered"))

    with pytest.raises(DeviceFault, match="illegal memory access"):
        forward(backend, window(LENGTHS), max_batch_tokens=1024)


class Unfetched(torch.Tensor):
    """Logits that lack memory when they are fetched, as the errors of a GPU's queued work do, if the batches were large."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.cat and max(map(len, args[0])) > 2:
            raise RuntimeError("CUDA error: out of memory")
        return super().__torch_function__(func, types, args, kwargs)


class FetchedLate(MeanOfIds):
    def logits(self, batch: Tokens) -> torch.Tensor:
        return super().logits(batch).as_subclass(Unfetched)


def test_memory_that_lacks_when_the_scores_are_fetched_halves_the_batches_too() -> None:
    backend = FetchedLate()

    scores = forward(backend, window([64] * 8), max_batch_tokens=512)

    assert scores.values[:, 0].tolist() == list(range(8))
    assert [len(batch) for batch in backend.tried] == [8, 4, 4, 2, 2, 2, 2]


def test_progress_counts_every_row_once() -> None:
    told: list[int] = []
    backend = MeanOfIds(failing=above(100, torch.OutOfMemoryError))

    forward(backend, window(LENGTHS), max_batch_tokens=512, go_on=lambda rows: told.append(rows) or True)

    assert told == sorted(set(told))
    assert told[-1] == len(LENGTHS)


def test_scoring_that_is_ended_gives_what_it_has_and_says_what_is_missing() -> None:
    scores = forward(MeanOfIds(), window(LENGTHS), max_batch_tokens=128, go_on=lambda rows: rows < 4)

    known = np.flatnonzero(scores.known)
    assert not scores.has_all_rows
    assert scores.values[known].tolist() == EXPECTED[known].tolist()
    assert np.isnan(scores.values[scores.missing]).all()
    assert 4 <= len(known) < len(LENGTHS)


def test_only_batches_that_lack_a_score_are_computed_and_always_whole() -> None:
    backend, undisturbed = MeanOfIds(), MeanOfIds()
    first = forward(MeanOfIds(), window(LENGTHS), max_batch_tokens=128, go_on=lambda rows: rows < 6)
    known = first.known
    known[np.flatnonzero(known)[-1]] = False  # as if the batches of another worker had ended elsewhere

    forward(undisturbed, window(LENGTHS), max_batch_tokens=128)
    rest = forward(backend, window(LENGTHS), max_batch_tokens=128, known=known)

    assert set(map(tuple, backend.tried)) < set(map(tuple, undisturbed.tried))
    assert rest.filled_from(first).values.tolist() == EXPECTED.tolist()
    assert rest.filled_from(first).has_all_rows
