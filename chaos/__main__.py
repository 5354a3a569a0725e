"""The command `python -m chaos`: run storms and report the results. Exits with 1 if a promise was broken."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from chaos.campaign import CampaignPlan, campaign
from chaos.kinds import Kind
from chaos.report import report_of, text_of, write_report

_RESULTS = Path(__file__).parent / "results"


def main() -> int:
    options = _parser().parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # unwinds all `with` blocks, so that no process is left behind
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    plan = CampaignPlan(
        seed=options.seed,
        seconds=options.seconds,
        workers=options.workers,
        kinds=tuple(options.only),
        min_faults=options.min_faults,
        poison_runs=options.poison_runs,
        real_model=options.real_model,
    )
    outcomes = campaign(plan, folder, _say)
    report = report_of(outcomes, cores=len(os.sched_getaffinity(0)))
    sys.stdout.write(text_of(report))
    if options.results:
        name = f"{datetime.now(UTC):%Y-%m-%d}-seed-{plan.seed}"
        _say("Written: " + ", ".join(str(path) for path in write_report(report, _RESULTS, name)))
    if report.broken:
        _say(f"Broken with seed {plan.seed}. Logs, ledger and outputs are in {folder}")
        return 1
    if not options.keep:
        shutil.rmtree(folder)
    if too_few := report.too_few(plan.kinds, plan.min_faults):
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
    parser.add_argument("--real-model", action="store_true", help="also kill workers in a run with the real MiniLM")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    parser.add_argument("--results", action="store_true", help="write the report to chaos/results")
    return parser


def _kinds(text: str) -> list[Kind]:
    return [Kind(name) for name in text.split(",")]


def _say(line: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {line}\n")


if __name__ == "__main__":
    sys.exit(main())
