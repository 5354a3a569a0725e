"""The command line's options as the keyword arguments of the Python API: `--text-column` is `text_column`."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from textwrap import fill
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fleet.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
_WIDTH = 110
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


def options_help(kind: type[Any], keyword: Callable[[str], str] = str) -> str:
    """A line for each field of a class of options. `keyword` gives the name of a field in Python."""
    types = get_type_hints(kind, include_extras=True)
    helps = {keyword(field.name): types[field.name].__metadata__[0].help for field in fields(kind)}
    lines = [with_keywords(f"{name}: {text}") for name, text in helps.items()]
    return "\n".join(fill(line, _WIDTH, subsequent_indent="    ") for line in lines)


def checked(name: str, value: Any, annotation: Any) -> Any:
    """The value, if it has the type of the option and lies within its limits. Raises UsageError, which names the keyword."""
    kind, option = get_args(annotation)
    try:
        found = TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{name}={value!r} is wrong: {error.errors()[0]['msg']}.") from error
    if option.min is not None and found is not None and found < option.min:
        raise UsageError(f"{name}={value!r} is wrong: the least is {option.min}.")
    if option.max is not None and found is not None and found > option.max:
        raise UsageError(f"{name}={value!r} is wrong: the most is {option.max}.")
    return found


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
