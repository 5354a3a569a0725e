"""Give several commands the same options, declared once as the fields of a dataclass."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args

Options = TypeVar("Options")
Command = Callable[..., None]


def with_options(
    options: type[Options], changed: Callable[[dict[str, Any]], dict[str, Any]] = lambda given: given
) -> Callable[[Command], Command]:
    """Give a command all fields of a dataclass as options; it gets the dataclass as its first argument.

    `changed` turns what Typer gives into what the fields take.
    """
    shared = [
        parameter.replace(annotation=_as_typer_takes_it(parameter.annotation))
        for parameter in inspect.signature(options).parameters.values()
    ]

    def decorated(command: Command) -> Command:
        own = list(inspect.signature(command).parameters.values())[1:]

        @wraps(command)
        def collected(**given: Any) -> None:
            fields = {parameter.name: given.pop(parameter.name) for parameter in shared}
            command(options(**changed(fields)), **given)

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
