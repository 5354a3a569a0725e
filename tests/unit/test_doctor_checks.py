"""A doctor's checks run in order, and one that fails does not stop the others."""

from collections.abc import Callable
from functools import partial

import pytest
import redis

from shardsift.fleet.checks import Check, Result, Verdict, diagnose, ok, wrong
from shardsift.fleet.errors import UsageError


def check(name: str, look: Callable[[], Verdict], *needs: str) -> Check:
    return Check(name=name, run=look, mend="Do this.", needs=needs)


def failing(error: Exception) -> Callable[[], Verdict]:
    def look() -> Verdict:
        raise error

    return look


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (UsageError("It does not fit\nin an L4."), "It does not fit in an L4."),
        (redis.ConnectionError("gone\nnow"), "ConnectionError: gone now"),
    ],
)
def test_an_error_is_a_finding_and_the_next_check_runs(error: Exception, says: str) -> None:
    found, following = diagnose([check("a", failing(error)), check("b", lambda: ok("Fine."))])

    assert (found.result, found.says, found.mend) == (Result.WRONG, says, "Do this.")
    assert following.result is Result.OK


def test_a_check_runs_only_if_those_that_it_needs_ran_and_were_not_wrong() -> None:
    fine = partial(ok, "Fine.")

    found = diagnose(
        [
            check("a", fine),
            check("b", partial(wrong, "Gone.", "Do this."), "a"),
            check("c", fine, "b"),
            check("d", fine, "c"),
            check("e", fine, "not asked"),
            check("f", fine, "a"),
        ]
    )

    assert [verdict.check for verdict in found] == ["a", "b", "f"]


def test_a_finding_holds_no_secret() -> None:
    (found,) = diagnose(
        [check("a", lambda: wrong("redis://:s3cret@host/0 fails.", "Ask https://me:s3cret@host?sig=s3cret."))]
    )

    assert "s3cret" not in str(found)
