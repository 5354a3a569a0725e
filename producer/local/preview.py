"""Preview a run: score rows drawn from all shards on this machine, as a worker does. Publishes and keeps nothing."""

import random
import shutil
import signal
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.formats import format_name, has_footer
from shardsift.fleet.inputs.input_file import NotedRows
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.process.children import handling
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.tuned import FILE_NAME
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Histogram
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.scratch import remove_abandoned, scratch_folder
from shardsift.producer.evidence.intervals import Part, Share, share_of_good
from shardsift.producer.local.run import run_locally
from shardsift.producer.planning.columns import find_columns
from shardsift.producer.planning.estimate import Looked, looked_at
from shardsift.producer.planning.inputs import Input, list_input
from shardsift.producer.planning.plan import Plan
from shardsift.producer.planning.sampled_work import SampledShard
from shardsift.producer.scores.distribution import filter_threshold, score_tables, threshold_column
from shardsift.producer.scores.input_rows import read_rows
from shardsift.producer.scores.scored_run import NearRow, near_lines, rows_near, scored_run
from shardsift.producer.status import RunStatus
from shardsift.producer.transient_errors import with_retries

_SHOWN = 3  # texts of each kind
_MANY_ROWS = 10**9  # stands for the number of input rows, which is much larger than the sample


@dataclass(frozen=True, kw_only=True)
class Preview(Looked):
    """The result of a run on a sample of rows. If no row can be read, only the inherited fields have values."""

    where: str | None = None
    kept: Share | None = None  # share of rows that the filter keeps; None if the run publishes only scores
    errors: dict[str, int] = field(default_factory=dict)  # reason → rows without a score
    rows_per_second: float = 0.0
    device: str = ""
    histograms: dict[str, Histogram] = field(default_factory=dict)
    best: Sequence[NearRow] = ()
    worst: Sequence[NearRow] = ()
    nearest: Sequence[NearRow] = ()  # to the threshold, if the filter has one

    def lines(self) -> Iterator[str]:
        yield f"preview  {counted(self.sampled_rows, 'row')} drawn from {counted(self.sampled_shards, 'shard')}"
        if self.kept:
            yield f"kept     {self.kept} with 95 % confidence, by {self.where or '--keep-all'}"
        yield from (f"errored  {rows:,} {reason}" for reason, rows in self.errors.items())
        if self.device:
            yield f"speed    {self.rows_per_second:,.1f} rows/s by one worker on {self.device}"
        yield from score_tables(self.histograms)
        for title, rows in (("best", self.best), ("worst", self.worst), ("nearest to the threshold", self.nearest)):
            if rows:
                yield from ("", f"{title}:", *near_lines(rows))
        yield from ("", *warnings) if (warnings := [*self.warnings()]) else ()


def preview_run(plan: Plan, settings: Settings, rows: int) -> Preview:
    """Score about `rows` rows of a planned run in a separate local run, in a temporary folder.

    Uses neither the fleet nor the Redis of this machine's runs. Raises UsageError if the rows cannot be scored, ShardError
    or TransientError if they cannot be read, KeyboardInterrupt on SIGINT or SIGTERM.
    """
    remove_abandoned(settings.scratch_dir)
    with handling(signal.SIGTERM, by=signal.default_int_handler), scratch_folder(settings.scratch_dir) as folder:
        sample = with_retries(draw_rows)(plan.spec, plan.shards, rows)
        found = Preview(**looked_at(plan.spec, sample))
        places = [(one.shard.name, number) for one in sample for number in one.numbers if number not in one.noted]
        if not places:
            return found
        (folder / "in").mkdir()
        with translated("Putting the rows of the shards together"):
            pq.write_table(pa.concat_tables(map(_good_rows, sample)), folder / "in" / "preview.parquet")
        source, ended = _scored(plan, settings, folder)
        run, column = scored_run(str(folder / "out"), settings), threshold_column(plan.spec)
        (receipt,) = run.receipts
        scored = [
            replace(row, shard=places[row.row][0], row=places[row.row][1])
            for row in rows_near(
                run, column, near=0.0, count=len(places), source={shard.name: shard for shard in source.shards}
            )
        ]
        sampled = Part(rows=_MANY_ROWS, labels=found.sampled_rows, good=receipt.rows_kept)
        threshold, nearest = filter_threshold(plan.spec.where, column), list[NearRow]()
        if threshold is not None:
            nearest = sorted(scored, key=lambda row: abs(row.score - threshold))[:_SHOWN]
        return replace(
            found,
            where=plan.spec.where,
            kept=None if plan.spec.publishes_only_scores else share_of_good(sampled),
            errors=receipt.errors,
            rows_per_second=ended.rows_per_second,
            device=receipt.provenance.device,
            histograms=run.histograms,
            best=scored[::-1][:_SHOWN],
            worst=scored[:_SHOWN],
            nearest=nearest,
        )


