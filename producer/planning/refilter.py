"""Plan a run that applies another filter to the scores of a published run. No text is scored again."""

from dataclasses import replace
from functools import partial

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.drop_lists import check_list_columns, located
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.process.wording import first_of
from shardsift.fleet.run.spec import DropList, RunSpec, Shard, disclosed_inputs
from shardsift.fleet.scorers.stored_scores import model_of, published_run
from shardsift.fleet.storage.open_output import Published, is_on_hub
from shardsift.producer.evidence.evidence import evidence_for
from shardsift.producer.planning.choice import NO_LISTS, check_filter, condition, read_lists
from shardsift.producer.planning.cut import RankedRun, best_rows, buckets_of
from shardsift.producer.planning.destination import check_destination, file_bytes, place_lines
from shardsift.producer.planning.extend import added_to_refiltered
from shardsift.producer.planning.inputs import (
    Input,
    absolute_uri,
    as_scored,
    digest_of,
    limited,
    list_input,
    named_as_scored,
    renamed_input,
)
from shardsift.producer.planning.layout import check_layout
from shardsift.producer.planning.options import RefilterOptions
from shardsift.producer.planning.plan import Plan, as_enqueued
from shardsift.producer.planning.reproduce import command_with_other_rows
from shardsift.producer.transient_errors import with_retries

_NAMED_SHARDS = 3


@with_retries
def plan_refilter(scores_uri: str, options: RefilterOptions, *, input_uris: tuple[str, ...] = ()) -> Plan:
    """Plan a run over the scores that are published at `scores_uri`, and over their input.

    `input_uris` are the input's URIs in the ledger, if it has the run: a published dataset does not name local paths.
    Raises UsageError if nothing is published there, if the input is unknown or is not the one that was scored, or if the
    filter does not fit.
    """
    published = published_run(absolute_uri(scores_uri).rstrip("/"))
    output_uri = _output(published, options)
    options = _with_filter(options, published.spec)
    lists = _drop_lists(options, published.spec)
    scored = replace(published.spec, buckets=None, best=None, extends=None, drop_lists=lists)
    source = _source(published, scored, options, input_uris, output_uri)
    if lists:
        with open_shard(source.shards[0].uri, scored) as file:
            check_list_columns(scored, file.schema)
    spec, notes = _with_other_rows(published, scored, source, options)
    spec = replace(
        spec,
        input_uris=source.uris,
        input_revision=source.revision,
        target_file_bytes=file_bytes(options.target_file_size, by_default=scored.target_file_bytes),
        output_uri=absolute_uri(output_uri),
    )
    if options.extends:
        spec, source = added_to_refiltered(spec.output_uri, spec, source)
    with open_shard(source.shards[0].uri, scored) as file:
        check_filter(spec, file.schema)
    command = command_with_other_rows(published.command, options, spec)
    spec, shards = as_enqueued(spec, source)
    return Plan(
        spec=spec,
        shards=shards,
        public=options.public,
        command=command,
        evidence=evidence_for(options.evidence, spec),
        notes=(*notes, *place_lines(options.output_uri), *check_layout(spec, shards)),
    )


def _output(published: Published, options: RefilterOptions) -> str:
    """Return --output, or with --replace the published run's output. Raises UsageError unless exactly one is given."""
    output_uri = options.output_uri
    if options.replaces == bool(output_uri):
        raise UsageError("Say where to put the rows: either --output URI or --replace.")
    if options.replaces and not is_on_hub(published.uri):
        raise UsageError(
            "--replace is for a dataset on the Hub, where one commit replaces all files at once. Readers of a folder or "
            "bucket would see old and new rows together: name a new place with --output."
        )
    if not options.replaces and absolute_uri(output_uri).rstrip("/") == published.uri:
        replaced = ", or say --replace" if is_on_hub(published.uri) else ""
        raise UsageError(f"--output {output_uri} is where the scores are read from. Choose another --output{replaced}.")
    return output_uri or published.uri


def _source(
    published: Published, scored: RunSpec, options: RefilterOptions, known_uris: tuple[str, ...], output_uri: str
) -> Input:
    """Return the input that was scored.

    If the dataset has several runs, --input is not given and all files are on the Hub, takes the input from the manifest.
    Otherwise lists the files as they are now. Raises UsageError if these were not scored, or if the output cannot be used.
    """
    has_lines = published.runs and not options.input_uris and _is_on_hub(published)
    uris = scored.input_uris if has_lines else options.input_uris or known_uris or _input_uris(published)
    check_destination(output_uri, uris, public=options.public)
    if has_lines:
        return _as_listed(published)
    found = list_input(*uris, in_subsets=bool(scored.subsets))
    return _as_it_was_scored(limited(found, scored.limit_rows), published)


