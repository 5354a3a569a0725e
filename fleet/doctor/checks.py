"""A check of a doctor, what it finds, and how checks are run: in order, each with a time limit."""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import NoReturn

import typer

from fleet.errors import ShardsiftError
from fleet.process.command_line import print_json
from fleet.process.redact import redacted

_SECONDS = 15.0
_LATE = "late check: "  # prefix of the names of threads whose check took too long
_PARTS = re.compile(r"(.*[.?!]) ((?:[^()]|\([^()]*\))+)")  # the last sentence, which does not begin in parentheses


class Result(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but slower or less safely, or may fail later
    WRONG = "wrong"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one check found. `mend` is the sentence that says what to do; empty if all is well."""

    result: Result
    says: str
    mend: str = ""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of a doctor. `look` raises an error of ours, or a library's, for what is wrong.

    `mend` is what to do about errors that do not say it themselves, and if the check takes longer than `seconds`. The check is
    left out unless all checks that it `needs` are ok.
    """

    name: str
    look: Callable[[], Verdict]
    mend: str
    seconds: float = _SECONDS
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A check's name and verdict, without secrets. Its fields are those of `--json`."""

    check: str
    result: Result
    says: str
    mend: str


def ok(says: str) -> Verdict:
    return Verdict(result=Result.OK, says=says)


def warning(says: str, mend: str) -> Verdict:
    return Verdict(result=Result.WARNING, says=says, mend=mend)


def wrong(says: str, mend: str) -> Verdict:
    return Verdict(result=Result.WRONG, says=says, mend=mend)


def wrong_by(error: Exception, mend: str) -> Verdict:
    """What an error of ours says. The last sentence of its message is the mend, if it has more than one."""
    message = " ".join(str(error).split())
    parts = _PARTS.fullmatch(message)
    return wrong(*parts.groups()) if parts else wrong(message, mend)


def diagnose(checks: Iterable[Check]) -> Iterator[Diagnosis]:
    """Run the checks in order. Yields what each finds as soon as it is known."""
    fine: set[str] = set()
    for check in checks:
        if not fine.issuperset(check.needs):
            continue
        verdict = _within_its_time(check)
        if verdict.result is Result.OK:
            fine.add(check.name)
        yield Diagnosis(
            check=check.name, result=verdict.result, says=redacted(verdict.says), mend=redacted(verdict.mend)
        )


def has_unfinished() -> bool:
    """Whether a check is still running that took longer than its time. Its thread may never end."""
    return any(thread.name.startswith(_LATE) for thread in threading.enumerate())


def report(checks: Iterable[Check], *, as_json: bool) -> NoReturn:
    """Run the checks and print a line for each as soon as it is known; JSON is printed at the end. Exits with 0 or 1."""
    found = []
    for diagnosis in diagnose(checks):
        found.append(diagnosis)
        if not as_json:
            typer.echo(line_of(diagnosis))
            sys.stdout.flush()
    if as_json:
        print_json([asdict(diagnosis) for diagnosis in found])
    _exit_now(int(any(diagnosis.result is Result.WRONG for diagnosis in found)))


def line_of(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.result:<8} {diagnosis.check:<15} {diagnosis.says} {diagnosis.mend}".rstrip()


def _within_its_time(check: Check) -> Verdict:
    """In a thread of its own, because a library may ignore every timeout, for example while it resolves a name."""
    verdicts: SimpleQueue[Verdict] = SimpleQueue()
    thread = threading.Thread(target=lambda: verdicts.put(_looked(check)), daemon=True)
    thread.start()
    try:
        return verdicts.get(timeout=check.seconds)
    except Empty:
        thread.name = _LATE + check.name
        return wrong(f"No answer within {check.seconds:g} s.", check.mend)


def _looked(check: Check) -> Verdict:
    try:
        return check.look()
    except ShardsiftError as error:
        return wrong_by(error, check.mend)
    except Exception as error:  # a check that fails is a finding; the others still run
        return wrong(f"{type(error).__name__}: {' '.join(str(error).split())}", check.mend)


def _exit_now(code: int) -> NoReturn:
    """Exit without waiting for a check that never ends: libraries wait for their threads when Python exits."""
    if has_unfinished():
        sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)
