"""From the user's options to a checked run. Nothing is written yet."""

import math
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import ByteSize, Field, TypeAdapter, ValidationError

from shardsift.fleet.errors import OutputTaken, ShardError, UsageError
from shardsift.fleet.process.redact import redacted
from shardsift.fleet.process.wording import first_of, is_url, local_path
from shardsift.fleet.run.choices import DEFAULT_MODEL
from shardsift.fleet.run.filter import Filter, compared_with
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model, with_revision
from shardsift.fleet.run.options import options_by_model, recipe_options, scoring_of
from shardsift.fleet.run.output_columns import kept_schema
from shardsift.fleet.run.recipes import recipe_line
from shardsift.fleet.run.scoring import Scoring, check_names_differ, name_and_model, score_column_of
from shardsift.fleet.run.spec import Buckets, RunSpec, Shard, file_name
from shardsift.fleet.run.text import template_of, text_columns
from shardsift.fleet.scorers.kinds import resolve_model
from shardsift.fleet.scorers.sequence_classifier import check_max_tokens, configured_threshold
from shardsift.fleet.storage.open_output import is_on_hub, manifest_at, open_output
from shardsift.fleet.storage.output import MANIFEST_PATH, Recovered
from shardsift.producer.opening import patient
from shardsift.producer.planning.columns import find_columns
from shardsift.producer.planning.cut import RankedRun, check_within, columns_of_input, share_of
from shardsift.producer.planning.destination import (
    check_folder_names,
    check_folders,
    check_hub,
    check_output_place,
    check_tree,
    place_lines,
    scores_beside,
    twins_line,
    with_output,
)
from shardsift.producer.planning.inputs import (
    Input,
    absolute_uri,
    crawl_input,
    digest_of,
    limited,
    list_input,
    split,
)
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.reproduce import command_again

