"""Options that are defined once, by a dataclass whose fields are annotated for Typer.

`with_options_of` adds them to a command, and `options_from` reads them from keyword arguments of a Python function,
where `--text-column` is `text_column`. A TypedDict beside the dataclass has the types of the keyword arguments.
"""

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from textwrap import fill
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import local_path

Location: TypeAlias = str | PathLike[str]  # a path, a URI, or a name on the Hub
Names: TypeAlias = str | Sequence[str]  # a list, or a text with commas as on the command line
Command = Callable[..., None]
SEVERAL = tuple[str, ...]  # the type of an option that may be given more than once
Kind = TypeVar("Kind")
Function = TypeVar("Function", bound=Callable[..., Any])
_WIDTH = 110
_OPTION = re.compile(r"(?<=: )(?:producer|worker|shardsift) .+$|(?<![\w-])--([a-z][a-z-]*[a-z])")  # keeps a command


def with_options_of(
    kind: type[Any], **parsed: Callable[[Sequence[str]], Sequence[str]]
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command an option for each annotated field of `kind`.

    The command gets an instance of `kind` as its first argument. An option may be repeated if its field is a tuple.
    `parsed` maps the name of such a field to a function that parses its values.
    """
    shared = [
        parameter.replace(annotation=_as_typer_takes_it(parameter.annotation))
        for parameter in inspect.signature(kind).parameters.values()
    ]

    def decorated(command: Command) -> Command:
        own = list(inspect.signature(command).parameters.values())[1:]

        @wraps(command)
        def collected(**given: Any) -> None:
            options = {parameter.name: given.pop(parameter.name) for parameter in shared}
            options |= {name: tuple(value) for name, value in options.items() if isinstance(value, list)}
            options |= {name: tuple(parse(options[name])) for name, parse in parsed.items() if options[name]}
            command(kind(**options), **given)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*shared, *own)]
        collected.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        collected.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return collected

    return decorated


def _as_typer_takes_it(annotation: Any) -> Any:
    """Annotate a repeatable option as a list. Typer treats a tuple as one option with several values."""
    if get_args(annotation)[:1] != (SEVERAL,):
        return annotation
    return Annotated[(list[str], *annotation.__metadata__)]


def options_from(
    kind: type[Kind], keywords: Mapping[str, Any], **split: Callable[[Sequence[str]], Sequence[str]]
) -> Kind:
    """Make an instance of `kind` from keyword arguments. None counts as not given.

    `split` maps the name of a repeatable option to a function that splits a value given as a single text. Raises
    TypeError for an unknown or missing keyword, and UsageError for a wrong value.
    """
    known = keywords_of(kind)
    for name in keywords.keys() - known.keys():
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"The options are: {', '.join(known)}."
        raise TypeError(f"There is no option {name!r}. {hint}")
    if lacking := [name for name in _required(kind) if keywords.get(name) is None]:
        raise TypeError(f"Name {' and '.join(lacking)}, which have no default.")
    given = {
        name: split[name]([value]) if name in split and isinstance(value, str) else value
        for name, value in keywords.items()
        if value is not None
    }
    return kind(**{known[name][0]: _checked(name, value, known[name][1]) for name, value in given.items()})


def keywords_of(kind: type[Any]) -> dict[str, tuple[str, Any]]:
    """Map each option's keyword, as Python users write it, to the name and annotation of the option's field."""
    types = get_type_hints(kind, include_extras=True)
    return {_keyword(field.name, types[field.name]): (field.name, types[field.name]) for field in fields(kind)}


def _required(kind: type[Any]) -> list[str]:
    own = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
    return [name for name, (field, _) in keywords_of(kind).items() if field in own]


def _keyword(field: str, annotation: Any) -> str:
    (option,) = annotation.__metadata__
    name = option.default  # typer.Option in an annotation takes its first argument, "--name", for the default
    return name.split("/")[0].removeprefix("--").replace("-", "_") if isinstance(name, str) else field


def _checked(name: str, value: Any, annotation: Any) -> Any:
    kind, option = get_args(annotation)
    if isinstance(value, Set):
        raise UsageError(f"{name}={value!r} is wrong: a set has no order. Pass a list.")
    if kind == SEVERAL:
        value = _texts(value)
    elif "," in (option.metavar or "") and isinstance(value, Sequence) and not isinstance(value, str):
        value = _with_commas(name, value)
    try:
        found = TypeAdapter(kind).validate_python(_plain(value))
    except ValidationError as error:
        told = with_keywords(" ".join((option.help or "").split()))
        raise UsageError(f"{name}={value!r} is wrong: {error.errors()[0]['msg']}. {told}".rstrip()) from error
    if found == ():
        raise UsageError(f"{name} is empty. Name at least one, or leave it out.")
    if option.min is not None and found < option.min:
        raise UsageError(f"{name}={value!r} is wrong: the least is {option.min}.")
    if option.max is not None and found > option.max:
        raise UsageError(f"{name}={value!r} is wrong: the most is {option.max}.")
    return found


def check_number(name: str, value: Any, *, least: float = -math.inf, whole: bool = False) -> None:
    """Raise UsageError unless `value` is a number of at least `least`, and an integer if `whole`.

    The message calls it `name`.
    """
    if not isinstance(value, Integral if whole else Real) or value < least:
        kind = "a whole number" if whole else "a number"
        limit = f", and the least is {least}" if least > -math.inf else ""
        raise UsageError(f"{name}={value!r} is wrong: it is {kind}{limit}.")


def texts_of_places(places: Location | Sequence[Location], keyword: str = "input") -> tuple[str, ...]:
    """Convert one or more locations to texts.

    A Path becomes absolute, so that it cannot be mistaken for a run id or a name on the Hub. Raises UsageError for a
    value of another type. The message names `keyword`.
    """
    if not isinstance(places, (str, os.PathLike, Iterable)):
        raise UsageError(f"{keyword}={places!r} is wrong: it is a path or URI, or a list of them.")
    return tuple(map(_plain, [places] if isinstance(places, (str, os.PathLike)) else places))


def text_of_place(place: Location) -> str:
    """Convert one location to a text. Raises UsageError for a value of another type, such as a list."""
    if not isinstance(place, (str, os.PathLike)):
        raise UsageError(f"{place!r} is no path, URI or id of a run: pass one text or Path.")
    return str(_plain(place))


def _plain(value: Any) -> Any:
    return str(local_path(str(value))) if isinstance(value, os.PathLike) else value


def _with_commas(name: str, values: Sequence[object]) -> object:
    """Join texts with commas. Returns the values unchanged if one of them is not a text.

    Raises UsageError for a text that has a comma, because it would become two.
    """
    for one in values:
        if isinstance(one, str) and "," in one:
            raise UsageError(f"{name}={values!r} is wrong: the name {one!r} has a comma.")
    return ",".join(values) if all(isinstance(one, str) for one in values) else values  # type: ignore[arg-type]


def _texts(value: Any) -> Any:
    """Convert a value to a tuple of texts.

    A single text or path becomes one element; a dict becomes NAME=VALUE elements.
    """
    if isinstance(value, (str, os.PathLike)):
        return (_plain(value),)
    if isinstance(value, Mapping):
        return tuple(f"{name}={_plain(one)}" for name, one in value.items())
    return tuple(map(_plain, value)) if isinstance(value, Iterable) else value


def with_help_of(kind: type[Any]) -> Callable[[Function], Function]:
    """Return a decorator that adds the options of `kind` to a function's signature and docstring, as keywords."""
    lines = [f"{name}: {annotation.__metadata__[0].help}" for name, (_, annotation) in keywords_of(kind).items()]
    filled = "\n".join(fill(with_keywords(line), _WIDTH, subsequent_indent="    ") for line in lines)

    def documented(function: Function) -> Function:
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions of the command:\n\n{filled}"
        signature, (types,) = inspect.signature(function), get_args(get_type_hints(function)["keywords"])
        own = [parameter for name, parameter in signature.parameters.items() if name != "keywords"]
        fields_of_kind, names = inspect.signature(kind).parameters, keywords_of(kind)
        options = [
            fields_of_kind[names[name][0]].replace(name=name, annotation=annotation)
            for name, annotation in get_type_hints(types).items()
        ]
        function.__signature__ = signature.replace(parameters=own + options)  # type: ignore[attr-defined]
        return function

    return documented


def with_keywords(text: str) -> str:
    """Replace each option in a text by its keyword: `--text-column` by `text_column`.

    Leaves a command at the text's end unchanged.
    """
    return _OPTION.sub(lambda found: found[1].replace("-", "_") if found[1] else found[0], text)


@contextmanager
def keyword_errors() -> Iterator[None]:
    """Change the messages of a block's UsageErrors to name keyword arguments: `text_column`, not `--text-column`."""
    try:
        yield
    except UsageError as error:
        renamed = with_keywords(str(error))
        if renamed == str(error):
            raise
        raise UsageError(renamed) from error
