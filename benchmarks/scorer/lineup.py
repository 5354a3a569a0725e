"""Load a model once for each contender, and time the loading."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.scorer.baselines import CrossEncoderPredict, Dask, Reference, dtype_16bit
from benchmarks.scorer.case import Contender, Name, UnavailableError
from benchmarks.scorer.ours import Ours, OurSettings, OursForward, load_ours
from benchmarks.scorer.whole_shard import OursShard
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier


@dataclass(frozen=True, kw_only=True)
class Loaded:
    contender: Contender
    load_seconds: float
    parallelism: str | None  # TOKENIZERS_PARALLELISM after it was loaded

    @contextmanager
    def own_environment(self) -> Iterator[None]:
        """Restore the environment variable that this contender left after loading.

        A pipeline turns off the tokenizers' threads for the whole process.
        """
        with _tokenizers_parallelism(self.parallelism):
            yield


@dataclass(kw_only=True)
class Lineup:
    contenders: dict[Name, Loaded] = field(default_factory=dict)
    unavailable: dict[Name, str] = field(default_factory=dict)  # with the reason
    scorer: SequenceClassifier | None = None  # ours, if it takes part


def load_lineup(names: Iterable[Name], model: Path, settings: OurSettings) -> Lineup:
    """Load the contenders in the order of `Name`. Records contenders that cannot run here, and leaves them out."""
    lineup = Lineup()
    wanted = set(names)
    for name in (name for name in Name if name in wanted):
        try:
            lineup.contenders[name] = _load(name, model, settings, lineup)
        except UnavailableError as error:
            lineup.unavailable[name] = str(error)
    return lineup


def _load(name: Name, model: Path, settings: OurSettings, lineup: Lineup) -> Loaded:
    with _tokenizers_parallelism(None):
        start = time.perf_counter()
        contender = _contender(name, model, settings, lineup)
        return Loaded(
            contender=contender,
            load_seconds=time.perf_counter() - start,
            parallelism=os.environ.get(_PARALLELISM),
        )


def _contender(name: Name, model: Path, settings: OurSettings, lineup: Lineup) -> Contender:
    match name:
        case Name.REFERENCE:
            return Reference(model)
        case Name.REFERENCE_16BIT:
            return Reference(model, dtype_16bit())
        case Name.DASK:
            return Dask(model)
        case Name.CROSS_ENCODER:
            return CrossEncoderPredict(model)
    lineup.scorer = lineup.scorer or load_ours(model, settings)
    ways: dict[Name, Callable[[SequenceClassifier], Contender]] = {
        Name.OURS: Ours,
        Name.OURS_SHARD: OursShard,
        Name.OURS_FORWARD: OursForward,
    }
    return ways[name](lineup.scorer)


_PARALLELISM = "TOKENIZERS_PARALLELISM"


@contextmanager
def _tokenizers_parallelism(value: str | None) -> Iterator[None]:
    before = os.environ.pop(_PARALLELISM, None)
    if value is not None:
        os.environ[_PARALLELISM] = value
    try:
        yield
    finally:
        os.environ.pop(_PARALLELISM, None)
        if before is not None:
            os.environ[_PARALLELISM] = before
