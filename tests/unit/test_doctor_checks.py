"""A doctor's checks run in order, each in its time, and one that fails does not stop the others."""

import threading
from collections.abc import Callable

import pytest
import redis

from fleet.doctor.checks import Check, Result, Verdict, diagnose, has_unfinished, line_of, ok, warning, wrong
from fleet.errors import UsageError
from support.diagnoses import diagnosed
from support.waiting import wait_until


def check(name: str, look: Callable[[], Verdict] | Verdict, *needs: str, seconds: float = 5) -> Check:
    return Check(
        name=name,
        look=look if callable(look) else lambda: look,
        mend="Do this.",
        needs=needs,
        seconds=seconds,
    )


def failing(error: Exception) -> Callable[[], Verdict]:
    def look() -> Verdict:
        raise error

    return look


def test_a_line_is_known_before_the_next_check_runs() -> None:
    asked = []

    def look() -> Verdict:
        asked.append("second")
        return ok("Fine.")

    lines = diagnose([check("first", ok("Fine.")), check("second", look)])

    assert next(lines).check == "first"
    assert asked == []
    assert next(lines).check == "second"


@pytest.mark.parametrize("verdict", [wrong("Down.", "Start it."), warning("Unset.", "Set it.")])
def test_a_check_whose_need_is_not_ok_is_left_out_and_so_is_what_needs_it(verdict: Verdict) -> None:
    found = diagnosed([check("a", verdict), check("b", ok("."), "a"), check("c", ok("."), "b"), check("d", ok("."))])

    assert list(found) == ["a", "d"]


def test_a_check_that_takes_too_long_is_wrong_and_the_next_one_runs() -> None:
    released = threading.Event()

    def look() -> Verdict:
        released.wait(30)
        return ok("Late.")

    found = diagnosed([check("slow", look, seconds=0.05), check("next", ok("Fine."))])

    assert found["slow"].result is Result.WRONG
    assert (found["slow"].says, found["slow"].mend) == ("No answer within 0.05 s.", "Do this.")
    assert found["next"].result is Result.OK
    assert has_unfinished()
    released.set()
    wait_until(lambda: not has_unfinished(), description="its thread ends", seconds=5)


@pytest.mark.parametrize(
    ("error", "says", "mend"),
    [
        (
            UsageError(
                "No Redis answers at x:1 (Error 111 connecting to x:1. Refused.). Start it, or correct REDIS_URL."
            ),
            "No Redis answers at x:1 (Error 111 connecting to x:1. Refused.).",
            "Start it, or correct REDIS_URL.",
        ),
        (UsageError("It does not fit in an L4."), "It does not fit in an L4.", "Do this."),
        (redis.ConnectionError("gone\nnow"), "ConnectionError: gone now", "Do this."),
        (KeyError("x"), "KeyError: 'x'", "Do this."),
    ],
)
def test_an_error_is_a_finding_with_its_own_remedy_if_it_has_one(error: Exception, says: str, mend: str) -> None:
    (found,) = diagnose([check("a", failing(error))])

    assert (found.result, found.says, found.mend) == (Result.WRONG, says, mend)


def test_a_line_holds_no_secret() -> None:
    (found,) = diagnose([check("a", wrong("redis://:s3cret@host/0 fails.", "Ask https://me:s3cret@host?sig=s3cret."))])

    assert "s3cret" not in line_of(found)
    assert line_of(found).startswith("wrong    a  ")
    assert "\n" not in line_of(found)