def _with_other_rows(
    published: Published, scored: RunSpec, source: Input, options: RefilterOptions
) -> tuple[RunSpec, tuple[str, ...]]:
    """Return the spec that keeps the rows that the options ask for, and lines for the user."""
    ranked = RankedRun(
        spec=scored,
        output_uri=published.uri,
        receipts=published.receipts,
        shards={shard.name: shard for shard in source.shards},
        ranking=options,
    )
    best, where, notes = best_rows(ranked, options.keep_top) if options.keep_top else (None, None, ())
    buckets = buckets_of(ranked, options.buckets) if options.buckets else None
    if buckets and best is None:
        notes = ranked.of_unranked("have no bucket")
    scorings = tuple(replace(scoring, scores_from=model_of(published)) for scoring in scored.scorings)
    where = where or condition(options, scorings)
    return replace(scored, scorings=scorings, where=where, buckets=buckets, best=best, unique=options.unique), notes


def _is_on_hub(published: Published) -> bool:
    return all(receipt.source_uri.startswith("hf://") for receipt in published.receipts)


def _as_listed(published: Published) -> Input:
    """Take the input from the receipts in the manifest, because the runs may have read it at different commits."""
    shards = tuple(
        Shard(
            name=receipt.shard,
            uri=receipt.source_uri,
            identity=receipt.source_identity,
            first_row=receipt.first_row,
            row_limit=receipt.rows_in,
        )
        for receipt in published.receipts
    )
    return Input(uris=published.spec.input_uris, revision=digest_of(shards), shards=shards, listed=shards, left_out=())


def _input_uris(published: Published) -> tuple[str, ...]:
    spec = published.spec
    if any(not uri.startswith("hf://") for uri in spec.input_uris):
        raise UsageError(
            f"The dataset at {published.uri} does not contain the path of its input, which was named "
            f"{', '.join(disclosed_inputs(spec))}. Add --input PATH, or name the run instead, if `producer runs` lists it."
        )
    return spec.input_uris


def _with_filter(options: RefilterOptions, published: RunSpec) -> RefilterOptions:
    """Use the published run's filter if the options ask only for --drop-list or --unique.

    Changes nothing if the run has buckets, because its filter may be about them.
    """
    says = options.min_score is not None or options.where is not None or options.keep_all or options.keep_top
    if says or not (options.drop_lists or options.unique) or published.buckets:
        return options
    return replace(options, where=published.where, keep_all=published.where is None)


def _drop_lists(options: RefilterOptions, published: RunSpec) -> tuple[DropList, ...]:
    """Return the lists of --drop-list, otherwise those of the published run. Raises UsageError if these are not on the Hub."""
    if options.drop_lists:
        return read_lists(options.drop_lists)
    lists, lost = located(published.drop_lists, {})
    if lost:
        raise UsageError(
            f"The published run has left out the rows of {', '.join(lost)}. Name the lists that count from now on with "
            f"--drop-list, or say --drop-list {NO_LISTS}."
        )
    return lists


def _as_it_was_scored(found: Input, published: Published) -> Input:
    """Turn the input into the shards of the published run. Leaves out files that are not in that run.

    Raises UsageError if it is not the input of that run.
    """
    of_run = partial(named_as_scored, spec=published.spec, receipts=published.receipts, left_out=published.left_out)
    files = renamed_input(found, of_run)
    scored = {receipt.shard: receipt.source_identity for receipt in published.receipts}
    shards = as_scored(files.shards, published.receipts, published.left_out)
    known = {name: shard for name, shard in shards.items() if name in {*scored, *published.left_out}}
    here = {name: shard.identity for name, shard in known.items()}
    scored |= {name: here[name] for name in published.left_out if name in here}  # these fail again, and are reported
    differing = sorted(name for name in here | scored if here.get(name) != scored.get(name))
    if differing:
        raise UsageError(
            f"The input is not the one that the run at {published.uri} has scored. Shards that differ: "
            f"{first_of(differing, _NAMED_SHARDS)}. Name that input with --input, or score this one with `producer run`."
        )
    if len(known) < len(shards):
        return replace(files, shards=tuple(known.values()), revision=digest_of(known.values()))
    return replace(files, shards=tuple(known.values()))
