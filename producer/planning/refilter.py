"""Plan a run that applies another filter to the scores of a published run. No text is scored again."""

from dataclasses import replace

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.process.wording import first_of
from shardsift.fleet.run.spec import RunSpec, disclosed_inputs
from shardsift.fleet.scorers.stored_scores import model_of, published_run
from shardsift.fleet.storage.open_output import Published, is_on_hub
from shardsift.producer.evidence.evidence import evidence_for
from shardsift.producer.planning.choice import check_filter, condition
from shardsift.producer.planning.columns import with_folder_columns
from shardsift.producer.planning.cut import RankedRun, best_rows, buckets_of
from shardsift.producer.planning.destination import check_destination, file_bytes, place_lines
from shardsift.producer.planning.inputs import Input, absolute_uri, as_scored, read_input
from shardsift.producer.planning.layout import check_layout
from shardsift.producer.planning.options import InputOptions, RefilterOptions
from shardsift.producer.planning.plan import Plan, as_enqueued
from shardsift.producer.planning.reproduce import command_with_other_rows
from shardsift.producer.transient_errors import with_retries

_NAMED_SHARDS = 3


@with_retries
def plan_refilter(scores_uri: str, options: RefilterOptions, *, earlier: RunSpec | None = None) -> Plan:
    """Plan a run over the scores that are published at `scores_uri`, and over their input.

    `earlier` is the published run's spec from the ledger, if known. Unlike the published spec, it has the paths of
    local inputs. Raises UsageError if nothing is published there, if the input is unknown or is not the one that was
    scored, or if the filter does not fit.
    """
    published = published_run(absolute_uri(scores_uri).rstrip("/"))
    output_uri = _output(published, options)
    input_uris = options.input_uris or _input_uris(published, earlier)
    check_destination(output_uri, input_uris, public=options.public)
    scored = replace(published.spec, buckets=None, best=None)
    source = _as_it_was_scored(read_input(InputOptions(input_uris=input_uris, limit_rows=scored.limit_rows)), published)
    ranked = RankedRun(
        spec=scored,
        output_uri=published.uri,
        receipts=published.receipts,
        shards={shard.name: shard for shard in source.shards},
        ranking=options,
    )
    best, where, notes = best_rows(ranked, options.keep_top) if options.keep_top else (None, None, ())
    buckets = buckets_of(ranked, options.buckets) if options.buckets else None
    scorings = tuple(replace(scoring, scores_from=model_of(published)) for scoring in scored.scorings)
    spec = replace(
        scored,
        input_uris=source.uris,
        input_revision=source.revision,
        scorings=scorings,
        where=where or condition(options, scorings),
        buckets=buckets,
        best=best,
        unique=options.unique,
        target_file_bytes=file_bytes(options.target_file_size, by_default=scored.target_file_bytes),
        output_uri=absolute_uri(output_uri),
    )
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
        notes=(
            *notes,
            *(ranked.of_unranked("have no bucket") if buckets and best is None else ()),
            *place_lines(options.output_uri),
            *check_layout(spec, shards),
        ),
    )


def _output(published: Published, options: RefilterOptions) -> str:
    """Return the output: --output, or the published run's with --replace. Raises UsageError for none or both."""
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


def _as_it_was_scored(found: Input, published: Published) -> Input:
    """Turn the input into the shards of the published run. Raises UsageError if it is not the input of that run."""
    files = with_folder_columns(found, published.spec.folder_columns)
    shards = as_scored(files.shards, published.receipts, published.left_out)
    here = {name: shard.identity for name, shard in shards.items()}
    scored = {receipt.shard: receipt.source_identity for receipt in published.receipts}
    scored |= {name: here[name] for name in published.left_out if name in here}  # these fail again, and are reported
    differing = sorted(name for name in here | scored if here.get(name) != scored.get(name))
    if differing:
        raise UsageError(
            f"The input is not the one that the run at {published.uri} has scored. Shards that differ: "
            f"{first_of(differing, _NAMED_SHARDS)}. Name that input with --input, or score this one with `producer run`."
        )
    return replace(files, shards=tuple(shards.values()))
