"""From the user's options to a checked run. Nothing is written yet."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from fleet.errors import ShardError, UsageError
from fleet.inputs.columns import Columns
from fleet.inputs.formats import has_footer
from fleet.inputs.input_file import BadRowLimit, BadRows
from fleet.inputs.opening import open_input
from fleet.process.redact import redacted
from fleet.run.choices import DEFAULT_MODEL, passages_and_pool
from fleet.run.columns import describe_columns, kept_schema
from fleet.run.filter import Filter
from fleet.run.model import SEQUENCE_CLASSIFIER, Model, with_revision
from fleet.run.recipes import adds_int_score
from fleet.run.scorers import resolve_model
from fleet.run.scoring import Scoring, check_scoring, entailment_output
from fleet.run.sequence_classifier import threshold_of
from fleet.run.spec import RunSpec, Shard
from fleet.run.text import check_takes_columns, chosen_columns, template_of, text_columns
from producer.opening import patient
from producer.planning.destination import check_hub_has_model, check_hub_has_places, check_places, with_output
from producer.planning.inputs import Input, crawl_input, limited, list_input, told_before_a_run
from producer.planning.models import (
    check_columns,
    options_by_model,
    recipe_lines,
    with_recipe,
    without_labels,
    zero_shot,
)
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
    options_by_model(options)  # raises UsageError before anything is asked of the Hub
    options = with_output(options)
    source = checked_input(options)
    schema = schema_of(source.shards[0], chosen_columns(options.columns))
    _check_first_rows(source.shards[0], schema, options)
    models = _models(options)
    scorings = tuple(_scoring(*named, schema, source.shards[0]) for named in models)
    choice = _choice(models[0][1:], scorings)
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
        recipes=recipe_lines(one for _, one, _ in models),
        kept=_kept_told(choice, scorings),
        left_out=source.left_out,
    )


def _models(options: RunOptions) -> list[tuple[str, RunOptions, Model]]:
    """Each model with its score column and its options.

    With --labels, models that can choose from them do, and others keep their own.
    """
    each = options_by_model(options)
    models = {column: _model(one) for column, one in each.items()}
    choosing = [column for column, model in models.items() if entailment_output(model) is not None]
    return [
        (column, without_labels(one) if choosing and column not in choosing else one, models[column])
        for column, one in each.items()
    ]


def _model(options: RunOptions) -> Model:
    check_hub_has_model(options)
    name, revision = with_revision(options.model)
    try:
        return resolve_model(options.scorer, name, revision)
    except UsageError as error:
        if options.scorer == SEQUENCE_CLASSIFIER or name != DEFAULT_MODEL:
            raise
        raise UsageError(f"{error} Name a model of the scorer {options.scorer} with --model.") from error


def checked_input(options: RunOptions) -> Input:
    """The shards that the options name. Raises UsageError if input or output cannot be used, or overlap."""
    for option, uri in (*(("--input", uri) for uri in options.input_uris), ("--output", options.output_uri)):
        refuse_secrets(option, uri)
    check_places(options)
    _check_output_is_apart(options)
    check_hub_has_places(options)
    return limited(_input(options), options.limit_rows)


def _scoring(column: str, given: RunOptions, model: Model, schema: pa.Schema, shard: Shard) -> Scoring:
    options = with_recipe(given)
    check_columns(given, schema, shard)
    columns = text_columns(options, schema, shard.uri, called=f"Shard {shard.name}")
    labels = zero_shot(options, model)
    function = options.function_to_apply or (labels.function if labels else model.function)
    passages, pool = passages_and_pool(options.passages or "head")
    scoring = Scoring(
        model=model,
        dtype=options.dtype,
        text_columns=columns,
        text_pair_column=options.text_pair_column,
        text_template=template_of(options.text_column),
        max_tokens=options.max_tokens,
        passages=passages,
        pool=pool,
        score_column=column,
        function_to_apply=function,
        int_score=labels is None and adds_int_score(model, function),
        zero_shot=labels,
    )
    check_scoring(scoring)
    return scoring


def check_filter(spec: RunSpec, schema: pa.Schema) -> None:
    """Raises UsageError if the filter does not fit an input with this schema, or names of columns collide."""
    kept = kept_schema(schema, spec)
    if not spec.where:
        return
    keep = Filter(spec.where, kept)
    for scoring in spec.scorings:
        if scoring.outputs > 1 and (wrong := keep.texts_compared_with(scoring.label_column) - set(scoring.labels)):
            raise UsageError(
                f'The filter compares "{scoring.label_column}" with {min(wrong)!r}, which is not one of the labels: '
                f"{', '.join(scoring.labels)}."
            )


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
        return crawl_input(options.crawl, options.dataset)
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


def _choice(first: tuple[RunOptions, Model], scorings: Sequence[Scoring]) -> "Choice":
    """The rows to keep: as the user says it, otherwise as the recipe or the model does. Raises UsageError if none says it."""
    options, model = with_recipe(first[0]), first[1]
    choice = Choice(min_score=options.min_score, where=options.where, keep_all=options.keep_all)
    if choice.is_default and len(scorings) == 1:
        if scorings[0].outputs == 1 and scorings[0].function_to_apply == "none":
            choice = replace(choice, min_score=threshold_of(model))
        if choice.is_default:
            raise UsageError(
                f"Say which rows to keep: --min-score, --where or --keep-all. The model {model.name} has no threshold of its own."
            )
    check_choice(choice, scorings)
    return choice


def check_choice(choice: "Choice", scorings: Sequence[Scoring]) -> None:
    """Raises UsageError if the choice does not say which of several models it is about, or keeps no row, or every row."""
    if len(scorings) > 1 and choice.where is None and not choice.keep_all:
        raise UsageError(
            f'Say which rows to keep with --where, like "{" and ".join(map(_example, scorings))}", or --keep-all: '
            "a --min-score is for a single model."
        )
    if choice.min_score is not None:
        _check_min_score(choice.min_score, scorings[0])


def _check_min_score(min_score: float, scoring: Scoring) -> None:
    function, labels = scoring.function_to_apply, scoring.outputs
    if function != "none" and min_score > 1:
        raise UsageError(
            f"--min-score {min_score:g} keeps no row: these scores are probabilities from 0 to 1, by {function}."
        )
    if function == "softmax" and min_score <= 1 / labels:
        raise UsageError(
            f"--min-score {min_score:g} keeps every row: {scoring.score_column} is the probability of the best of {labels} "
            f"labels, which is never below 1/{labels}. Name a label: --where {shlex.quote(_of_one_label(scoring))}."
        )
    if function == "sigmoid" and min_score <= 0:
        raise UsageError(f"--min-score {min_score:g} keeps every row: these scores are from 0 to 1. Say --keep-all.")


def _of_one_label(scoring: Scoring) -> str:
    """A condition on the last label, which of two is that of the rows that are looked for."""
    if not scoring.label_score_columns:
        return f"{_column(scoring.label_column)} = '{scoring.labels[-1]}'"
    return f"{_column(scoring.label_score_columns[-1])} >= 0.5"


def _column(name: str) -> str:
    """A column's name in SQL, in quotes if it needs them."""
    return name if name.isascii() and name.isidentifier() else _quoted(name)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _kept_told(choice: "Choice", scorings: Sequence[Scoring]) -> str | None:
    """A line about what a threshold keeps, if it is not that of a single output."""
    if choice.min_score is None or scorings[0].outputs == 1:
        return None
    return (
        f"Rows are kept whose best label, whichever it is, scores {choice.min_score:g} or more. "
        f"For one label: --where {shlex.quote(_of_one_label(scorings[0]))}."
    )


def _example(scoring: Scoring) -> str:
    if scoring.outputs > 1:  # its score is that of the best label, whichever that is
        return f"{scoring.label_column} = '{scoring.labels[0]}'"
    return f"{scoring.score_column} >= {3 if scoring.function_to_apply == 'none' else 0.5}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which rows to keep, as the user says it."""

    min_score: float | None
    where: str | None
    keep_all: bool

    @property
    def is_default(self) -> bool:
        return self.min_score is None and self.where is None and not self.keep_all

    def condition(self, score_column: str) -> str | None:
        """As SQL; None keeps every row. Raises UsageError for an empty condition, and for more than one."""
        if sum([self.min_score is not None, self.where is not None, self.keep_all]) > 1:
            raise UsageError("Use only one of --min-score, --where and --keep-all.")
        if self.where is not None and not self.where.strip():
            raise UsageError("--where is empty: is a shell variable unset? To keep every row, say --keep-all.")
        if self.keep_all:
            return None
        if self.where is not None:
            return self.where
        return f"{_quoted(score_column)} >= {self.min_score}"