_NAMED_LABELS = 10
_BYTES = TypeAdapter(Annotated[ByteSize, Field(ge=10_000)])
_HUB_FILE_BYTES = 512_000_000  # as long as nothing else is asked for


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checked run that is not enqueued yet."""

    spec: RunSpec
    shards: tuple[Shard, ...]
    command: str | None = None  # makes the same rows again; without paths of a machine
    public: bool = False  # whether a repository that is created is public; the published bytes are the same
    notes: tuple[str, ...] = ()  # what to tell the user: the recipes that are used, and what a threshold keeps
    left_out: tuple[str, ...] = ()  # files in the input's folders whose endings are not those of an input
    then: RunOptions | None = None  # of the run that chooses rows by the scores of this one, which keeps none

    def __post_init__(self) -> None:
        check_tree(self.shards)
        check_folders(self.spec, self.shards)
        check_folder_names(self.spec, self.shards)


@patient
def plan_run(options: RunOptions) -> Plan:
    """Resolve input and model, and check everything that can be checked before a GPU is asked. Raises UsageError."""
    if (options.crawl is None) == (not options.input_uris) or "" in options.input_uris:  # an unset shell variable
        raise UsageError("Say what to read: either --crawl CC-MAIN-2024-10 or --input PATH.")
    check_goes_together(options)
    names = models_by_column(options.models)  # raises UsageError before anything is asked of the Hub
    options = with_output(options, names.values())
    first = options
    refuse_secrets("--output", options.output_uri)
    check_output_place(options.output_uri, public=options.public)
    if options.needs_all_scores:
        first = replace(options, output_uri=scores_beside(options.output_uri))
    found = find_columns(checked_input(first), options.columns)
    source, schema = found.source, found.schema
    models = {column: _model(options.scorer, name) for column, name in names.items()}
    given = options_by_model(models, options)
    recipes = {column: recipe_options(model, given[column]) for column, model in models.items()}
    completed = {column: replace(given[column], **recipe) for column, recipe in recipes.items()}
    scorings = tuple(_scoring(column, models[column], one, schema, source) for column, one in completed.items())
    keep = _with_threshold(next(iter(completed.values())), scorings)
    then = replace(keep, crawl=None) if options.needs_all_scores else None
    spec = RunSpec(
        input_uris=source.uris,
        input_revision=source.revision,
        crawl=options.crawl,
        columns=found.columns,
        only_columns=found.are_chosen,
        folder_columns=found.of_folders,
        scorings=scorings,
        where="false" if then else condition(keep, scorings),
        output_uri=absolute_uri(first.output_uri),
        row_columns=found.row_columns,
        limit_rows=options.limit_rows,
        rows_per_task=options.rows_per_task,
        target_file_bytes=target_file_bytes(
            options, by_default=_HUB_FILE_BYTES if is_on_hub(first.output_uri) else None
        ),
        max_bad_rows=options.max_bad_rows,
    )
    check_filter(spec, schema)
    if then:
        _check_choice(then, spec, schema)
    spec, shards = resumed(spec, source)
    return Plan(
        spec=spec,
        shards=shards,
        public=options.public,
        command=command_again(keep if len(models) == 1 else options, spec),
        notes=(
            *(recipe_line(models[column].name, one) for column, one in recipes.items() if one),
            *_kept_lines(keep, scorings),
            *source.notes,
            *twins_line(source.shards),
            *found.notes,
            *_then_lines(spec, then),
            *place_lines(options.output_uri),
        ),
        left_out=source.left_out,
        then=then,
    )


def models_by_column(models: Sequence[str]) -> dict[str, str]:
    """Each model, MODEL or MODEL@REVISION, by its score column.

    Raises UsageError if several models have no names or the same one.
    """
    named = [name_and_model(text) for text in models]
    if not all(model for _, model in named) or not named:
        raise UsageError("--model is empty: is a shell variable unset? Name a Hub model or a folder.")
    if len(named) > 1:
        if unnamed := [model for name, model in named if name is None]:
            raise UsageError(f"Give each of several models a name for its columns, like --model edu={unnamed[0]}.")
        check_names_differ(name for name, _ in named if name)
    return {score_column_of(name) if name else "score": model for name, model in named}


def resumed(spec: RunSpec, source: Input) -> tuple[RunSpec, tuple[Shard, ...]]:
    """The run and its shards. Files that have changed since, and that `producer retry` accepted, make no other run."""
    with suppress(ShardError):  # reserving the output says what is wrong with it
        for run_id, accepted in open_output(spec.output_uri, spec.run_id).accepted().items():
            revision = digest_of(map(accepted.as_enqueued, source.listed))
            earlier = replace(spec, input_revision=revision, columns=accepted.columns or spec.columns)
            if earlier.run_id == run_id:
                shards = source.shards
                if accepted.ranges:  # the files have other lengths now, from which other shards would follow
                    files = {file.name: file for file in source.listed}
                    shards = tuple(
                        replace(files[file_name(name, files)], name=name, first_row=first_row, row_limit=limit)
                        for name, (first_row, limit) in sorted(accepted.ranges.items())
                    )
                return earlier, tuple(replace(shard, changed=accepted.has(shard)) for shard in shards)
    return spec, source.shards


def _model(scorer: str, named: str) -> Model:
    name, revision = with_revision(named)
    try:
        return resolve_model(scorer, name, revision)
    except UsageError as error:
        if scorer == SEQUENCE_CLASSIFIER or name != DEFAULT_MODEL:
            raise
        raise UsageError(f"{error} Name a model of the scorer {scorer} with --model.") from error


def _scoring(column: str, model: Model, options: RunOptions, schema: pa.Schema, source: Input) -> Scoring:
    shard = source.shards[0]
    check_max_tokens(model, options.max_tokens)
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
    _check_output_is_apart(options)
    check_hub(options)
    source = list_input(*options.input_uris) if options.crawl is None else crawl_input(options.crawl)
    return split(limited(source, options.limit_rows), options.rows_per_task)


def check_filter(spec: RunSpec, schema: pa.Schema) -> None:
    """Raises UsageError if the filter does not fit an input with this schema, or names of columns collide."""
    kept = kept_schema(schema, spec)
    if spec.where:
        Filter(spec.where, kept)
        for scoring in spec.scorings:
            _check_labels(spec.where, scoring)


def _check_labels(where: str, scoring: Scoring) -> None:
    if scoring.outputs > 1 and (wrong := compared_with(where, scoring.label_column) - {*scoring.labels}):
        label = min(wrong)
        by_lower = {known.lower(): known for known in scoring.labels}
        near = get_close_matches(label.lower(), by_lower, n=1)
        hint = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
        raise UsageError(
            f"The filter {where!r} names a label that {scoring.model.name} does not give: {label!r}.{hint} "
            f"Its labels: {first_of(scoring.labels, _NAMED_LABELS)}."
        )


def refuse_secrets(option: str, uri: str) -> None:
    """Raises UsageError for a URI with a secret: the spec is stored in Redis, sent to workers and published."""
    if is_url(uri) and redacted(uri) != uri:
        raise UsageError(
            f"{option} {redacted(uri)} carries a password, token or signature, which would be stored with the run. "
            "Give the address alone and the credentials in the environment of producer, workers and finalizer: HF_TOKEN, "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your storage's fsspec library reads (FSSPEC_<PROTOCOL>_…)."
        )


def _check_output_is_apart(options: RunOptions) -> None:
    """An output among the files of the input would be the next run's input. A folder is read with all folders below it."""
    output = _real_path(options.output_uri)
    for uri in options.input_uris:
        source = _real_path(uri.partition("**")[0])
        if not output or not source:
            continue
        if source.is_dir() and output.is_relative_to(source):
            raise UsageError(
                f"The output {output} lies in the input folder. Choose another --output, or name files with --input, "
                f"not the folder {source}."
            )
        if source.parent == output or (output / MANIFEST_PATH).match(str(source)):
            raise UsageError(f"The output {output} would be among the files of --input {uri}. Choose another --output.")


def _real_path(uri: str) -> Path | None:
    """Where a local path leads through all links, also if nothing is there yet; None for other URIs."""
    return None if is_url(uri) else local_path(uri).resolve()


