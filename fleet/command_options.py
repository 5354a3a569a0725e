"""Give a command the fields of a dataclass as options, so that they are described once for the command and the code behind it."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, get_args

Command = Callable[..., None]


def with_options_of(
    kind: type[Any], **parsed: Callable[[Sequence[str]], Sequence[str]]
) -> Callable[[Command], Command]:
    """The command gets an instance of `kind` as its first argument. The annotations of its fields are those of the command line.

    A field that is a tuple may be given more than once. `parsed` has what to make of such a field, if it is given.
    """
    shared = [
        parameter.replace(annotation=_as_typer_takes_it(parameter.annotation))
        for parameter in inspect.signature(kind).parameters.values()
    ]

    def decorated(command: Command) -> Command:
        own = list(inspect.signature(command).parameters.values())[1:]

        @wraps(command)
        def collected(**given: Any) -> None:
            options = {parameter.name: _plain(given.pop(parameter.name)) for parameter in shared}
            options |= {name: tuple(parse(options[name])) for name, parse in parsed.items() if options[name]}
            command(kind(**options), **given)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*shared, *own)]
        collected.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        collected.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return collected

    return decorated


def _as_typer_takes_it(annotation: Any) -> Any:
    """An option that may be given more than once is a list to Typer, which takes a tuple for one with several values."""
    if get_args(annotation)[:1] != (tuple[str, ...],):
        return annotation
    return Annotated[(list[str], *annotation.__metadata__)]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
