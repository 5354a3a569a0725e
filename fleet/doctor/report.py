"""Print what a doctor finds: a line for each check, or JSON. The exit code says whether something is wrong."""

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import NoReturn

import typer

from fleet.command_line import print_json
from fleet.doctor.checks import Check, Diagnosis, Result, diagnose, has_unfinished

_FINE, _WRONG = 0, 1


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
    exit_now(_WRONG if any(diagnosis.result is Result.WRONG for diagnosis in found) else _FINE)


def line_of(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.result:<8} {diagnosis.check:<15} {diagnosis.says} {diagnosis.mend}".rstrip()


def exit_now(code: int) -> NoReturn:
    """Exit without waiting for a check that never ends: libraries wait for their threads when Python exits."""
    if has_unfinished():
        sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)
