"""Time the contenders of a case in turns, on the same texts in the same run. Does not interpret the figures."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, PreTrainedTokenizerBase

from benchmarks.scorer.case import Case, Name, Values
from benchmarks.scorer.lineup import Lineup
from benchmarks.scorer.models import MAX_TOKENS
from benchmarks.scorer.ours import tokenizer_rows_per_core_second
from benchmarks.scorer.texts import make_texts
from shardsift.fleet.run.flops import Shape
from shardsift.worker.scoring.device import best_device
from shardsift.worker.scoring.peak import finish, matmul_peak


@dataclass(frozen=True, kw_only=True)
class Round:
    """The measurements of a round, in which each contender runs once."""

    seconds: dict[Name, float]
    processor_seconds: dict[Name, float]  # of all threads; other work on the machine does not count
    peaks: dict[str, float]  # operations per second of a matmul before this round, by number format

    @property
    def cores(self) -> float:
        """The cores that the contenders used: fewer than their threads if other work used the machine."""
        return sum(self.processor_seconds.values()) / sum(self.seconds.values())


@dataclass(frozen=True, kw_only=True)
class Entrant:
    dtype: str
    load_seconds: float
    tokens_sent: int  # padding included
    max_difference: float | None  # between a score and the reference's; None without a reference


@dataclass(frozen=True, kw_only=True)
class OurFacts:
    backend: str
    dtype: str
    max_batch_tokens: int
    tokenizer_rows_per_core_second: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    case: Case
    tokens: int  # of all texts after truncation, special tokens included
    truncated: float  # share of texts that reach the model's limit
    operations: float  # floating-point operations for those tokens
    score_spread: float  # standard deviation of the scores, to compare differences with
    entrants: dict[Name, Entrant]
    unavailable: dict[Name, str]  # contenders that could not take part, with the reason
    rounds: list[Round]
    ours: OurFacts | None  # None if ours did not take part


def compare(
    case: Case,
    lineup: Lineup,
    *,
    model: Path,
    tokenizer: PreTrainedTokenizerBase,
    warmup_rows: int,
    say: Callable[[str], None],
) -> Comparison:
    """Warm up, then run `case.repeats` rounds. A contender that runs out of memory is recorded and drops out."""
    texts = make_texts(case.lengths, case.rows, tokenizer=tokenizer)
    lengths = _token_lengths(texts, tokenizer)
    shape = Shape.of(AutoConfig.from_pretrained(model))
    contest = _Contest(case, lineup, texts, warmup_rows, say)
    rounds = [contest.round(number, shape) for number in range(case.repeats)]
    return Comparison(
        case=case,
        tokens=int(lengths.sum()),
        truncated=float((lengths == MAX_TOKENS).mean()),
        operations=float(shape.flops(lengths).sum()),
        score_spread=contest.score_spread(),
        entrants={name: contest.entrant(name) for name in contest.jobs},
        unavailable=contest.unavailable,
        rounds=rounds,
        ours=_facts_of_ours(lineup, texts),
    )


class _Contest:
    def __init__(
        self, case: Case, lineup: Lineup, texts: list[str], warmup_rows: int, say: Callable[[str], None]
    ) -> None:
        self.unavailable = {name: why for name, why in lineup.unavailable.items() if name in case.contenders}
        self.jobs: dict[Name, Callable[[], Values]] = {}
        self._loaded = {name: lineup.contenders[name] for name in case.contenders if name in lineup.contenders}
        self._values: dict[Name, Values] = {}
        self._say = say
        for name, loaded in self._loaded.items():
            self.jobs[name] = loaded.contender.prepare(texts[:warmup_rows])
            if self._run(name) is not None:
                self.jobs[name] = loaded.contender.prepare(texts)

    def round(self, number: int, shape: Shape) -> Round:
        """Run each contender once. Every other round has the reverse order.

        Otherwise a contender would always run on a processor that another has heated.
        """
        names = list(self.jobs) if number % 2 == 0 else list(reversed(self.jobs))
        dtypes = {self._loaded[name].contender.dtype for name in names}
        peaks = {dtype: matmul_peak(shape, getattr(torch, dtype), best_device()) for dtype in sorted(dtypes)}
        taken = {name: seconds for name in names if (seconds := self._run(name)) is not None}
        self._say(f"  round {number + 1}: " + ", ".join(f"{name} {wall:.2f} s" for name, (wall, _) in taken.items()))
        return Round(
            seconds={name: wall for name, (wall, _) in taken.items()},
            processor_seconds={name: processor for name, (_, processor) in taken.items()},
            peaks=peaks,
        )

    def entrant(self, name: Name) -> Entrant:
        loaded = self._loaded[name]
        reference = self._values.get(Name.REFERENCE)
        return Entrant(
            dtype=loaded.contender.dtype,
            load_seconds=loaded.load_seconds,
            tokens_sent=loaded.contender.tokens_sent(),
            max_difference=None if reference is None else float(np.abs(self._values[name] - reference).max()),
        )

    def score_spread(self) -> float:
        return float(np.std(next(iter(self._values.values())))) if self._values else 0.0

    def _run(self, name: Name) -> tuple[float, float] | None:
        """Return wall-clock and processor seconds of one run. If memory runs out, drop the contender and return None."""
        gc.collect()
        try:
            with self._loaded[name].own_environment():
                wall, processor, self._values[name] = _timed(self.jobs[name])
        except torch.OutOfMemoryError as error:
            self.unavailable[name] = f"Out of memory: {str(error).splitlines()[0]}"
            del self.jobs[name]
            self._values.pop(name, None)
            return None
        return wall, processor


def _timed(job: Callable[[], Values]) -> tuple[float, float, Values]:
    finish(best_device())
    wall, processor = time.perf_counter(), time.process_time()
    values = job()
    finish(best_device())
    return time.perf_counter() - wall, time.process_time() - processor, values


def _token_lengths(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> npt.NDArray[np.int64]:
    """Count tokens with transformers itself, truncated as the pipeline does."""
    ids = tokenizer(texts, truncation=True, max_length=MAX_TOKENS, return_attention_mask=False)["input_ids"]
    return np.array([len(row) for row in ids], dtype=np.int64)


def _facts_of_ours(lineup: Lineup, texts: list[str]) -> OurFacts | None:
    if lineup.scorer is None:
        return None
    return OurFacts(
        backend=lineup.scorer.backend.name,
        dtype=lineup.scorer.dtype,
        max_batch_tokens=lineup.scorer.max_batch_tokens,
        tokenizer_rows_per_core_second=tokenizer_rows_per_core_second(lineup.scorer, texts),
    )
