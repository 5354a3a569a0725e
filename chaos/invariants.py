"""Check the invariants of every run, and of the fleet at the end. Each function returns the violations."""

import hashlib
import io
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.events import Event
from chaos.faults import Broken, Promise
from chaos.fleet import ChaosFleet
from chaos.outcome import Outcome
from chaos.place import BASE_TITLE
from chaos.runs import Run
from hubserver import HubServer
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.process.broker import queue_lists

Digests = dict[str, dict[str, str]]  # name of a variant → path of a published file → its sha256
_CRASHES = 3  # crashes without progress until a poison shard fails: SHARDSIFT_MAX_ATTEMPTS in such fleets
_RACE_SECONDS = 2.0  # from the time a finalizer looks at the output until it publishes
_CALM_SECONDS = 30.0  # for the last messages to be consumed


def problems_of_run(
    run: Run, fleet: ChaosFleet, hub: HubServer, undisturbed: dict[str, str], events: Iterable[Event]
) -> list[Broken]:
    own = [event for event in events if event.run == run.run_id]
    found = (
        *_of_ledger(run, fleet),
        *_of_output(run, hub, undisturbed),
        *_of_publication(run, hub, own),
        *(() if run.is_put_back else _of_attempts(run, own)),
        *(_of_poison(run, fleet, own) if run.variant.poison else ()),
    )
    return [_of(run, problem) for problem in found]


def problems_of_what_is_left(
    fleet: ChaosFleet, outcome: Outcome, hub: HubServer, undisturbed: Digests, *, tick: Callable[[], None]
) -> list[Broken]:
    """Wait until the queues are empty, for a limited time. Then check messages, leftovers and all published runs.

    Late writers may have damaged a published run. Call this before the fleet is stopped.
    """
    known = [run for run in outcome.runs if run.run_id and fleet.ledger.state(run.run_id).complete]
    queues = {list_ for run in known for list_ in queue_lists(fleet.ledger.spec(run.run_id).queue)}
    deadline = time.time() + _CALM_SECONDS
    while any(fleet.ledger.redis.llen(queue) for queue in queues) and time.time() < deadline:
        tick()
    redis = fleet.ledger.redis
    outcome.left = {
        "messages in queues": sum(redis.llen(queue) for queue in queues),
        "unacked": redis.hlen("unacked"),
        "files in scratch folders": sum(path.is_file() for path in (fleet.folder / "scratch").rglob("*")),
        "files aside in outputs": len(list((fleet.folder / "out").glob("*/.shardsift/*/aside/*"))),
        "refused": sum(fleet.ledger.refused().values()),
    }
    problems = [
        Broken(Promise.LEFT_BEHIND, f"{messages} messages in {queue}")
        for queue in sorted(queues)
        if (messages := redis.llen(queue))
    ]
    for run in filter(lambda run: run.published_at, outcome.runs):
        late = (
            *(() if run.is_put_back else _of_ledger(run, fleet)),
            *_of_output(run, hub, undisturbed[run.variant.name]),
            *_of_publication(run, hub, (event for event in outcome.events if event.run == run.run_id)),
        )
        problems += [_of(run, problem, ", at the end") for problem in late]
    return problems


def problems_of_processes(fleet: ChaosFleet) -> list[Broken]:
    """Return a violation for each process that is left. Call this after the fleet is stopped."""
    found = [f"process {process.pid}: {' '.join(process.cmdline())[:120]}" for process in fleet.processes()]
    return [Broken(Promise.LEFT_BEHIND, what) for what in found]


def _of(run: Run, problem: Broken, when: str = "") -> Broken:
    return Broken(problem.promise, f"run {run.number} ({run.run_id}){when}: {problem.what}")


def published_digests(run_uri: str, hub_repo: str, hub: HubServer) -> dict[str, str]:
    """Return the sha256 of every published Parquet file except the manifest, by path."""
    files = _published_files(run_uri, hub_repo, hub, "data/", "scores/")
    return {path: hashlib.sha256(content).hexdigest() for path, content in files}


def _published_files(uri: str, hub_repo: str, hub: HubServer, *prefixes: str) -> Iterator[tuple[str, bytes]]:
    if hub_repo:
        for path in hub.files(hub_repo):
            if path.startswith(prefixes):
                yield path, hub.read(hub_repo, path)
        return
    for file in Path(uri).rglob("*.parquet"):
        path = file.relative_to(uri).as_posix()
        if path.startswith(prefixes):
            yield path, file.read_bytes()


def _of_ledger(run: Run, fleet: ChaosFleet) -> Iterator[Broken]:
    counts, keys, redis = fleet.ledger.counts(run.run_id), Keys(run.run_id), fleet.ledger.redis
    poison = run.variant.poison
    states = {"done": counts.done, "failed": counts.failed, "queued": counts.queued, "running": counts.running}
    wanted = {"done": len(run.variant.own_shards - poison), "failed": len(poison), "queued": 0, "running": 0}
    if states != wanted:
        yield Broken(Promise.LOST, f"the ledger has {counts.shards} shards, {states}; it should have {wanted}")
    if set(redis.smembers(keys.failed)) != poison:
        yield Broken(Promise.WRONGLY_FAILED, f"{sorted(redis.smembers(keys.failed))} and not {sorted(poison)}")
    kept = {keys.attempts(shard) for shard in poison} | {keys.scores(shard) for shard in poison}
    left = {*redis.scan_iter(f"{keys.attempts('')}*"), *redis.scan_iter(f"{keys.scores('')}*")} - kept
    if left:
        yield Broken(Promise.LEFT_BEHIND, f"attempts or checkpoints of done shards: {sorted(left)}")
    counted = int(redis.hget(keys.run, "checkpoint_bytes") or 0)
    if counted and not poison:
        yield Broken(Promise.LEFT_BEHIND, f"{counted} bytes of checkpoints are counted, and none is there")


