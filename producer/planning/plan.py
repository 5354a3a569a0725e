"""From the user's options to a checked run. Nothing is written yet."""

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from fleet.errors import ShardError, UsageError
from fleet.inputs.columns import Columns
from fleet.inputs.formats import has_footer
from fleet.inputs.input_file import BadRowLimit, BadRows
from fleet.inputs.opening import open_input
from fleet.process.redact import redacted
from fleet.run.choices import DEFAULT_MODEL
from fleet.run.columns import describe_columns, kept_schema
from fleet.run.filter import Filter
from fleet.run.model import SEQUENCE_CLASSIFIER, Model, with_revision
from fleet.run.options import options_by_model, recipe_options, scoring_of
from fleet.run.recipes import recipe_line
from fleet.run.scorers import resolve_model
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec, Shard
from fleet.run.text import check_takes_columns, chosen_columns, template_of, text_columns
from producer.opening import patient
from producer.planning.destination import check_hub_has_model, check_hub_has_places, check_places, with_output
from producer.planning.inputs import Input, crawl_input, limited, list_input, told_before_a_run
from producer.planning.kept import Choice, kept_told, with_threshold
from producer.planning.models import check_recipe_columns, models_by_column
from producer.planning.options import RunOptions
from producer.planning.same_run import resumed

