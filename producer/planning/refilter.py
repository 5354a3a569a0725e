"""Plan a run that applies another filter to the scores of a published run. No text is scored again."""

from collections.abc import Sequence
from dataclasses import replace

from fleet.errors import UsageError
from fleet.inputs.opening import open_input
from fleet.process.wording import first_of
from fleet.run.scorers import model_of, published_run
from fleet.run.spec import RunSpec, Shard, disclosed_inputs
from fleet.storage.opening import Published
from producer.opening import patient
from producer.planning.inputs import absolute_uri
from producer.planning.options import RunOptions
from producer.planning.plan import Plan, check_filter, checked_input, condition, resumed

_NAMED_SHARDS = 3


@patient
def plan_refilter(scores_uri: str, options: RunOptions, *, earlier: RunSpec | None = None) -> Plan:
    """Plan the run over the input and the scores of the run that is published at `scores_uri`.

    Of the options, those about rows to keep, input and output count. `earlier` is that run's spec in the ledger, if it is there:
    it says where the input is. Raises UsageError if nothing is published there, if the input is unknown or is not what was
    scored, and if the filter does not fit.
    """
    published = published_run(absolute_uri(scores_uri))
    if absolute_uri(options.output_uri).rstrip("/") == published.uri.rstrip("/"):
        raise UsageError(f"--output {options.output_uri} is where the scores are read from. Choose another --output.")
    spec = published.spec
    inputs = options.input_uris or _input_uris(published, earlier)
    source = checked_input(replace(options, input_uris=inputs, limit_rows=spec.limit_rows))
    _check_is_what_was_scored(source.shards, published)
    new_spec = replace(
        spec,
        input_uris=source.uris,
        input_revision=source.revision,
        scorings=tuple(replace(scoring, scores_from=model_of(published)) for scoring in spec.scorings),
        where=condition(options, spec.scorings),
        output_uri=absolute_uri(options.output_uri),
    )
    with open_input(source.shards[0].uri, spec.columns, only=spec.only_columns) as file:
        check_filter(new_spec, file.schema)
    new_spec, shards = resumed(new_spec, source)
    return Plan(spec=new_spec, shards=shards, public=options.public)


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
