"""Report a dry run: the plan, its rows if they are cheap to count, and the lines of its estimate."""

from collections.abc import Iterator, Sequence

from fleet.inputs.formats import has_footer
from fleet.process.wording import counted
from fleet.run.spec import Shard
from producer.planning.estimate import DeviceEstimate, Estimate, Range
from producer.planning.inputs import count_rows
from producer.planning.plan import Plan
from producer.status.cost import GIVEN, LISTED, gpu_called

_REMOTE_FOOTERS, _LOCAL_FOOTERS = 16, 2_000  # reading more than this takes too long
_LINES_BYTES = 1 << 30  # reading more than this of files of lines takes too long


def plan_report(plan: Plan) -> dict[str, int | str]:
    spec = plan.spec
    sizes = [shard.size_bytes for shard in plan.shards]
    return {
        "run_id": spec.run_id,
        "input": ", ".join(spec.input_uris),
        "revision": spec.input_revision,
        "shards": len(plan.shards),
        "rows": _rows(plan.shards),
        "bytes": sum(size for size in sizes if size is not None),
        "model": ", ".join(f"{scoring.model.name} at {scoring.model.revision}" for scoring in spec.scorings),
        "recipe": "; ".join(plan.recipes) or "none",
        "added_columns": ", ".join(spec.added_columns),
        "filter": spec.where or "none",
        "output": spec.output_uri,
        "tasks": len(plan.shards),
        "queue": spec.queue,
    }


def _rows(shards: tuple[Shard, ...]) -> int | str:
    is_local = all(shard.uri.startswith("file:") for shard in shards)
    if len(shards) > (_LOCAL_FOOTERS if is_local else _REMOTE_FOOTERS):
        where = "" if is_local else " over the network"
        return f"not counted: it would take reading {len(shards):,} footers{where}"
    lines = [shard for shard in shards if not has_footer(shard.uri)]
    if lines and (not is_local or sum(shard.size_bytes or 0 for shard in lines) > _LINES_BYTES):
        return f"not counted: it would take reading {counted(len(lines), 'file')} whole"
    return count_rows(shards)


_DIGITS = 3  # of a total that is not exact
_LEAST = 0.01  # hours or money that are shown as a number
_GAP = "  "


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """A line about rows and tokens, one for each kind of device, and what is missing."""
    known = ", ".join(_totals(estimate))
    if known:
        yield f"estimate: {known}{_sample(estimate)}"
    is_small = all(device.gpu_hours.high < _LEAST for device in estimate.devices)
    if estimate.devices and is_small:
        yield f"{_GAP}under a minute of work on each of {counted(len(estimate.devices), 'kind')} of devices"
    else:
        yield from _columns([[one.device, _hours(one), _cost(one), one.basis] for one in estimate.devices])
    for note in estimate.notes:
        yield f"{_GAP}{note}" if known else f"estimate: {note}"
    if estimate.devices:
        yield from () if is_small else _about_prices(estimate.devices)
        yield f"{_GAP}Starts of workers and their idle time come on top."


def _totals(estimate: Estimate) -> Iterator[str]:
    if estimate.rows is not None:
        rows = f"{estimate.rows:,}" if estimate.rows_are_counted or estimate.tokens is None else _about(estimate.rows)
        yield f"{rows} row{'' if estimate.rows == 1 else 's'}"
    if estimate.tokens is not None:
        yield f"{_about(estimate.tokens)} tokens"


def _about(number: int) -> str:
    return f"about {round(number, _DIGITS - len(str(number))):,}"


def _sample(estimate: Estimate) -> str:
    if estimate.tokens is None:
        return ""
    return f" (from {counted(estimate.sampled_rows, 'row')} of {counted(estimate.sampled_shards, 'shard')})"


def _columns(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield _GAP + _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _hours(device: DeviceEstimate) -> str:
    return f"{_shown(device.gpu_hours, '')} {'GPU-hours' if gpu_called(device.device) else 'worker-hours'}"


def _cost(device: DeviceEstimate) -> str:
    return _shown(device.cost, "$" if device.price_from == LISTED else "") if device.cost else "no price known"


def _shown(found: Range, sign: str) -> str:
    low, high = (f"{sign}{_number(max(_LEAST, value))}" for value in (found.low, found.high))
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _about_prices(devices: Sequence[DeviceEstimate]) -> Iterator[str]:
    known = [device for device in devices if device.price_from]
    if any(device.price_from == LISTED for device in known):
        named = ", ".join(f"{device.device} {device.price_per_gpu_hour:.2f}" for device in known)
        yield f"{_GAP}$ an hour: {named} ({LISTED})"
    elif known:
        yield f"{_GAP}{known[0].price_per_gpu_hour:,.2f} per GPU-hour, as {GIVEN} says"
