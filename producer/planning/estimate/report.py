"""The estimate of a run for people: a line about its rows and tokens, one for each kind of device, and what is missing."""

from collections.abc import Callable, Iterator

from fleet.process.wording import counted
from producer.planning.estimate.estimate import LIST_PRICE, DeviceEstimate, Estimate
from producer.planning.estimate.speed import Range
from producer.status.cost import gpu_called

_DIGITS = 3  # of a total that is not exact
_LEAST = 0.01  # hours or money that are told as a number
_GAP = "  "


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    known = ", ".join(_totals(estimate))
    if known:
        yield f"estimate: {known}{_sample(estimate)}"
    if _is_small(estimate):
        yield f"{_GAP}under a minute of work on each of {counted(len(estimate.devices), 'kind')} of devices"
    else:
        yield from _columns(
            [[device.device, _hours(device), _cost(device), device.basis] for device in estimate.devices]
        )
    for note in estimate.notes:
        yield f"{_GAP}{note}" if known else f"estimate: {note}"
    yield from _about_hours_and_prices(estimate)


def _totals(estimate: Estimate) -> Iterator[str]:
    if estimate.rows is not None:
        yield f"{_about(estimate.rows, estimate.rows_error)} row{'' if estimate.rows == 1 else 's'}"
    if estimate.tokens is not None:
        yield f"{_about(estimate.tokens, estimate.tokens_error)} tokens"


def _about(number: int, error: float) -> str:
    return f"about {round(number, _DIGITS - len(str(number))):,}" if error else f"{number:,}"


def _sample(estimate: Estimate) -> str:
    if not estimate.sampled_rows or estimate.tokens is None:
        return ""
    return f" (from {counted(estimate.sampled_rows, 'row')} of {counted(estimate.sampled_shards, 'shard')})"


def _columns(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield _GAP + _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _hours(device: DeviceEstimate) -> str:
    return f"{_shown(device.gpu_hours, _hours_number)} {'GPU-hours' if gpu_called(device.device) else 'worker-hours'}"


def _cost(device: DeviceEstimate) -> str:
    if device.cost is None:
        return "no price known"
    return _shown(device.cost, _dollars if device.price_from == LIST_PRICE else _money)


def _shown(found: Range, number: Callable[[float], str]) -> str:
    if found.high < _LEAST:
        return f"under {number(_LEAST)}"
    low, high = number(found.low), number(found.high)
    if found.low < _LEAST:
        return f"up to {high}"
    return low if low == high else f"{low} to {high}"


def _hours_number(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2g}"


def _dollars(cost: float) -> str:
    return f"${_money(cost)}"


def _money(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:,.2f}"


def _is_small(estimate: Estimate) -> bool:
    return all(device.gpu_hours.high < _LEAST for device in estimate.devices) and bool(estimate.devices)


def _about_hours_and_prices(estimate: Estimate) -> Iterator[str]:
    prices = [device for device in estimate.devices if device.price_from and not _is_small(estimate)]
    if any(device.price_from == LIST_PRICE for device in prices):
        named = ", ".join(f"{device.device} {device.price_per_gpu_hour:.2f}" for device in prices)
        yield f"{_GAP}$ an hour: {named} ({LIST_PRICE})"
    elif prices:
        yield f"{_GAP}{prices[0].price_per_gpu_hour:,.2f} per GPU-hour, as SHARDSIFT_PRICE_PER_GPU_HOUR says"
    if estimate.devices:
        yield f"{_GAP}Starts of workers and their idle time come on top."