def target_file_bytes(options: RunOptions, *, by_default: int | None) -> int | None:
    text = options.target_file_size
    if text is None or text == "none":
        return by_default if text is None else None
    with suppress(ValidationError):
        size_bytes = int(_BYTES.validate_python(text))
        if not text.strip().isdecimal():
            return size_bytes
    raise UsageError(
        f"--target-file-size takes a number and a unit, like 512MB or 1GB, at least 10kB, or none; it was {text!r}."
    )


# A run of two steps: all scores are published beside the output, and then rows that are chosen by them at the output.


def _check_choice(then: RunOptions, spec: RunSpec, schema: pa.Schema) -> None:
    """Check before rows are scored what can be known of the second step. Raises UsageError.

    Its output is free, or its own, which it can be only when the scores are published.
    """
    ranked = RankedRun(spec=spec, output_uri=spec.output_uri, receipts=(), shards={}, ranking=then)
    columns_of_input(spec, then)
    buckets, where = Buckets(columns=ranked.columns, edges=()), None
    if then.keep_top is not None:
        share_of(then.keep_top)
        check_within(spec, then)
    else:
        where = condition(then, spec.scorings)
    check_filter(replace(spec, where=where, buckets=buckets if then.buckets else None), schema)
    _check_output_is_apart(then)
    if manifest_at(spec.output_uri) is not None:
        return
    try:
        open_output(then.output_uri, spec.run_id).check_free(spec)
    except OutputTaken as taken:
        if open_output(spec.output_uri, spec.run_id).recovered() == Recovered():
            raise UsageError(
                f"The output {then.output_uri} holds the data of another run, {taken.run_id}. Choose another --output. Or, if "
                f"that run is by this command, restore the scores that it has read: they are not at {spec.output_uri}."
            ) from taken


def _then_lines(spec: RunSpec, then: RunOptions | None) -> list[str]:
    if then is None:
        return []
    return [
        f"In two steps: all rows are scored, and their scores published to {spec.output_uri}. Then rows are chosen by them, "
        f"and published to {then.output_uri}."
    ]


# Turn the choice of rows into SQL, and refuse thresholds that mean nothing.


def _with_threshold(options: RunOptions, scorings: Sequence[Scoring]) -> RunOptions:
    """The options; if they do not say which rows to keep or mark, with the threshold of a single model that has its own."""
    is_chosen = options.min_score is not None or options.where is not None or options.keep_all
    if (
        is_chosen
        or options.needs_all_scores
        or len(scorings) > 1
        or scorings[0].outputs > 1
        or scorings[0].function_to_apply != "none"
    ):
        return options
    return replace(options, min_score=configured_threshold(scorings[0].model))


def check_goes_together(options: RunOptions) -> None:
    """Raises UsageError for a choice of rows by options that do not go together."""
    is_chosen = options.min_score is not None or options.where is not None or options.keep_all
    if is_chosen and options.keep_top is not None:
        raise UsageError("Use only one of --keep-top, --min-score, --where and --keep-all.")
    if not options.needs_all_scores and (options.score_columns or options.by or options.within):
        raise UsageError(
            "--score-column, --by and --within are for --keep-top and --buckets. Add one, or leave them out."
        )


def condition(options: RunOptions, scorings: Sequence[Scoring]) -> str | None:
    """The rows to keep as SQL; None keeps every row. Raises UsageError for no choice, or one that means nothing."""
    if sum([options.min_score is not None, options.where is not None, options.keep_all]) > 1:
        raise UsageError("Use only one of --min-score, --where and --keep-all.")
    if options.keep_all:
        return None
    if options.where is not None:
        if not options.where.strip():
            raise UsageError("--where is empty: is a shell variable unset? To keep every row, say --keep-all.")
        return options.where
    if len(scorings) > 1:
        raise UsageError("Say which rows to keep with --where or --keep-all: a --min-score is for a single model.")
    if options.min_score is None:
        raise UsageError("Say which rows to keep: --min-score, --where or --keep-all.")
    _check_min_score(options.min_score, scorings[0])
    return f'"{scorings[0].score_column}" >= {options.min_score}'


def _kept_lines(options: RunOptions, scorings: Sequence[Scoring]) -> list[str]:
    """Say what a threshold keeps of a model with several labels, whose score is that of the best one."""
    if options.min_score is None or scorings[0].outputs == 1:
        return []
    return [
        f"Rows are kept whose best label, whichever it is, scores {options.min_score:g} or more. "
        f"For one label: --where {shlex.quote(_of_one_label(scorings[0]))}."
    ]


def _check_min_score(min_score: float, scoring: Scoring) -> None:
    function, labels = scoring.function_to_apply, scoring.outputs
    if not math.isfinite(min_score):
        raise UsageError(f"--min-score {min_score:g} is not a number that a score can reach.")
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
        return f"{scoring.label_column} = '{scoring.labels[-1]}'"
    return f"{scoring.label_score_columns[-1]} >= 0.5"
