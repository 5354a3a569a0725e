"""Turn the user's options into a checked run. Writes nothing."""

from contextlib import suppress
from dataclasses import dataclass, replace

from shardsift.fleet.errors import ShardError
from shardsift.fleet.run.spec import RunSpec, Shard, file_name
from shardsift.fleet.storage.open_output import Published, open_output
from shardsift.producer.evidence.evidence import Evidence, evidence_for
from shardsift.producer.planning.choice import choose_rows, read_lists
from shardsift.producer.planning.columns import find_columns
from shardsift.producer.planning.destination import find_destination
from shardsift.producer.planning.extend import find_extension
from shardsift.producer.planning.inputs import Input, absolute_uri, digest_of, read_input
from shardsift.producer.planning.layout import check_layout
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.reproduce import command_again
from shardsift.producer.planning.scorings import find_scorings
from shardsift.producer.transient_errors import with_retries


@dataclass(frozen=True, kw_only=True)
class Plan:
    spec: RunSpec
    shards: tuple[Shard, ...]
    extended: Published | None = None  # the dataset that the run adds to
    command: str | None = None  # for the card: the command that reproduces the rows
    evidence: Evidence | None = None  # for the card: how good the filter is
    public: bool = False  # whether to create a new repository as public; the published bytes are the same
    notes: tuple[str, ...] = ()  # for the user: the recipes that are used, and what a threshold keeps
    left_out: tuple[str, ...] = ()  # files in the input's folders that are not read, because of their names


@with_retries
def plan_run(options: RunOptions) -> Plan:
    """Resolve input and models, and check what can be checked without a GPU. Raises UsageError if a check fails.

    Raises NothingToAdd for an extension with nothing new, unless it is the dataset's latest run again.
    """
    destination = find_destination(options)
    extension = find_extension(options, destination.output_uri) if options.extends else None
    options = extension.options if extension else options
    source = extension.source if extension else read_input(options)
    found = find_columns(source, options.columns, like=extension.published.spec if extension else None)
    scored = find_scorings(options, found)
    is_one_crawl = len(options.crawls) == 1
    spec = RunSpec(
        input_uris=found.source.uris,
        input_revision=found.source.revision,
        crawl=options.crawls[0] if is_one_crawl else None,
        subsets=() if is_one_crawl else options.subsets,
        columns=found.columns,
        only_columns=found.are_chosen,
        folder_columns=found.of_folders,
        scorings=scored.scorings,
        where="false",  # until the filter is checked against the columns of this spec
        output_uri=absolute_uri(destination.output_uri),
        row_columns=found.row_columns,
        limit_rows=options.limit_rows,
        rows_per_task=options.rows_per_task,
        target_file_bytes=destination.file_bytes,
        max_bad_rows=options.max_bad_rows,
        drop_lists=read_lists(options.drop_lists),
        unique=options.unique,
    )
    spec, kept_notes = choose_rows(spec, scored.options, found.schema)
    spec = extension.checked(spec) if extension else spec
    spec, shards = as_enqueued(spec, found.source)
    layout_notes = check_layout(spec, (*shards, *(extension.published_files if extension else ())))
    return Plan(
        spec=spec,
        shards=shards,
        extended=extension.published if extension else None,
        command=command_again(scored.options, spec),
        evidence=evidence_for(options.evidence, spec),
        public=options.public,
        notes=(
            *(extension.notes if extension else ()),
            *scored.notes,
            *kept_notes,
            *source.notes,
            *layout_notes,
            *found.notes,
            *destination.notes,
        ),
        left_out=source.left_out,
    )


def as_enqueued(spec: RunSpec, source: Input) -> tuple[RunSpec, tuple[Shard, ...]]:
    """Return the spec and shards to enqueue.

    If the run was enqueued before, and `producer retry` has accepted changed files since, returns the spec as it was enqueued
    then, so that the run keeps its id. The shards also keep their row ranges, and `changed` is set for those whose files were
    accepted.
    """
    with suppress(ShardError):  # reserving the output says what is wrong with it
        for run_id, accepted in open_output(spec.output_uri, spec.run_id).accepted().items():
            revision = digest_of(map(accepted.as_enqueued, source.listed))
            earlier = replace(
                spec, input_revision=spec.input_revision and revision, columns=accepted.columns or spec.columns
            )
            if earlier.run_id == run_id:
                shards = source.shards
                if accepted.ranges:  # changed files would be split differently now
                    files = {file.name: file for file in source.listed}
                    shards = tuple(
                        replace(files[file_name(name, files)], name=name, first_row=first_row, row_limit=limit)
                        for name, (first_row, limit) in sorted(accepted.ranges.items())
                    )
                return earlier, tuple(replace(shard, changed=accepted.has(shard)) for shard in shards)
    return spec, source.shards
