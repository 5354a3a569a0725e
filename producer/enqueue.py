"""From the user's options to a run in the ledger and its messages in the broker."""

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from celery import Celery

from fleet.columns import describe_columns, is_text, kept_schema, repeated_column
from fleet.dispatch import queue_lost_shards, send_due_shards
from fleet.errors import ShardsiftError, UsageError
from fleet.filter import Filter
from fleet.ledger import Counts, Ledger
from fleet.model_resolution import resolve_model
from fleet.redact import redacted
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.inspection import Finding
from fleet.storage.opening import open_output, open_parquet
from fleet.storage.output import Output, Recovered
from producer.destination import with_output
from producer.finalizer.publish import look_again
from producer.options import RunOptions
from producer.preflight import check_hub_has_model, check_hub_has_places, check_places
from producer.same_run import changed_files_told, same_run
from producer.sources.inputs import Input, crawl_input, limited, list_input

_EDU_CLASSIFIER = "fineweb-edu-classifier"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checked run that nothing was done about yet."""

    spec: RunSpec
    shards: tuple[Shard, ...]
    public: bool = (
        False  # who may see a repository that is created; not of the spec, since the published bytes are the same
    )


@dataclass(frozen=True, kw_only=True)
class Enqueued:
    """What enqueueing did: how many shards are new to the ledger, and how the run stands now.

    `restored` are those of the new that were done before the ledger was lost. `findings` are what was wrong with the
    output of a published run; what can be mended is mended, or its shards are queued again.
    """

    run_id: str
    queue: str
    added: int
    restored: int
    sent: int
    counts: Counts
    findings: tuple[Finding, ...] = ()


def plan_run(options: RunOptions) -> Plan:
    """Resolve input and model, and check everything that can be checked before a GPU is asked. Raises UsageError."""
    _check_input_is_named(options)
    options = with_output(options)
    for option, uri in (*(("--input", uri) for uri in options.input_uris), ("--output", options.output_uri)):
        _refuse_secrets(option, uri)
    check_places(options)
    _check_output_is_apart(options)
    check_hub_has_places(options)
    source = limited(_input(options), shards=options.limit_shards, rows=options.limit_rows)
    check_hub_has_model(options)
    model = resolve_model(options.model, options.model_revision)
    _check_function(options.function_to_apply, outputs=len(model.labels))
    schema = _schema(source.shards[0])
    _check_text_column(schema, options.text_column, source.shards[0])
    spec = RunSpec(
        input_uris=source.uris,
        input_revision=source.revision,
        crawl=source.crawl,
        columns=describe_columns(schema),
        text_column=options.text_column,
        model=model,
        dtype=options.dtype,
        score_column=options.score_column,
        int_score=_wants_int_score(options, outputs=len(model.labels)),
        where=_condition(options),
        output_uri=absolute_uri(options.output_uri),
        function_to_apply=options.function_to_apply,
        score_blank=options.score_blank,
        row_columns=_row_columns(options),
        limit_shards=options.limit_shards,
        limit_rows=options.limit_rows,
        publish_paths=options.publish_paths,
    )
    kept = kept_schema(schema, spec)
    if spec.where:
        Filter(spec.where, kept)
    return Plan(spec=spec, shards=source.shards, public=options.public)


def enqueue(plan: Plan, ledger: Ledger, app: Celery, *, resend_seconds: float, verify: bool = False) -> Enqueued:
    """Reserve the output, write the run, send its messages. May run twice: the second time adds nothing.

    If the ledger was lost, the shards whose output is there are recorded as done. The output of a published run is looked
    at, with `verify` at its content too, and put right. Raises what the output raises.
    """
    spec = same_run(plan.spec, plan.shards, ledger)
    output = open_output(spec.output_uri, spec.run_id)
    with changed_files_told(spec, plan.shards, ledger):
        output.reserve(spec, public=plan.public)
    # Read and recorded before the run is complete: a producer that dies here, or cannot read them, reads them the next
    # time, and meanwhile nobody scores what is done.
    recovered = Recovered() if ledger.is_enqueued(spec.run_id) else output.recovered()
    added = ledger.add_shards(spec, plan.shards, now=time.time())
    restored = ledger.restore(spec.run_id, recovered.whole)
    ledger.remember(spec.run_id, recovered.partial)
    ledger.mark_enqueued(spec.run_id)
    ledger.clear_publish_error(spec.run_id)
    findings = look_again(ledger, spec.run_id, hashes=verify) or _losses(output, recovered, spec, hashes=verify)
    queue_lost_shards(ledger, spec.run_id, resend_seconds=resend_seconds)
    sent = send_due_shards(app, ledger, spec.run_id)
    return Enqueued(
        run_id=spec.run_id,
        queue=spec.queue,
        added=added,
        restored=restored,
        sent=sent,
        counts=ledger.counts(spec.run_id),
        findings=findings,
    )


def _losses(output: Output, recovered: Recovered, spec: RunSpec, *, hashes: bool) -> tuple[Finding, ...]:
    """What a published output has lost, if the ledger was lost too; those shards are scored again."""
    mark = output.published() if recovered.partial else None
    if mark is None or mark.run_id != spec.run_id:
        return ()
    return tuple(output.inspect([*recovered.whole, *recovered.partial], hashes=hashes))


def absolute_uri(uri: str) -> str:
    """Workers run in other folders: a local path must not depend on this one."""
    return uri if "://" in uri else str(Path(uri).expanduser().absolute())


def _refuse_secrets(option: str, uri: str) -> None:
    """The spec is stored in Redis, sent to workers and published."""
    if redacted(uri) != uri:
        raise UsageError(
            f"{option} {redacted(uri)} carries a password, token or signature, which would be stored with the run. "
            "Give the address alone and the credentials in the environment of producer, workers and finalizer: HF_TOKEN, "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your storage's fsspec library reads (FSSPEC_<PROTOCOL>_…)."
        )


def _check_input_is_named(options: RunOptions) -> None:
    if (options.crawl is None) == (not options.input_uris):
        raise UsageError("Say what to read: either --crawl CC-MAIN-2024-10 or --input PATH.")


def _input(options: RunOptions) -> Input:
    if options.crawl is not None:
        return crawl_input(options.crawl, options.dataset)
    return list_input(*options.input_uris)


def _check_output_is_apart(options: RunOptions) -> None:
    """A folder is read with all folders below it: an output there would be the next run's input."""
    output = _real_path(options.output_uri)
    for uri in options.input_uris:
        source = _real_path(uri.partition("**")[0])
        if output and source and source.is_dir() and output.is_relative_to(source):
            raise UsageError(
                f"The output {output} lies in the input folder. Choose another --output, or --input '{source}/*.parquet'."
            )


