"""Start processes from a user's script that has no `if __name__ == "__main__"`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_main_module() -> Iterator[None]:
    """Hide the main module: each process that multiprocessing spawns in the block would import it and run the script again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
