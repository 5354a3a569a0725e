"""Time a call."""

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def timed(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> tuple[_R, float]:
    """The result of a call, and the seconds that it took."""
    started = time.perf_counter()
    return function(*args, **kwargs), time.perf_counter() - started
