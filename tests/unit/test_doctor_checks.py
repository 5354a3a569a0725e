"""A doctor's checks run in order, and one that fails does not stop the others."""

from collections.abc import Callable

import pytest
import redis

from shardsift.fleet.checks import Check, Result, Verdict, diagnose, ok, warning, wrong
from shardsift.fleet.errors import UsageError
from support.diagnoses import diagnosed


def check(name: str, look: Callable[[], Verdict] | Verdict, *needs: str) -> Check:
    return Check(name=name, run=look if callable(look) else lambda: look, mend="Do this.", needs=needs)


def failing(error: Exception) -> Callable[[], Verdict]:
    def look() -> Verdict:
        raise error

    return look


def test_a_check_whose_need_is_wrong_is_left_out_and_so_is_what_needs_it() -> None:
    first, unset = check("a", wrong("Down.", "Start it.")), check("d", warning("Unset.", "Set it."))

    found = diagnosed([first, check("b", ok("."), "a"), check("c", ok("."), "b"), unset, check("e", ok("."), "d")])

    assert list(found) == ["a", "d", "e"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (UsageError("It does not fit\nin an L4."), "It does not fit in an L4."),
        (redis.ConnectionError("gone\nnow"), "ConnectionError: gone now"),
    ],
)
def test_an_error_is_a_finding_and_the_next_check_runs(error: Exception, says: str) -> None:
    found, following = diagnose([check("a", failing(error)), check("b", ok("Fine."))])

    assert (found.result, found.says, found.mend) == (Result.WRONG, says, "Do this.")
    assert following.result is Result.OK


def test_a_finding_holds_no_secret() -> None:
    (found,) = diagnose([check("a", wrong("redis://:s3cret@host/0 fails.", "Ask https://me:s3cret@host?sig=s3cret."))])

    assert "s3cret" not in str(found)
