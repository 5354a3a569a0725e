"""Whether the packages that training needs are installed. Imports none of them."""

import importlib.util

from fleet.errors import UsageError

_OF_WORKER = {"torch": "torch", "transformers": "transformers"}
_OF_TRAIN = {"sklearn": "scikit-learn", "accelerate": "accelerate", "matplotlib": "matplotlib"}


def check_installed() -> None:
    """Raises UsageError if one is missing, with the command that installs it."""
    without, missing = _missing(_OF_WORKER), _missing(_OF_TRAIN)
    if without or missing:
        extras = "worker,train" if without else "train"
        raise UsageError(
            f"Training needs {' and '.join([*without, *missing])}. Install it with: pip install 'shardsift[{extras}]'"
        )


def _missing(packages: dict[str, str]) -> list[str]:
    return [name for module, name in packages.items() if not importlib.util.find_spec(module)]
