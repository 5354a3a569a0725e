"""Score texts in this process: `shardsift.score` and `shardsift.load_scorer`. Knows no queue and no Redis."""

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet.choices import Backend, Dtype, Function
from fleet.defaults import DEFAULT_MODEL
from fleet.model import SEQUENCE_CLASSIFIER, Model
from worker.scoring import Scorer, ScorerInfo

Floats = npt.NDArray[np.float32]


class LoadOptions(TypedDict, total=False):
    """The keyword arguments of `load_scorer`."""

    revision: str | None
    scorer: str
    dtype: Dtype
    device: str | None
    backend: Backend | None
    max_batch_tokens: int | None
    compile: bool | None
    threads: int | None
    parity_rows: int | None


def score(
    texts: Iterable[str | None],
    model: "str | PathLike[str] | LoadedScorer" = DEFAULT_MODEL,
    *,
    function_to_apply: Function = "none",
    score_blank: bool = False,
    **load_options: Unpack[LoadOptions],
) -> Floats:
    """Score texts with a sequence classifier: a Hub name, a folder, or what `load_scorer` returned.

    >>> shardsift.score(["The mitochondrion is the powerhouse of the cell.", "Buy now!"])
    array([2.7, 0.1], dtype=float32)
    >>> frame["score"] = shardsift.score(frame["text"])

    Returns float32 scores in the order of the texts: shape (rows,) for a model with one output, otherwise (rows, labels), with
    the labels in the order of `load_scorer(model).labels`. They are the scores that a run with the same options publishes.

    texts: a list, an iterator, a numpy or Arrow array, or a pandas or polars Series. Of a table, pass one column. An iterator
        is read 8,192 texts at a time.
    model: loaded for this call if it is a name or a folder. To score more than once, load it once with `load_scorer`.
    function_to_apply: turns logits into scores, as in a transformers pipeline. The default keeps the raw logits.
    score_blank: also score texts of white space only. As in a run, they are not scored by default.
    load_options: any keyword argument of `load_scorer`.

    A row that cannot be scored is NaN: a missing text (None or NaN), a blank text, a text without a token.
    `LoadedScorer.table` says why. Raises TypeError for what is not a column of texts, and UsageError for a model that
    cannot be loaded.
    """
    raise NotImplementedError


def load_scorer(
    model: str | PathLike[str] = DEFAULT_MODEL,
    *,
    revision: str | None = None,
    scorer: str = SEQUENCE_CLASSIFIER,
    dtype: Dtype = "auto",
    device: str | None = None,
    backend: Backend | None = None,
    max_batch_tokens: int | None = None,
    compile: bool | None = None,
    threads: int | None = None,
    parity_rows: int | None = None,
) -> "LoadedScorer":
    """Load a model onto the best device of this machine, to score with it more than once.

    >>> scorer = shardsift.load_scorer("HuggingFaceFW/fineweb-edu-classifier")
    >>> scorer
    <Scorer HuggingFaceFW/fineweb-edu-classifier@284663f float32 on cpu, 1 output>
    >>> scorer.score(["The mitochondrion is the powerhouse of the cell."])
    array([2.7], dtype=float32)

    model: a Hub name or a folder.
    revision: branch, tag or commit of a Hub model. Default: the current main.
    scorer: the kind of scorer that loads the model. Packages can add their own: see examples/own_scorer.
    dtype: precision of the model. "auto" is 16 bits if the device is fast at it, otherwise float32.

    The other arguments change the speed, not the scores. If they are None they are read from the environment, as a worker
    reads them: SHARDSIFT_DEVICE, SHARDSIFT_BACKEND and so on. docs/settings.md describes them.

    Like a worker, this scores sample texts in float32 too and refuses a model whose fast scores differ. That takes seconds;
    `parity_rows=0` leaves it out. Raises UsageError if the model cannot be found, loaded or trusted.
    """
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True, repr=False)
class LoadedScorer:
    """A scorer on a device of this machine. `load_scorer` returns it."""

    model: Model
    scorer: Scorer[Any]

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each output of the model, in the order of the scores."""
        return self.model.labels

    @property
    def info(self) -> ScorerInfo:
        """Device, precision, backend and batch size, and how far the fast scores are from those in float32."""
        return self.scorer.info

    def score(
        self, texts: Iterable[str | None], *, function_to_apply: Function = "none", score_blank: bool = False
    ) -> Floats:
        """The scores of texts, as `shardsift.score` returns them."""
        raise NotImplementedError

    def table(
        self, texts: Iterable[str | None], *, function_to_apply: Function = "none", score_blank: bool = False
    ) -> pa.Table:
        """The columns that a run writes for each row: `score`, for several labels `score_label`, and `error`.

        >>> scorer.table(["The mitochondrion is the powerhouse of the cell.", ""]).to_pandas()
           score       error
        0    2.7        None
        1    NaN  blank text

        For a model with several labels, `score` is the highest and `score_label` names its label.
        """
        raise NotImplementedError
