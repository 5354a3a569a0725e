"""What a doctor's checks find, by name."""

from collections.abc import Iterable

from shardsift.fleet.checks import Check, Result, Verdict, diagnose


def diagnosed(checks: Iterable[Check]) -> dict[str, Verdict]:
    return {found.check: found for found in diagnose(checks)}


def not_ok(found: dict[str, Verdict]) -> dict[str, Result]:
    """Return the checks that are not ok. Fails if one of them does not say how to fix it."""
    found_wrong = {name: one.result for name, one in found.items() if one.result is not Result.OK}
    assert all(found[name].mend for name in found_wrong)
    return found_wrong
