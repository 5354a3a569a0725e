"""Plan a run that applies another filter to the scores of a published run. No text is scored again."""

from collections.abc import Sequence
from dataclasses import replace

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.process.wording import first_of
from shardsift.fleet.run.spec import RunSpec, Shard, disclosed_inputs
from shardsift.fleet.scorers.stored_scores import model_of, published_run
from shardsift.fleet.storage.open_output import Published, is_on_hub
from shardsift.producer.opening import patient
from shardsift.producer.planning.cut import RankedRun, best_rows, buckets_of
from shardsift.producer.planning.destination import place_lines
from shardsift.producer.planning.inputs import absolute_uri, as_scored, with_folder_columns
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import (
    Plan,
    check_filter,
    check_goes_together,
    checked_input,
    condition,
    resumed,
    target_file_bytes,
)
from shardsift.producer.planning.reproduce import command_with_other_rows

_NAMED_SHARDS = 3


@patient
def plan_refilter(
    scores_uri: str, options: RunOptions, *, earlier: RunSpec | None = None, replaces: bool = False
) -> Plan:
    """Plan the run over the input and the scores of the run that is published at `scores_uri`.

    Of the options, those about rows to keep, input and output count. `earlier` is that run's spec in the ledger, if it is there:
    it says where the input is. A plan that `replaces` that run publishes where it is. Raises UsageError if nothing is
    published there, if the input is unknown or is not what was scored, and if the filter does not fit.
    """
    check_goes_together(options)
    published = published_run(absolute_uri(scores_uri).rstrip("/"))
    _check_place(published, options.output_uri, replaces=replaces)
    asked = options
    options = replace(options, output_uri=options.output_uri or published.uri)
    spec = replace(published.spec, buckets=None, best=None)
    inputs = options.input_uris or _input_uris(published, earlier)
    found = checked_input(replace(options, input_uris=inputs, limit_rows=spec.limit_rows, rows_per_task=None))
    files = with_folder_columns(found, spec.folder_columns)
    shards = as_scored(files.shards, published.receipts, published.left_out)
    source = replace(files, shards=tuple(shards.values()))
    _check_is_what_was_scored(source.shards, published)
    ranked = RankedRun(spec=spec, output_uri=published.uri, receipts=published.receipts, shards=shards, ranking=options)
    notes: tuple[str, ...] = ()
    if options.keep_top is not None:
        best, where, notes = best_rows(ranked, options.keep_top)
        options, spec = replace(options, where=where), replace(spec, best=best)
    buckets = buckets_of(ranked, options.buckets) if options.buckets else None
    if buckets and options.keep_top is None:
        notes = ranked.of_unranked("have no bucket")
    new_spec = replace(
        spec,
        input_uris=source.uris,
        input_revision=source.revision,
        scorings=tuple(replace(scoring, scores_from=model_of(published)) for scoring in spec.scorings),
        where=condition(options, spec.scorings),
        buckets=buckets,
        target_file_bytes=target_file_bytes(options, by_default=spec.target_file_bytes),
        output_uri=absolute_uri(options.output_uri),
    )
    with open_shard(source.shards[0].uri, spec) as file:
        check_filter(new_spec, file.schema)
    command = command_with_other_rows(published.command, asked, new_spec)
    new_spec, due = resumed(new_spec, source)
    return Plan(
        spec=new_spec,
        shards=due,
        public=options.public,
        command=command,
        notes=(*notes, *place_lines(options.output_uri)),
    )


def _check_place(published: Published, output_uri: str, *, replaces: bool) -> None:
    """Raises UsageError unless the rows have one place: a new one or, on the Hub, that of the run whose scores are read."""
    if replaces == bool(output_uri):
        raise UsageError("Say where to put the rows: either --output URI or --replace.")
    if replaces and not is_on_hub(published.uri):
        raise UsageError(
            "--replace is for a dataset on the Hub, where one commit replaces all files at once. Readers of a folder or "
            "bucket would see old and new rows together: name a new place with --output."
        )
    if not replaces and absolute_uri(output_uri).rstrip("/") == published.uri:
        raise UsageError(
            f"--output {output_uri} is where the scores are read from. Choose another --output, or say --replace."
        )


def _input_uris(published: Published, earlier: RunSpec | None) -> tuple[str, ...]:
    if earlier:
        return earlier.input_uris
    spec = published.spec
    if any(not uri.startswith("hf://") for uri in spec.input_uris):
        raise UsageError(
            f"The dataset at {published.uri} does not contain the path of its input, which was named "
            f"{', '.join(disclosed_inputs(spec))}. Add --input PATH, or name the run instead, if `producer runs` lists it."
        )
    return spec.input_uris


def _check_is_what_was_scored(shards: Sequence[Shard], published: Published) -> None:
    here = {shard.name: shard.identity for shard in shards}
    scored = {receipt.shard: receipt.source_identity for receipt in published.receipts}
    scored |= {name: here[name] for name in published.left_out if name in here}  # these fail again, and are reported
    differing = sorted(name for name in here | scored if here.get(name) != scored.get(name))
    if differing:
        raise UsageError(
            f"The input is not the one that the run at {published.uri} has scored. Shards that differ: "
            f"{first_of(differing, _NAMED_SHARDS)}. Name that input with --input, or score this one with `producer run`."
        )
