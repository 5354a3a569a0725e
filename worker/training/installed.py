"""Whether the packages that training needs are installed. Imports none of them."""

import importlib.util

from fleet.errors import UsageError

_PACKAGES = {"sklearn": "scikit-learn", "accelerate": "accelerate", "matplotlib": "matplotlib"}


def check_installed() -> None:
    missing = [name for module, name in _PACKAGES.items() if not importlib.util.find_spec(module)]
    if missing:
        raise UsageError(f"Training needs {' and '.join(missing)}. Install it with: pip install 'shardsift[train]'")
