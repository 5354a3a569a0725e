"""Keep the libraries of models quiet while they are imported and while a model loads."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOISY = ("torchao", "torch.utils._pytree")  # they log each kernel that does not suit this machine


def quieten_imports() -> None:
    """Quieten torch and transformers before they are imported, in our own processes."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Quieten torch and transformers for the length of a block, in a user's process."""
    loggers = [logging.getLogger(name) for name in _NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress progress bars and warnings of transformers, such as "newly initialized", for the length of a block."""
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