def _good_rows(one: SampledShard) -> pa.Table:
    return one.table.filter(pa.array([number not in one.noted for number in one.numbers], pa.bool_()))


def _scored(plan: Plan, settings: Settings, folder: Path) -> tuple[Input, RunStatus]:
    """Run the plan on the files in `folder`/in, and write to `folder`/out. Returns the input and the final status."""
    state = folder / "state"
    state.mkdir()
    with suppress(FileNotFoundError):
        shutil.copy(settings.state_dir / FILE_NAME, state)  # from `worker tune`
    found = find_columns(list_input(str(folder / "in")), None)
    spec = replace(
        plan.spec,
        input_uris=found.source.uris,
        input_revision=found.source.revision,
        columns=found.columns,
        folder_columns=(),
        output_uri=str(folder / "out"),
    )
    own = {"redis_url": None, "redis_password_file": None, "state_uri": None, "state_dir": state}
    alone = settings.model_copy(update=own)
    try:
        ended = run_locally(Plan(spec=spec, shards=found.source.shards), alone, workers=1, progress=False)
    except UsageError as error:
        raise UsageError(str(error).partition(" (The whole log")[0]) from error  # the log is removed with its folder
    if not ended.is_published:
        raise UsageError(f"The rows cannot be scored. {' '.join(one.error for one in ended.failures) or ended.word}")
    return found.source, ended


# Draw rows from all shards.

_THREADS = 8
_PLACES = 64  # shared by all uncompressed JSON Lines files
_LINES_BYTES, _LEAST_BYTES = (
    128 << 20,
    1 << 20,
)  # decompressed bytes to read: from all files together, from each at least


def draw_rows(
    spec: RunSpec, shards: Sequence[Shard], rows: int, *, lines_bytes: int = _LINES_BYTES
) -> tuple[SampledShard, ...]:
    """Draw up to `rows` rows, with all columns, at random from all shards: more from larger files, and no row twice.

    Any row of a Parquet file may be drawn. JSON Lines and CSV files have no index, so only parts of them are read:
    about 128 MiB in all, but at least 1 MiB per file. If there are at most 32 shards, uncompressed JSON Lines are read
    at up to 64 places spread over all files. All other files of lines are read only from the start. Raises ShardError
    or TransientError if a file cannot be read.
    """
    rng = random.Random(spec.input_revision)
    most_bytes = max(_LEAST_BYTES, lines_bytes // len(shards))
    places = [place for shard in shards for place in _places(shard, most_bytes, _PLACES // len(shards))]
    ends = [*accumulate(weight for _, weight, _, _ in places)]
    points = ((number + rng.random()) * ends[-1] / rows for number in range(rows))
    drawn = Counter(bisect(ends, point, hi=len(ends) - 1) for point in points)
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda place: _drawn(spec, drawn[place], *places[place]), sorted(drawn))
        return tuple(found)


def _places(shard: Shard, most_bytes: int, parts: int) -> list[tuple[Shard, float, int, int]]:
    """Return the places to read in a file, each as (shard, weight, first byte, bytes to read).

    The weight is the number of the file's bytes that the place stands for. Only a large, uncompressed JSON Lines file
    without row limit has several places, at most `parts`.
    """
    size, is_compressed = shard.size_bytes or 1, shard.uri.lower().endswith((".gz", ".zst"))
    if format_name(shard.uri) != "JSON Lines" or is_compressed or shard.row_limit or size <= most_bytes or parts < 2:
        return [(shard, size, 0, most_bytes)]
    return [(shard, size / parts, part * size // parts, most_bytes // parts) for part in range(parts)]


def _drawn(spec: RunSpec, count: int, shard: Shard, _: float, first_byte: int, read_bytes: int) -> SampledShard:
    noted, draw = NotedRows(), random.Random(f"{spec.input_revision} {shard.name} {first_byte}").sample
    if has_footer(shard.uri):
        with open_shard(shard.uri, spec, first_row=shard.first_row) as file:
            columns, rows = file.schema.names, file.count_rows(shard.row_limit)
        numbers = sorted(draw(range(shard.first_row, shard.first_row + rows), min(count, rows)))
        table = read_rows(shard.uri, numbers, spec, columns, bad=noted)
    else:
        batches, left = [], read_bytes
        opened = open_shard(shard.uri, spec, first_byte=first_byte, read_bytes=read_bytes)
        with opened as file, translated(f"Reading {shard.uri}"):
            for batch in file.batches(bad=noted):
                batches.append(batch)
                left -= batch.nbytes
                if left <= 0:
                    break
            table = pa.Table.from_batches(batches, file.schema).slice(0, shard.row_limit)
        numbers = sorted(draw(range(len(table)), min(count, len(table))))
        table = table.take(pa.array(numbers, pa.int64()))
    noted.keep(numbers)
    name = f"{shard.name} from byte {first_byte:,}" if first_byte else shard.name
    return SampledShard(shard=replace(shard, name=name), rows=None, table=table, noted=noted, numbers=numbers)
