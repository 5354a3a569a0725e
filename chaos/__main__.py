"""The command `python -m chaos`: run storms and report the results. Exits with 1 if a promise was broken."""

import argparse
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.results import provenance_of, redis_server_here, write_results
from chaos.campaign import CampaignPlan, campaign
from chaos.events import work
from chaos.faults import KILLS, Kind, Promise
from chaos.outcome import Outcome

_RESULTS = Path(__file__).parent / "results"


def main() -> int:
    options = _parser().parse_args()
    # Unwinds all `with` blocks, so that no process is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    plan = CampaignPlan(
        seed=options.seed,
        seconds=options.seconds,
        workers=options.workers,
        kinds=tuple(options.only),
        min_faults=options.min_faults,
        poison_runs=options.poison_runs,
        xet=options.xet,
    )
    outcomes = campaign(plan, folder, _say)
    _report(outcomes, write=options.results)
    if any(outcome.problems for outcome in outcomes):
        _say(f"Broken with seed {plan.seed}. Logs, ledger and outputs are in {folder}")
        return 1
    if not options.keep:
        shutil.rmtree(folder)
    if too_few := _too_few(outcomes, plan.kinds, plan.min_faults):
        _say(f"The time was over before each kind of kill happened {plan.min_faults} times: {too_few}")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="inject faults for at most this long")
    parser.add_argument("--seed", type=int, default=1, help="determines the faults and their times")
    parser.add_argument("--workers", type=int, default=3, help="beside a machine that has two")
    parser.add_argument(
        "--only", type=_kinds, default=list(Kind), metavar="KIND,…", help=f"only these kinds, of: {', '.join(Kind)}"
    )
    parser.add_argument("--min-faults", type=int, default=0, help="end when each kind of kill has happened this often")
    parser.add_argument("--poison-runs", type=int, default=1, help="number of runs with shards that kill their worker")
    parser.add_argument("--xet", action="store_true", help="the Hub takes files by xet instead of LFS")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    parser.add_argument("--results", action="store_true", help="write the report to chaos/results")
    return parser


def _kinds(text: str) -> list[Kind]:
    return [Kind(name) for name in text.split(",")]


def _report(outcomes: Sequence[Outcome], *, write: bool) -> None:
    found = provenance_of("chaos")
    head = [found.command, f"{found.date}, commit {found.commit}, {found.machine.cpu}, {redis_server_here()}"]
    lines = [*head, *(line for outcome in outcomes for line in ("", *_lines(outcome)))]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if write:
        storms = [_figures(outcome) | {"broken": list(map(str, outcome.problems))} for outcome in outcomes]
        _say(f"Written: {write_results(f'seed-{outcomes[0].plan.seed}', found, {'storms': storms}, _RESULTS)}")


def _lines(outcome: Outcome) -> Iterator[str]:
    for name, value in _figures(outcome).items():
        shown = ", ".join(f"{what} {count}" for what, count in value.items()) if isinstance(value, dict) else value
        yield f"{name.replace('_', ' ')}: {shown}"
    yield from (f"  {one}" for one in outcome.problems)


def _figures(outcome: Outcome) -> dict[str, object]:
    ended = [run for run in outcome.runs if run.published_at]
    done = work(outcome.work_log, outcome.events)
    return {
        "storm": outcome.plan.name,
        "seed": outcome.plan.seed,
        "seconds": round(outcome.seconds, 1),
        "runs_published": len(ended),
        "of_them_on_the_hub": sum(bool(run.hub_repo) for run in ended),
        "of_them_extensions": sum(bool(run.variant.base) for run in ended),
        "calls_of_enqueue": sum(run.enqueues for run in outcome.runs),
        "shards": sum(len(run.variant.own_shards - run.variant.poison) for run in ended),
        "rows_scored": done.scored,
        "scored_more_than_once": f"{done.redone / max(1, done.scored):.1%}",
        "faults": {"in all": len(outcome.faults)} | _counted([fault.kind for fault in outcome.faults]),
        "left_at_the_end": outcome.left,
        "ended_without_a_fault": dict(outcome.unasked_ends),
        "broken_promises": dict.fromkeys(map(str, Promise), 0) | _counted([one.promise for one in outcome.problems]),
    }


def _counted(names: Sequence[str]) -> dict[str, int]:
    return {str(name): count for name, count in sorted(Counter(names).items())}


def _too_few(outcomes: Sequence[Outcome], kinds: Collection[Kind], wanted: int) -> dict[str, int]:
    """Return the kinds of kills that happened less often than `wanted` over all storms, with their counts."""
    counts = Counter(fault.kind for outcome in outcomes for fault in outcome.faults)
    return {str(kind): counts[kind] for kind in KILLS if kind in kinds and counts[kind] < wanted}


def _say(line: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {line}\n")


if __name__ == "__main__":
    sys.exit(main())
