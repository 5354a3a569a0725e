"""The keyword arguments that describe a run in Python: the command line's options, by the same names.

`RunOptions` has their types, defaults and meaning. They are named again here only for type checkers and editors.
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import Any, TypedDict, TypeVar, get_type_hints

from fleet.errors import UsageError
from fleet.process.command_line import checked, options_help, showing
from fleet.run.choices import Dtype, Function
from producer.planning.options import RunOptions

Place = str | PathLike[str]  # a path or a URI
_Function = TypeVar("_Function", bound=Callable[..., Any])
_RENAMED = {
    "input_uris": "input",
    "models": "model",
    "output_uri": "output",
}  # as on the command line


class RunKeywords(TypedDict, total=False):
    """The options of `producer run` and `producer enqueue`."""

    crawl: str | None
    dataset: str
    input: Place | Sequence[Place]
    columns: str | None
    text_column: str | None
    text_pair_column: str | None
    max_tokens: int | None
    passages: str | None
    limit_rows: int | None
    max_bad_rows: float
    model: Place | Sequence[Place] | Mapping[str, Place]
    scorer: str
    labels: Sequence[str]
    hypothesis_template: str | None
    multi_label: bool
    dtype: Dtype
    function_to_apply: Function | None
    min_score: float | None
    where: str | None
    keep_all: bool
    output: Place
    public: bool
    row_columns: str


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """The options of a run. Raises TypeError for an unknown keyword, UsageError for a wrong value."""
    types = get_type_hints(RunOptions, include_extras=True)
    names = {keyword(field.name): field.name for field in fields(RunOptions)}
    chosen = {}
    for name, value in given.items():
        if name not in names:
            raise TypeError(f"There is no option {name!r}. The options are: {', '.join(names)}.")
        chosen[names[name]] = checked(name, _plain(names[name], value), types[names[name]])
    return RunOptions(**chosen)


def keyword(field: str) -> str:
    """The keyword for a field of RunOptions."""
    return _RENAMED.get(field, field)


def places(name: str, given: Place | Sequence[Place]) -> tuple[str, ...]:
    """One path or URI, or several, as texts. Raises UsageError, which names the keyword, for anything else."""
    several = [given] if isinstance(given, (str, PathLike)) else given
    try:
        return tuple(os.fspath(place) for place in several)
    except TypeError as error:
        raise UsageError(f"{name}={given!r} is wrong: it takes a path or URI, or a list of them.") from error


def with_run_keywords(function: _Function) -> _Function:
    """Show the options of a run in a function's signature and help, where it says `**options`."""
    types = get_type_hints(RunKeywords)
    options = [
        inspect.Parameter(
            keyword(field.name),
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=types[keyword(field.name)],
        )
        for field in fields(RunOptions)
    ]
    function.__doc__ = (
        f"{inspect.cleandoc(function.__doc__ or '')}\n\nThe options of a run:\n\n{options_help(RunOptions, keyword)}"
    )
    return showing(function, options)


def _plain(field: str, value: Any) -> Any:
    """Paths as texts, and one input or model as several."""
    if field == "models" and isinstance(value, Mapping):
        return tuple(
            f"{name}={model}" for name, model in zip(value, places("model", list(value.values())), strict=True)
        )
    if field in ("input_uris", "models"):
        return places(keyword(field), value)
    return os.fspath(value) if isinstance(value, PathLike) else value
