"""The command line's options as the keyword arguments of the Python API: `--text-column` is `text_column`."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fleet.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")


def with_keywords(text: str) -> str:
    """The text with options named as keyword arguments."""
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


def with_keywords_of(other: Callable[..., Any]) -> Callable[[Function], Function]:
    """Show the keyword arguments of another function in a signature that says `**options`."""
    parameters = [one for one in inspect.signature(other).parameters.values() if one.kind is one.KEYWORD_ONLY]
    return lambda function: showing(function, parameters)


def showing(function: Function, parameters: Iterable[inspect.Parameter]) -> Function:
    """The function, with these parameters in its signature in place of `**options`. Editors and `help` show them."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    together = sorted([*parameters, *own], key=lambda one: one.kind)  # positional ones first, else in this order
    function.__signature__ = signature.replace(parameters=together)  # type: ignore[attr-defined]
    return function


@contextmanager
def keywords_told() -> Iterator[None]:
    """Name options in errors as a Python user writes them."""
    try:
        yield
    except UsageError as error:
        told = with_keywords(str(error))
        if told == str(error):
            raise
        raise UsageError(told) from error