def _of_output(run: Run, hub: HubServer, undisturbed: dict[str, str]) -> Iterator[Broken]:
    digests = published_digests(run.output_uri, run.hub_repo, hub)
    if missing := sorted(undisturbed.keys() - digests):
        yield Broken(Promise.FALSELY_PUBLISHED, f"missing: {missing}")
    if wrong := sorted(path for path in digests if digests[path] != undisturbed.get(path)):
        yield Broken(Promise.OTHER_BYTES, f"not those of an undisturbed run: {wrong}")
    yield from _of_manifest(run, hub)
    if not run.hub_repo:
        roots = [Path(run.output_uri), *([run.variant.base] if run.variant.base else [])]
        workplaces, *earlier = ({path.name for path in root.glob(".shardsift/*")} for root in roots)
        if workplaces != {run.run_id}.union(*earlier):
            yield Broken(Promise.OTHER_BYTES, f"the output holds other runs: {workplaces}")


def _of_manifest(run: Run, hub: HubServer) -> Iterator[Broken]:
    manifest = next((file for _, file in _published_files(run.output_uri, run.hub_repo, hub, "manifest.parquet")), b"")
    if not manifest:
        yield Broken(Promise.FALSELY_PUBLISHED, "there is no manifest")
        return
    digest = hashlib.sha256(manifest).hexdigest()
    if digest != (run.manifest_digest or digest) and not run.is_put_back:
        yield Broken(Promise.COMMITTED_TWICE, "the manifest was changed after the run was published")
    run.manifest_digest = digest
    try:
        lines = pq.read_table(io.BytesIO(manifest)).to_pylist()
    except pa.ArrowInvalid as error:
        yield Broken(Promise.FALSELY_PUBLISHED, f"the manifest cannot be read: {error}")
        return
    listed = Counter(line["shard"] for line in lines)
    if missing := run.variant.shard_names - run.variant.poison - listed.keys():
        yield Broken(Promise.LOST, f"not in the manifest: {sorted(missing)}")
    if doubled := [shard for shard, times in listed.items() if times > 1]:
        yield Broken(Promise.DOUBLED, f"more than once in the manifest: {sorted(doubled)}")


def _of_publication(run: Run, hub: HubServer, events: Iterable[Event]) -> Iterator[Broken]:
    """Check that the run was published once. Two finalizers may publish to a folder at the same time, but none may later."""
    if run.hub_repo:
        titles = [commit.title for commit in hub.commits(run.hub_repo)]
        if titles != [f"Publish run {run.run_id}", *([BASE_TITLE] if run.variant.base else []), "initial commit"]:
            yield Broken(Promise.COMMITTED_TWICE, f"main has the commits {titles}")
        if set(hub.branches(run.hub_repo)) != {"main"}:
            yield Broken(Promise.LEFT_BEHIND, f"branches {sorted(hub.branches(run.hub_repo))}")
        return
    ends = [event.at for event in events if event.what == "publish"]
    begins = [event.at for event in events if event.what == "publishing" and not run.is_put_back]
    if late := [at for at in begins if ends and at > ends[0] + _RACE_SECONDS]:
        yield Broken(Promise.COMMITTED_TWICE, f"it was published again at {late}, after its publication at {ends[0]}")


def _of_attempts(run: Run, events: list[Event]) -> Iterator[Broken]:
    """Check that no shard was completed by two attempts, unless its staged file was damaged, and that no claims share a token."""
    damaged = run.files.touched if run.files else ()
    tokens = defaultdict(set)
    for event in events:
        if event.what == "complete" and event.shard not in damaged:
            tokens[event.shard].add(event.token)
    twice = {shard: sorted(found) for shard, found in tokens.items() if len(found) > 1}
    if twice:
        yield Broken(Promise.DOUBLED, f"recorded as done by two attempts: {twice}")
    claims = Counter(event.token for event in events if event.what == "claim")
    if shared := [token for token, times in claims.items() if times > 1]:
        yield Broken(Promise.DOUBLED, f"two claims share a token: {shared}")


def _of_poison(run: Run, fleet: ChaosFleet, events: list[Event]) -> Iterator[Broken]:
    """Check that a poison shard failed at its third crash without progress. Every attempt counts unless it was stopped."""
    keys, stopped = Keys(run.run_id), {event.token for event in events if event.what == "release"}
    for failure in fleet.ledger.failures(run.run_id):
        began = {e.token for e in events if e.what == "claim" and e.shard == failure.shard} - stopped
        crashes = int(fleet.ledger.redis.hget(keys.attempts(failure.shard), "crashes") or 0)
        if crashes != _CRASHES or not failure.attempts == len(began) >= _CRASHES:
            yield Broken(
                Promise.WRONGLY_FAILED,
                f"poison {failure.shard} by {crashes} crashes, which should be {_CRASHES}, after {failure.attempts} attempts, "
                f"of which {len(began)} began and were not stopped: {failure.error}",
            )
