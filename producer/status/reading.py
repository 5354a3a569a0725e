"""Read the status of a run once, from the ledger and from what workers, machines and finalizers announce.

The screen, the JSON, the exit code, the metrics and the Runs page are drawn from it.
"""

import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger, RunningShard
from shardsift.fleet.presence.demand import Load
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER
from shardsift.fleet.run.receipt import Histogram, Receipt, added
from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.status.view import MOST_RETRIES, Present, RunStatus


def run_status(
    ledger: Ledger, run_id: str, *, present: Present | None = None, most_failures: int | None = None
) -> RunStatus:
    """Read the status of a run, with the first `most_failures` failed shards (None: all).

    To read many runs, read `present` once and pass it. Raises UsageError for an unknown run.
    """
    spec = ledger.spec(run_id)
    state, counts, pace = ledger.progress(run_id)
    load, histograms = Load.of(spec), ledger.histograms(run_id)
    running = tuple(ledger.running_shards(run_id))  # after the counts: an ended run must not show a shard as running
    present = present or Present.read(ledger.redis)
    workers = [one for one in present.workers if one.serves(run_id)]
    machines = [one for one in present.machines if one.serves(run_id)]
    return RunStatus(
        **vars(state),
        run_id=run_id,
        output_uri=spec.output_uri,
        queue=spec.queue,
        counts=counts,
        pace=pace,
        failures=tuple(ledger.failures(run_id, most=most_failures)),
        retries=tuple(ledger.retries(run_id, most=MOST_RETRIES, running=running)),
        refused=ledger.refused(),
        error_reasons=ledger.error_reasons(run_id),
        left_out=ledger.fields_left_out(run_id),
        workers=tuple(one for one in workers if one.queue == spec.queue and one.activity != "stopping"),
        workers_elsewhere=sum(one.queue != spec.queue for one in workers),
        other_models=tuple(_other_models(spec, present)),
        running=running,
        where=spec.where,
        scores_are_stored=all(scoring.scores_from for scoring in spec.scorings),
        histograms=_so_far(histograms, running),
        formats=_slower_formats(ledger.some_receipts(run_id, 1)),
        machines=tuple(machine for machine in machines if machine.may_serve(load)),
        unable=tuple(machine for machine in machines if machine.failed_to_serve(load)),
        finalizers=tuple(one for one in present.finalizers if one.serves(run_id)),
        no_writes=present.no_writes,
        worker_command=_worker_command(spec),
        is_of_this_machine=ledger.is_embedded,
    )


def run_statuses(ledger: Ledger, present: Present | None = None) -> Iterator[RunStatus]:
    """Read the status of each run, newest first, with at most one failure. Skips runs whose spec this version cannot read."""
    present = present or Present.read(ledger.redis)
    for run_id in ledger.run_ids():
        with suppress(UsageError):
            yield run_status(ledger, run_id, present=present, most_failures=1)


def _so_far(done: dict[str, Histogram], running: Iterable[RunningShard]) -> dict[str, Histogram]:
    reports = [shard.report.histograms for shard in running if shard.report]
    return {
        column: added([histogram, *(report[column] for report in reports if column in report)])
        for column, histogram in done.items()
    }


def _slower_formats(receipts: Iterable[Receipt]) -> dict[str, str]:
    """Return the score columns for which a faster format or backend failed, each with its number format and the reason."""
    made = (one for receipt in receipts for one in receipt.scorings if one.refused_dtypes or one.faulty_ways)
    return {scoring.score_column: scoring.format_line for scoring in made}


def _other_models(spec: RunSpec, present: Present) -> Iterator[str]:
    """Yield the run's model folders that have other files on a machine now than when it was enqueued: `/my/model on box/12`."""
    enqueued = {model.name: model.revision for model in spec.served_by if model.is_folder}
    for machine in present.machines:
        for model in machine.wanted.models:
            if model.revision != enqueued.get(model.name, model.revision):
                yield f"{model.name} on {machine.name}"


def _worker_command(spec: RunSpec) -> str:
    """Return the command that starts workers for this run. The workers read revisions and precision from the ledger."""
    models = spec.served_by
    arguments = [word for model in models for word in ("--model", model.name)]
    if models[0].scorer != SEQUENCE_CLASSIFIER:
        arguments += ["--scorer", models[0].scorer]
    return shlex.join(["worker", "start", *arguments])