_FIRST_ROWS = 10_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checked run that is not enqueued yet."""

    spec: RunSpec
    shards: tuple[Shard, ...]
    public: bool = False  # whether a repository that is created is public; the published bytes are the same
    recipes: tuple[str, ...] = ()  # what to tell the user of the models' recipes
    kept: str | None = None  # what to tell the user of the rows that are kept, if that may surprise
    left_out: tuple[str, ...] = ()  # files in the input's folders whose endings are not those of an input


@patient
def plan_run(options: RunOptions) -> Plan:
    """Resolve input and model, and check everything that can be checked before a GPU is asked. Raises UsageError."""
    _check_input_is_named(options)
    names = models_by_column(options.models)  # raises UsageError before anything is asked of the Hub
    options = with_output(options, names.values())
    source = checked_input(options)
    schema = schema_of(source.shards[0], chosen_columns(options.columns))
    _check_first_rows(source.shards[0], schema, options)
    models = {column: _model(options.scorer, name) for column, name in names.items()}
    given = options_by_model(models, options)
    recipes = {column: recipe_options(model, given[column]) for column, model in models.items()}
    for column, model in models.items():
        check_recipe_columns(model, recipes[column], options, schema, source.shards[0])
    completed = {column: replace(given[column], **recipe) for column, recipe in recipes.items()}
    scorings = tuple(_scoring(column, models[column], one, schema, source) for column, one in completed.items())
    choice = with_threshold(_choice(next(iter(completed.values()))), scorings)
    spec = RunSpec(
        input_uris=source.uris,
        input_revision=source.revision,
        crawl=source.crawl,
        columns=describe_columns(schema),
        only_columns=options.columns is not None,
        scorings=scorings,
        where=choice.condition(scorings[0].score_column),
        output_uri=absolute_uri(options.output_uri),
        row_columns=_row_columns(options),
        limit_rows=options.limit_rows,
        max_bad_rows=options.max_bad_rows,
    )
    check_filter(spec, schema)
    spec, shards = resumed(spec, source)
    return Plan(
        spec=spec,
        shards=shards,
        public=options.public,
        recipes=tuple(recipe_line(models[column].name, one) for column, one in recipes.items() if one),
        kept=kept_told(choice, scorings),
        left_out=source.left_out,
    )


def _model(scorer: str, named: str) -> Model:
    name, revision = with_revision(named)
    check_hub_has_model(scorer, name)
    try:
        return resolve_model(scorer, name, revision)
    except UsageError as error:
        if scorer == SEQUENCE_CLASSIFIER or name != DEFAULT_MODEL:
            raise
        raise UsageError(f"{error} Name a model of the scorer {scorer} with --model.") from error


def _choice(options: RunOptions) -> Choice:
    return Choice(min_score=options.min_score, where=options.where, keep_all=options.keep_all)


def _scoring(column: str, model: Model, options: RunOptions, schema: pa.Schema, source: Input) -> Scoring:
    shard = source.shards[0]
    return scoring_of(
        model,
        options,
        text_columns=text_columns(options, schema, shard.uri, called=f"Shard {shard.name}"),
        text_pair_column=options.text_pair_column,
        text_template=template_of(options.text_column),
        score_column=column,
        dtype=options.dtype,
    )


def checked_input(options: RunOptions) -> Input:
    """The shards that the options name. Raises UsageError if input or output cannot be used, or overlap."""
    for option, uri in (*(("--input", uri) for uri in options.input_uris), ("--output", options.output_uri)):
        refuse_secrets(option, uri)
    check_places(options)
    _check_output_is_apart(options)
    check_hub_has_places(options)
    return limited(_input(options), options.limit_rows)


def check_filter(spec: RunSpec, schema: pa.Schema) -> None:
    """Raises UsageError if the filter does not fit an input with this schema, or names of columns collide."""
    kept = kept_schema(schema, spec)
    if spec.where:
        Filter(spec.where, kept)


def schema_of(shard: Shard, chosen: Columns | None = None) -> pa.Schema:
    """The columns of a shard, or only the chosen ones. Raises UsageError if it cannot be read."""
    if chosen is not None:
        check_takes_columns(shard.uri)
    try:
        with open_input(shard.uri, chosen, only=chosen is not None) as file:
            return file.schema
    except ShardError as error:
        raise UsageError(f"The first shard cannot be read. {told_before_a_run(error)}") from error


def _check_first_rows(shard: Shard, schema: pa.Schema, options: RunOptions) -> None:
    """Raises UsageError if a first shard of few lines will fail because too many cannot be read. Workers judge longer ones."""
    if has_footer(shard.uri):
        return
    limit, bad, rows = BadRowLimit(most_share=options.max_bad_rows), BadRows(), 0
    most = min(_FIRST_ROWS, shard.row_limit or _FIRST_ROWS)
    try:
        with open_input(shard.uri, describe_columns(schema), only=options.columns is not None) as file:
            batches = file.batches(bad=bad, most_rows=most)
            while rows < most and (batch := next(batches, None)) is not None:
                rows = min(most, rows + len(batch))
        if rows < most or most == shard.row_limit:
            limit.add([row for number, row in bad.items() if number < rows])
            limit.check(rows, f"Shard {shard.name}")
    except ShardError as error:
        raise UsageError(f"The first shard cannot be read. {told_before_a_run(error)}") from error


def absolute_uri(uri: str) -> str:
    """Workers run in other folders: a local path must not depend on this one."""
    return uri if "://" in uri else str(Path(uri).expanduser().absolute())


def refuse_secrets(option: str, uri: str) -> None:
    """Raises UsageError for a URI with a secret: the spec is stored in Redis, sent to workers and published."""
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
        return crawl_input(options.crawl)
    return list_input(*options.input_uris)


def _check_output_is_apart(options: RunOptions) -> None:
    """A folder is read with all folders below it: an output there would be the next run's input."""
    output = _real_path(options.output_uri)
    for uri in options.input_uris:
        source = _real_path(uri.partition("**")[0])
        if output and source and source.is_dir() and output.is_relative_to(source):
            raise UsageError(
                f"The output {output} lies in the input folder. Choose another --output, or name files with --input, "
                f"not the folder {source}."
            )


def _real_path(uri: str) -> Path | None:
    """Where a local path leads through all links, also if nothing is there yet; None for other URIs."""
    path = uri.removeprefix("file://")
    return None if "://" in path else Path(path).expanduser().resolve()


def _row_columns(options: RunOptions) -> tuple[str, str] | None:
    if options.row_columns == "none":
        return None
    names = tuple(name.strip() for name in options.row_columns.split(","))
    if len(names) != 2 or len(set(names)) != 2 or not all(names):
        raise UsageError(f"--row-columns takes two names, like shard,row, or none; it was {options.row_columns!r}.")
    return names
