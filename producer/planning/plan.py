"""Turn the user's options into a checked run. Writes nothing."""

from contextlib import suppress
from dataclasses import dataclass, replace

from shardsift.fleet.errors import OutputTaken, ShardError, UsageError
from shardsift.fleet.run.spec import BestRows, RunSpec, Shard, file_name
from shardsift.fleet.storage.open_output import manifest_at, open_output
from shardsift.fleet.storage.output import Recovered
from shardsift.producer.evidence.evidence import Evidence, evidence_for
from shardsift.producer.patience import patient
from shardsift.producer.planning.choice import choose_rows
from shardsift.producer.planning.columns import find_columns
from shardsift.producer.planning.cut import check_ranking
from shardsift.producer.planning.destination import Destination, find_destination
from shardsift.producer.planning.inputs import Input, absolute_uri, digest_of, read_input
from shardsift.producer.planning.layout import check_layout
from shardsift.producer.planning.options import Ranking, RefilterOptions, RunOptions
from shardsift.producer.planning.reproduce import command_again
from shardsift.producer.planning.scorings import find_scorings


@dataclass(frozen=True, kw_only=True)
class Plan:
    spec: RunSpec
    shards: tuple[Shard, ...]
    command: str | None = None  # for the card: the command that reproduces the rows
    evidence: Evidence | None = None  # for the card: how good the filter is
    public: bool = False  # whether to create a new repository as public; the published bytes are the same
    notes: tuple[str, ...] = ()  # for the user: the recipes that are used, and what a threshold keeps
    left_out: tuple[str, ...] = ()  # files in the input's folders that are not read, because of their names
    then: RefilterOptions | None = None  # a second run that chooses rows by the scores of this one

    @property
    def chosen(self) -> RunSpec:
        """The spec with the user's choice of rows and output.

        Differs from `spec` if there is a second step, because `spec` then publishes all scores to another place.
        """
        return _chosen(self.spec, self.then) if self.then else self.spec


@patient
def plan_run(options: RunOptions) -> Plan:
    """Resolve input and model, and check what can be checked without a GPU. Raises UsageError if a check fails."""
    destination = find_destination(options)
    source = read_input(options)
    found = find_columns(source, options.columns)
    scored = find_scorings(options, found)
    spec = RunSpec(
        input_uris=found.source.uris,
        input_revision=found.source.revision,
        crawl=options.crawl,
        columns=found.columns,
        only_columns=found.are_chosen,
        folder_columns=found.of_folders,
        scorings=scored.scorings,
        where="false",  # until the filter is checked against the columns of this spec
        output_uri=absolute_uri(destination.first_uri),
        row_columns=found.row_columns,
        limit_rows=options.limit_rows,
        rows_per_task=options.rows_per_task,
        target_file_bytes=destination.file_bytes,
        max_bad_rows=options.max_bad_rows,
    )
    spec, kept_notes = choose_rows(spec, scored.options, found.schema)
    then = _second_step(options, spec, destination)
    spec, shards = as_enqueued(spec, found.source)
    layout_notes = check_layout(spec, shards)
    return Plan(
        spec=spec,
        shards=shards,
        command=command_again(scored.options, spec),
        evidence=evidence_for(options.evidence, spec),
        public=options.public,
        notes=(
            *scored.notes,
            *kept_notes,
            *source.notes,
            *layout_notes,
            *found.notes,
            *_two_steps_lines(spec, then),
            *destination.notes,
        ),
        left_out=source.left_out,
        then=then,
    )


def as_enqueued(spec: RunSpec, source: Input) -> tuple[RunSpec, tuple[Shard, ...]]:
    """Return the spec and shards as first enqueued.

    Files whose new content `producer retry` has accepted do not change the run's id.
    """
    with suppress(ShardError):  # reserving the output says what is wrong with it
        for run_id, accepted in open_output(spec.output_uri, spec.run_id).accepted().items():
            revision = digest_of(map(accepted.as_enqueued, source.listed))
            earlier = replace(spec, input_revision=revision, columns=accepted.columns or spec.columns)
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


def _second_step(options: RunOptions, spec: RunSpec, destination: Destination) -> RefilterOptions | None:
    """Return the options of the second run, which chooses rows by this run's scores. None if there is no second run.

    Raises UsageError if the second run's output is taken. The output is not refused if this run has already stored or
    published scores, because then it may have been taken by the second run itself.
    """
    if not options.needs_all_scores:
        return None
    check_ranking(spec, Ranking(by=options.by))
    then = RefilterOptions(
        keep_top=options.keep_top,
        by=options.by,
        output_uri=destination.output_uri,
        target_file_size=options.target_file_size,
        public=options.public,
    )
    if manifest_at(spec.output_uri) is None:
        try:
            open_output(destination.output_uri, spec.run_id).check_free(_chosen(spec, then))
        except OutputTaken as taken:
            if open_output(spec.output_uri, spec.run_id).recovered() == Recovered():
                raise UsageError(
                    f"If run {taken.run_id} is by this command, restore the scores that it has read: they are not at "
                    f"{spec.output_uri}. Otherwise: {taken}"
                ) from taken
    return then


def _chosen(spec: RunSpec, then: RefilterOptions) -> RunSpec:
    best = BestRows(columns=(), share=then.keep_top or "", by=then.by)
    return replace(spec, best=best, output_uri=absolute_uri(then.output_uri))


def _two_steps_lines(spec: RunSpec, then: RefilterOptions | None) -> list[str]:
    if then is None:
        return []
    return [
        f"In two steps: all rows are scored, and their scores published to {spec.output_uri}. Then rows are chosen by them, "
        f"and published to {then.output_uri}."
    ]
