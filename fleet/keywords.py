"""The command line's options as the keyword arguments of the Python API: `--text-column` is `text_column`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fleet.errors import UsageError

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")


def with_keywords(text: str) -> str:
    """The text with options named as keyword arguments."""
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


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
