"""Power losses: do run after run with working workers, and let Redis lose power once in each, at a random moment.

    make power-loss TRIALS=300 SEED=1

After a power loss the run must be published with the bytes of an undisturbed run, and each shard once. The operator may
only run the same enqueue again if the ledger has lost the run. `arena.py` does the trials, and `power.py` simulates the
power loss. Several arenas work in parallel, each in its own process.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from benchmarks.ledger.machine import _commit, _cpu, _server
from chaos.arena import Trial, trials

_RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class PowerFigures:
    """The figures of all arenas."""

    command: str
    commit: str
    date: str
    cpu: str
    server: str
    seconds: float
    trials: list[Trial]

    @property
    def broken(self) -> list[str]:
        return [f"trial {trial.number}, {trial.loss}: {what}" for trial in self.trials for what in trial.broken]


def main() -> int:
    options = _parser().parse_args()
    folder = Path(tempfile.mkdtemp(prefix="power-"))
    figures = power_losses(folder, seed=options.seed, count=options.trials, arenas=options.arenas)
    sys.stdout.write(text_of(figures))
    if options.results:
        _write(figures, _RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-power-loss-seed-{options.seed}")
    if figures.broken:
        sys.stderr.write(f"Broken with seed {options.seed}. Logs, ledgers and outputs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def power_losses(folder: Path, *, seed: int, count: int, arenas: int) -> PowerFigures:
    began = time.time()
    done = _trials(folder, seed=seed, count=count, arenas=arenas)
    return PowerFigures(
        command=f"python -m chaos.power_loss {' '.join(sys.argv[1:])}",
        commit=_commit(),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}",
        cpu=_cpu(),
        server=_server(),
        seconds=round(time.time() - began, 1),
        trials=done,
    )


def text_of(figures: PowerFigures) -> str:
    return "\n".join(_lines(figures)) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chaos.power_loss", description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="determines when the power fails, and what is lost")
    parser.add_argument("--arenas", type=int, default=3, help="number of arenas that work in parallel")
    parser.add_argument("--results", action="store_true", help="write the figures to chaos/results")
    return parser


def _trials(folder: Path, *, seed: int, count: int, arenas: int) -> list[Trial]:
    shares = [range(1 + arena, count + 1, arenas) for arena in range(arenas)]
    with ProcessPoolExecutor(arenas, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = [pool.submit(trials, folder / str(number), seed, share) for number, share in enumerate(shares, 1)]
        return sorted((trial for one in running for trial in one.result()), key=lambda trial: trial.number)


def _write(figures: PowerFigures, place: Path) -> None:
    place.with_suffix(".json").write_text(json.dumps(asdict(figures), indent=1) + "\n", encoding="utf-8")
    place.with_suffix(".txt").write_text(text_of(figures), encoding="utf-8")


def _lines(figures: PowerFigures) -> Iterator[str]:
    yield figures.command
    yield f"{figures.date}, commit {figures.commit}, {figures.cpu}, {figures.server}"
    yield ""
    done = figures.trials
    yield f"{len(done)} power losses in {figures.seconds:.0f} s, of which"
    yield f"  {_count(done, 'cut')} cut the end of the append-only file, {_count(done, 'copy')} restored an older copy"
    yield f"  {sum(trial.enqueues > 1 for trial in done)} lost the run: the same enqueue restored it"
    yield f"  {sum(trial.was_published for trial in done)} happened after the run was published"
    waits = sorted(trial.seconds_after for trial in done)
    p50, p95 = waits[len(waits) // 2], waits[min(len(waits) - 1, int(len(waits) * 0.95))]
    yield f"published after Redis answered again: 50 % within {p50} s, 95 % within {p95} s, all within {waits[-1]} s"
    yield f"runs lost, doubled, or with different bytes: {sum(bool(trial.broken) for trial in done)}"
    yield from (f"  {what}" for what in figures.broken)


def _count(done: Sequence[Trial], word: str) -> int:
    return sum(word in trial.loss for trial in done)


if __name__ == "__main__":
    sys.exit(main())
