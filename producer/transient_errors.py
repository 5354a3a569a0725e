"""Retry after temporary errors. The Hub's client retries only some of its requests."""

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from shardsift.fleet.errors import TransientError

_PAUSES_SECONDS = (1, 2, 4, 8, 8)  # as in huggingface_hub
_LONGEST_PAUSE_SECONDS = 60.0  # give up if a server asks for a longer pause, because a person is waiting
logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def with_retries(do: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that it is called again after a TransientError, up to five times. Then the error is raised.

    The function must be safe to call twice. Errors of this machine, such as expired credentials, and errors that ask for a
    long wait are raised at once.
    """

    @wraps(do)
    def retried(*args: P.args, **kwargs: P.kwargs) -> T:
        for pause_seconds in _PAUSES_SECONDS:
            try:
                return do(*args, **kwargs)
            except TransientError as error:
                wait_seconds = max(pause_seconds, error.retry_after_seconds or 0)
                if error.of_machine or wait_seconds > _LONGEST_PAUSE_SECONDS:
                    raise
                logger.warning("%s Trying again in %.0f s.", error, wait_seconds)
            time.sleep(wait_seconds)
        return do(*args, **kwargs)

    return retried
