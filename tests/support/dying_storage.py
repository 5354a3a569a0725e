"""A storage that fails after some changes, as for a process that ends between two of them."""

from collections.abc import Callable

import fsspec
import pytest


def dies_after(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    """The file system fails at the next change after so many."""
    left = iter(range(changes))
    files = type(fsspec.filesystem("memory"))

    def limited(change: Callable[..., object]) -> Callable[..., object]:
        def changed(*arguments: object, **options: object) -> object:
            if next(left, None) is None:
                raise PermissionError(13, "the process has ended")
            return change(*arguments, **options)

        return changed

    for name in ("put_file", "pipe_file", "mv", "rm"):
        monkeypatch.setattr(files, name, limited(getattr(files, name)))
