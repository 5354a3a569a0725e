"""A storm: do run after run on a fleet that is killed, frozen, cut off and stopped, until it has had enough faults."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import redis

from chaos.events import Event, EventLog
from chaos.faults import KILLS, OF_FILES, Broken, Fault, Kind, Promise, Schedule
from chaos.files import FileVictim
from chaos.fleet import ChaosFleet
from chaos.invariants import Digests, problems_of_processes, problems_of_run, problems_of_what_is_left
from chaos.outcome import Outcome, StormPlan
from chaos.place import Place, Variant, put_base, put_base_on_hub
from chaos.runs import Run
from hubserver import HubServer

_TICK_SECONDS = 0.02
_POLL_SECONDS = 0.25  # between two checks whether runs are published
_RUN_SECONDS = 900.0  # limit for a run to be published; at worst, most of its shards are killed several times
_ENQUEUED_AGAIN = 0.15  # share of runs that are enqueued again while they are in progress
_CYCLE = 3  # kinds of runs: to a folder, to a folder whose files have faults, to the Hub
_MOST_PROBLEMS = 10
_SWEPT_RUNS = 4  # verified runs that stay in the sweep; hundreds of them would keep several cores busy


def storm(plan: StormPlan, place: Place, hub: HubServer, undisturbed: Digests, say: Callable[[str], None]) -> Outcome:
    with _Storm(plan, place, hub, undisturbed, say).raging() as one:
        one.rage()
        one.die_down()
    one.look_for_orphans()
    return one.outcome


class _Storm:
    def __init__(
        self, plan: StormPlan, place: Place, hub: HubServer, undisturbed: Digests, say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._place = place
        self._hub = hub
        self._undisturbed = undisturbed
        self._say = say
        self._rng = random.Random(f"{plan.seed} runs")
        self._schedule = Schedule(plan.seed, lease_seconds=plan.fleet.lease_seconds, only=plan.kinds)
        self._producers = self._schedule.of_producers()
        self._active: list[Run] = []
        self._looked_at = 0.0
        self._told_at = time.time()
        self.outcome = Outcome(plan=plan)

    @contextmanager
    def raging(self) -> Iterator["_Storm"]:
        folder = self._place.folder / self._plan.name
        with ExitStack() as stack:
            self._fleet = stack.enter_context(
                ChaosFleet.started(folder, self._plan.fleet, self._place.model, self._hub, self._schedule)
            )
            self._local = self._fleet.local_runs(self._plan.variants, self._schedule)
            stack.callback(self._local.stop)
            self._log = EventLog(self._fleet.faults.event_log)
            stack.callback(self._log.close)
            self.outcome.events = self._log.events
            self.outcome.work_log = self._fleet.faults.work_log
            try:
                yield self
            finally:
                self.outcome.unasked_ends = self._fleet.unasked_ends
                for run in self.outcome.runs:
                    run.stop()

    def rage(self) -> None:
        began = time.time()
        while not self._is_enough(time.time() - began):
            self._tick(begins_runs=True)
        self.outcome.seconds = time.time() - began

    def die_down(self) -> None:
        """Stop injecting faults. The current runs must finish, and nothing may be left afterwards."""
        self._fleet.calm_down()
        self._local.victim.calm_down()
        while (self._active or not self._local.are_over) and not self._is_hopeless:
            self._tick(begins_runs=False)
        if not self._is_hopeless:
            self.outcome.problems += problems_of_what_is_left(
                self._fleet, self.outcome, self._hub, self._undisturbed, tick=lambda: self._tick(begins_runs=False)
            )

    def look_for_orphans(self) -> None:
        """Add a problem for each process that is left. Call this after the fleet has stopped."""
        self.outcome.problems += problems_of_processes(self._fleet)

    def _is_enough(self, seconds: float) -> bool:
        if self._is_hopeless or seconds >= self._plan.seconds:
            return True
        kinds = [kind for kind in KILLS if kind in self._plan.kinds]
        counts = Counter(fault.kind for fault in self.outcome.faults)
        self._schedule.enough = {kind for kind in kinds if 0 < self._plan.min_faults <= counts[kind]}
        if kinds and self._schedule.enough.issuperset(kinds):
            return True
        ended = sum(run.published_at is not None for run in self.outcome.runs)
        return 0 < self._plan.runs <= ended

    @property
    def _is_hopeless(self) -> bool:
        """Whether so many promises are broken that the storm ends.

        It continues after a few broken promises, to show how often they break.
        """
        return len(self.outcome.problems) >= _MOST_PROBLEMS

    def _tick(self, *, begins_runs: bool) -> None:
        now = time.time()
        for event in self._log.news():
            self._see(event)
        self._note_of_fleet(list(self._fleet.tick(now)))
        self._look_at_local_runs(now, begins_runs=begins_runs and Kind.LOCAL in self._plan.kinds)
        for run in self._active:
            was_enqueued = run.is_enqueued
            self.outcome.faults += run.tick(now, self._may_damage if begins_runs else _never)
            if run.is_enqueued and not was_enqueued:
                self._catch_up(run)
        if begins_runs and self._wants_run():
            self._begin_run()
        if now - self._looked_at > _POLL_SECONDS:
            self._looked_at = now
            self._look_at_runs(now)
        if now - self._told_at > 30:
            self._told_at = now
            self._tell()
        self.outcome.problems += self._fleet.problems()
        time.sleep(_TICK_SECONDS)

    def _look_at_local_runs(self, now: float, *, begins_runs: bool) -> None:
        for found in self._local.tick(now, self._undisturbed, begins=begins_runs):
            if isinstance(found, Fault):
                self.outcome.faults.append(found)
            else:
                self.outcome.problems.append(found)

    def _note_of_fleet(self, faults: list[Fault]) -> None:
        self.outcome.faults += faults
        if any(fault.kind == Kind.POWER for fault in faults):
            for run in self.outcome.runs:
                run.see_power_loss()

    def _see(self, event: Event) -> None:
        self._fleet.see(event)
        for run in self._active:
            if run.see(event):
                self._fleet.run_ends(event.at)

    def _catch_up(self, run: Run) -> None:
        """Handle the events of a new run that were recorded before its id was known."""
        for event in self._log.events[run.first_event :]:
            run.see(event)

    def _wants_run(self) -> bool:
        """Return whether to start the next run: when all others are nearly done, so that no worker waits for long."""
        if self._plan.runs and len(self.outcome.runs) >= self._plan.runs:
            return False
        nearly_done = all(
            run.is_enqueued and len(run.open_shards) <= self._plan.fleet.workers + 1 for run in self._active
        )
        return nearly_done and len(self._active) < self._plan.runs_at_once

    def _begin_run(self) -> None:
        number = len(self.outcome.runs) + 1
        variant = self._plan.variants[number % len(self._plan.variants)]
        repo = f"org/{self._plan.name}-{number}" if self._plan.on_hub and number % _CYCLE == 0 else ""
        output = self._fleet.folder / "out" / str(number)
        if repo:
            self._hub.create_repo(repo)
            put_base_on_hub(variant, self._hub, repo)
        else:
            put_base(variant, output)
        output_uri = f"hf://datasets/{repo}" if repo else str(output)
        files = None
        if number % _CYCLE == 1 and not OF_FILES.isdisjoint(self._plan.kinds):
            variant = replace(variant, shards=self._own_input(variant, number))
            files = self._file_victim(variant, number, output)
        service = self._fleet.producer(variant, output_uri, str(number), verify=files is not None)
        run = Run(
            number=number,
            variant=variant,
            output_uri=output_uri,
            hub_repo=repo,
            service=service,
            kill=next(self._producers),
            files=files,
            first_event=len(self._log.events),
            is_enqueued_again=self._rng.random() < _ENQUEUED_AGAIN,
        )
        self._active.append(run)
        self.outcome.runs.append(run)

    def _own_input(self, variant: Variant, number: int) -> Path:
        return Path(shutil.copytree(variant.shards, self._fleet.folder / "inputs" / str(number)))

    def _file_victim(self, variant: Variant, number: int, output: Path) -> FileVictim:
        return FileVictim(
            f"run {number}",
            variant.shards,
            output,
            variant.base,
            self._schedule.of_files(number),
            output_faults=self._schedule.output_faults,
            rng=random.Random(f"{self._plan.seed} damage of {number}"),
        )

    def _look_at_runs(self, now: float) -> None:
        for run in list(self._active):
            try:
                if self._is_over(run):
                    self._end(run)
            except redis.RedisError:  # Redis is down, because of a fault; check again later
                return
            if now - run.started_at > _RUN_SECONDS:
                self.outcome.problems.append(Broken(Promise.NOT_PUBLISHED, self._why_not_over(run)))
                self._active.remove(run)

    def _is_over(self, run: Run) -> bool:
        if not run.is_enqueued:
            return False
        if run.needs_repair or not self._fleet.ledger.state(run.run_id).complete:  # a power loss removed the run
            if run.may_be_enqueued_again:
                run.enqueue_again()
            return False
        if run.variant.poison:
            self._fleet.publish_without_failed(run)
        if run.files and run.files.is_input_whole:
            self._fleet.retry_failed(run)
        return self._fleet.ledger.state(run.run_id).publication is not None

    def _may_damage(self, run: Run, kind: Kind) -> bool:
        """Return whether files of a run may be damaged now.

        No file may be damaged while the run may be published, and no input while `producer retry` may record its identity.
        """
        try:
            counts = self._fleet.ledger.counts(run.run_id)
        except redis.RedisError:
            return False
        is_retried = kind == Kind.INPUT and (counts.failed > 0 or self._fleet.is_seen_to(run))
        return counts.open >= 2 and not is_retried

    def _end(self, run: Run) -> None:
        problems = problems_of_run(
            run, self._fleet, self._hub, self._undisturbed[run.variant.name], self._log.events[run.first_event :]
        )
        self.outcome.problems += problems
        run.is_output_damaged = False
        if run.files and not problems and (fault := run.files.damage_output(time.time())):
            self.outcome.faults.append(fault)
            run.see_damaged_output()
            return
        run.published_at = time.time()
        self._active.remove(run)
        verified = [other for other in self.outcome.runs if other.published_at][:-_SWEPT_RUNS]
        if verified:
            self._fleet.ledger.redis.zrem("shardsift:runs", *[other.run_id for other in verified])

    def _why_not_over(self, run: Run) -> str:
        counts = self._fleet.ledger.counts(run.run_id) if run.is_enqueued else "not enqueued"
        error = self._fleet.ledger.state(run.run_id).publish_error if run.is_enqueued else None
        return (
            f"run {run.number} ({run.run_id}), after {_RUN_SECONDS:.0f} s: {counts}, "
            f"publish error: {error}, open by what was noted: {sorted(run.open_shards)}"
        )

    def _tell(self) -> None:
        counts = Counter(fault.kind for fault in self.outcome.faults)
        ended = sum(run.published_at is not None for run in self.outcome.runs)
        self._say(
            f"{self._plan.name}: {ended} runs published, {self._local.published} of `producer run`, "
            + ", ".join(f"{kind} {counts[kind]}" for kind in sorted(counts))
        )


def _never(_: Run, __: Kind) -> bool:
    return False
