"""Templates of texts, such as "{url}\\n\\n{text}": a text with the names of columns in braces. Needs no pyarrow."""

from string import Formatter

from fleet.errors import UsageError


def parts_of(template: str) -> list[tuple[str, str | None]]:
    """The template as literals, each with the column that follows it; None at the end. `{{` and `}}` are braces.

    Raises UsageError if it cannot be read, or names no column.
    """
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"--text-column {template!r} cannot be read: {error}. Write {{{{ for a brace.") from error
    for _, name, format_spec, conversion in parsed:
        if name == "" or format_spec or conversion:
            raise UsageError(
                f"--text-column takes only names of columns in braces, like {{url}}, and no formats; it is {template!r}."
            )
    if not any(name for _, name, _, _ in parsed):
        raise UsageError(f"--text-column names no column, like {{text}}; it is {template!r}.")
    return [(literal, name) for literal, name, _, _ in parsed]


def columns_of(template: str) -> tuple[str, ...]:
    """The columns of a template, each once. Raises UsageError as `parts_of` does."""
    return tuple(dict.fromkeys(name for _, name in parts_of(template) if name))
