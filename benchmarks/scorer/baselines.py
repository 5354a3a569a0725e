"""The baselines: what users did before, verbatim if it was published. Knows nothing of our scorer.

The recipe is that of https://huggingface.co/blog/dask-scaling; only what is marked below differs from it.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import pipeline

from benchmarks.scorer.case import UnavailableError, Values
from shardsift.worker.scoring.device import multiplies_bfloat16

_MIN_EDU_SCORE = 3


class Reference:
    """Score with pandas and a pipeline. Unlike in the article, the pipeline is loaded once, before the clock starts."""

    def __init__(self, model: Path, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = _name(dtype)
        self._sent = _TokenCount()
        self._pipe = _make_pipe(model, dtype, self._sent)

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        rows = pd.DataFrame({"text": texts})

        def run() -> Values:
            self._sent.tokens = 0
            df = rows.copy(deep=False)
            df["edu-classifier-score"] = scores = _compute_scores(self._pipe, df.text)
            df = df[df["edu-classifier-score"] >= _MIN_EDU_SCORE]
            return np.asarray(scores, dtype=np.float32)

        return run

    def tokens_sent(self) -> int:
        return self._sent.tokens


class Dask:
    """Score over Dask partitions: here one partition and one thread, as in each worker of the article.

    The pipeline is loaded while the clock runs, as the article does for each partition.
    """

    dtype = "float32"

    def __init__(self, model: Path) -> None:
        if not importlib.util.find_spec("dask"):
            raise UnavailableError("Dask is not installed.")
        self._model = model
        self._sent = _TokenCount()

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        import dask.dataframe as dd

        df = dd.from_pandas(pd.DataFrame({"text": texts}), npartitions=1)

        def compute_scores(texts: "pd.Series[str]") -> "pd.Series[float]":
            return _compute_scores(_make_pipe(self._model, torch.float32, self._sent), texts)

        def run() -> Values:
            self._sent.tokens = 0
            scores = df.text.map_partitions(compute_scores, meta=pd.Series([0]))
            return np.asarray(scores.compute(scheduler="synchronous"), dtype=np.float32)

        return run

    def tokens_sent(self) -> int:
        return self._sent.tokens


class CrossEncoderPredict:
    """Score with sentence-transformers and its defaults: batches of 32, sorted by length in characters, longest first."""

    def __init__(self, model: Path) -> None:
        if not importlib.util.find_spec("sentence_transformers"):
            raise UnavailableError("sentence-transformers is not installed.")
        from sentence_transformers import CrossEncoder

        class OverSingleTexts(CrossEncoder):
            """A CrossEncoder of single texts. Otherwise a list of texts would count as one pair."""

            def is_singular_input(self, inputs: Any) -> bool:  # type: ignore[override]
                return False

        self._model = OverSingleTexts(str(model), activation_fn=torch.nn.Identity())
        self.dtype = _name(self._model.model.dtype)
        self._sent = _TokenCount()
        self._sent.watch(self._model.model)

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        def run() -> Values:
            self._sent.tokens = 0
            return np.asarray(self._model.predict(texts, show_progress_bar=False), dtype=np.float32)

        return run

    def tokens_sent(self) -> int:
        return self._sent.tokens


def dtype_16bit() -> torch.dtype:
    """Return the 16-bit type that this device multiplies faster than float32. Raises UnavailableError if there is none."""
    device = _device()
    if multiplies_bfloat16(device):
        return torch.bfloat16
    if device.type == "cpu":
        raise UnavailableError("This CPU has neither AMX nor AVX512-BF16: 16 bits are no faster here.")
    return torch.float16


def _device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _make_pipe(model: Path, dtype: torch.dtype, sent: "_TokenCount") -> Any:
    """Load the pipeline. Unlike in the article, the type is explicit: transformers 5 would take it from the checkpoint."""
    pipe = pipeline("text-classification", model=str(model), device=_device(), dtype=dtype)
    sent.watch(pipe.model)
    return pipe


def _compute_scores(pipe: Any, texts: "pd.Series[str]") -> "pd.Series[float]":
    results = pipe(
        texts.to_list(),
        batch_size=768,
        padding="longest",
        truncation=True,
        function_to_apply="none",
    )
    return pd.Series([r["score"] for r in results])


class _TokenCount:
    """Count the tokens that go through a model's embeddings, once per batch."""

    def __init__(self) -> None:
        self.tokens = 0

    def watch(self, model: torch.nn.Module) -> None:
        model.get_input_embeddings().register_forward_pre_hook(self._count)  # type: ignore[operator]

    def _count(self, _module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        self.tokens += inputs[0].numel()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
