"""Parameters of which `make test` takes only some, because the others differ little from them and take long."""

from collections.abc import Iterable
from typing import Any

import pytest


def everyday(names: Iterable[str], *, only: Iterable[str]) -> list[Any]:
    """Mark all names except `only` as slow, so that only `make test-slow` runs them."""
    kept, names = {*only}, [*names]
    assert kept < {*names}
    return [name if name in kept else pytest.param(name, marks=pytest.mark.slow) for name in names]