def _real_path(uri: str) -> Path | None:
    """Where a local path leads through all links, also if nothing is there yet; None for other URIs."""
    path = uri.removeprefix("file://")
    return None if "://" in path else Path(path).expanduser().resolve()


def _schema(shard: Shard) -> pa.Schema:
    try:
        with open_parquet(shard.uri) as parquet:
            return parquet.schema_arrow
    except ShardsiftError as error:
        raise UsageError(f"The first shard cannot be read. {error}") from error


def _check_text_column(schema: pa.Schema, name: str, shard: Shard) -> None:
    if repeated := repeated_column(schema):
        raise UsageError(f'Shard {shard.name} has several columns "{repeated}". Rename all but one.')
    if name not in schema.names:
        raise UsageError(
            f'Shard {shard.name} has no column "{name}"; it has: {", ".join(schema.names)}. Name one with --text-column.'
        )
    data_type = schema.field(name).type
    if not is_text(data_type):
        raise UsageError(f'The column "{name}" holds {data_type}, not text. Name a string column with --text-column.')


def _check_function(function: str, *, outputs: int) -> None:
    if function == "softmax" and outputs == 1:
        raise UsageError("Softmax makes every score of a model with one output 1. Apply sigmoid, or none.")


def _wants_int_score(options: RunOptions, *, outputs: int) -> bool:
    is_raw = options.function_to_apply == "none"
    if options.int_score is None:
        return is_raw and outputs == 1 and Path(options.model).name.lower() == _EDU_CLASSIFIER
    if options.int_score and not is_raw:
        raise UsageError("--int-score rounds a raw score, so it does not go with --function-to-apply. Leave one out.")
    if options.int_score and outputs != 1:
        raise UsageError(f"--int-score rounds a single score, but the model has {outputs} outputs. Leave it out.")
    return options.int_score


def _row_columns(options: RunOptions) -> tuple[str, str] | None:
    if options.no_row_columns:
        return None
    names = tuple(name.strip() for name in options.row_columns.split(","))
    if len(names) != 2 or len(set(names)) != 2 or not all(names):
        raise UsageError(f"--row-columns takes two names, like shard,row; it was {options.row_columns!r}.")
    return names


def _condition(options: RunOptions) -> str | None:
    given = [options.min_score is not None, options.where is not None, options.keep_all]
    if sum(given) > 1:
        raise UsageError("Use only one of --min-score, --where and --keep-all.")
    if options.where is not None and not options.where.strip():
        raise UsageError("--where is empty: is a shell variable unset? To keep every row, say --keep-all.")
    if options.keep_all:
        return None
    if options.where is not None:
        return options.where
    if options.min_score is None and options.function_to_apply != "none":
        raise UsageError("Say which scores to keep: --min-score. Its default of 3 is for raw scores.")
    quoted = options.score_column.replace('"', '""')
    return f'"{quoted}" >= {3.0 if options.min_score is None else options.min_score}'
