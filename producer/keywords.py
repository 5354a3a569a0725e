"""The keyword arguments that describe a run in Python. They have the names, types and defaults of the command line's options."""

from collections.abc import Sequence
from os import PathLike
from typing import TypedDict

from fleet.choices import Dtype, Function


class RunKeywords(TypedDict, total=False):
    """The options of `producer run` and `producer enqueue`, for type checkers. `RunOptions` has their defaults and meaning."""

    crawl: str | None
    dataset: str
    input: str | PathLike[str] | Sequence[str | PathLike[str]]
    text_column: str
    limit_shards: int | None
    limit_rows: int | None
    model: str | PathLike[str]
    scorer: str
    revision: str | None
    dtype: Dtype
    function_to_apply: Function
    min_score: float | None
    where: str | None
    score_blank: bool
    keep_all: bool
    output: str | PathLike[str]
    public: bool
    score_column: str
    row_columns: str
    no_row_columns: bool
    publish_paths: bool
    int_score: bool | None
