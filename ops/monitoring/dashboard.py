"""Write dashboard.json: a Grafana dashboard of a fleet. Run it again after a change: python ops/monitoring/dashboard.py"""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("dashboard.json")
_COLUMNS, _HEIGHT = 24, 8  # of Grafana's grid
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_OF_RUN = 'run=~"$run"'


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A graph.

    `queries` maps each legend to a PromQL query. Grafana replaces `{{label}}` in a legend by the label's value.
    """

    title: str
    about: str
    queries: dict[str, str]
    unit: str = "short"  # as Grafana names it
    wide: int = 8
    stacked: bool = False


PANELS = (
    Panel(
        title="Rows per second",
        about="Over five minutes.",
        queries={"{{run}}": f"sum by (run) (rate(shardsift_rows_scored_total{{{_OF_RUN}}}[5m]))"},
        wide=16,
    ),
    Panel(
        title="Time left",
        about="Until the last open shard is done, if as many workers go on as fast as until now. None after a failed attempt.",
        queries={"{{run}}": f"shardsift_run_remaining_seconds{{{_OF_RUN}}}"},
        unit="s",
    ),
    Panel(
        title="Shards by state",
        about="A failed shard has no attempt left: producer status says why, producer retry queues it again.",
        queries={"{{state}}": f"sum by (state) (shardsift_shards{{{_OF_RUN}}})"},
        stacked=True,
    ),
    Panel(
        title="Kept share",
        about="Of the rows of shards that are done.",
        queries={
            "{{run}}": f'sum by (run) (shardsift_rows_total{{fate="kept",{_OF_RUN}}})'
            f" / (sum by (run) (shardsift_rows_total{{{_OF_RUN}}}) > 0)"
        },
        unit="percentunit",
    ),
    Panel(
        title="Errored rows",
        about="Rows without a score, such as those with an empty text.",
        queries={"{{run}}": f'shardsift_rows_total{{fate="errored",{_OF_RUN}}}'},
    ),
    Panel(
        title="Workers",
        about="By what they do.",
        queries={"{{activity}} {{device}}": "sum by (activity, device) (shardsift_workers)"},
        stacked=True,
    ),
    Panel(
        title="Machines",
        about="A free one has a worker without a shard, and may cost money.",
        queries={"all": "shardsift_machines", "free": "shardsift_free_machines"},
    ),
    Panel(
        title="Where the time goes",
        about="Share of each phase in the time of finished attempts. Little but device is how it should be.",
        queries={
            "{{phase}}": f"sum by (phase) (shardsift_phase_seconds_total{{{_OF_RUN}}})"
            f" / scalar(sum(shardsift_phase_seconds_total{{{_OF_RUN}}}) > 0)"
        },
        unit="percentunit",
        stacked=True,
    ),
    Panel(
        title="Share of the device's peak",
        about="Of its speed at multiplying matrices of the model's shapes. The mean of the workers that have a shard.",
        queries={"{{run}} {{device}}": f"shardsift_peak_share{{{_OF_RUN}}}"},
        unit="percentunit",
    ),
    Panel(
        title="Memory and utilisation of GPUs",
        about="Memory that is taken, and the time in which a GPU computed anything: means of the workers that have a shard.",
        queries={
            "memory {{device}}": f"avg by (device) (shardsift_device_memory_share{{{_OF_RUN}}})",
            "busy {{device}}": f"avg by (device) (shardsift_device_busy_share{{{_OF_RUN}}})",
        },
        unit="percentunit",
    ),
    Panel(
        title="Since a row was scored",
        about="A rising line is a run of which no row is scored, although there are workers for it.",
        queries={"{{run}}": f"shardsift_run_idle_seconds{{{_OF_RUN}}}"},
        unit="s",
    ),
    Panel(
        title="Open shards by queue",
        about="Queued shards without workers wait.",
        queries={"{{queue}} {{state}}": "shardsift_queue_shards"},
        stacked=True,
    ),
    Panel(
        title="Memory of Redis",
        about="A Redis that is full refuses writes, and all workers wait.",
        queries={"used": "shardsift_redis_memory_bytes", "limit": "shardsift_redis_memory_limit_bytes > 0"},
        unit="bytes",
    ),
)


def dashboard() -> dict[str, object]:
    return {
        "title": "shardsift",
        "uid": "shardsift",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source_variable(), _run_variable()]},
        "panels": [_panel(number, panel, place) for number, (panel, place) in enumerate(_placed(), start=1)],
    }


def _placed() -> list[tuple[Panel, tuple[int, int]]]:
    placed, column, line = [], 0, 0
    for panel in PANELS:
        if column + panel.wide > _COLUMNS:
            column, line = 0, line + _HEIGHT
        placed.append((panel, (column, line)))
        column += panel.wide
    return placed


def _panel(number: int, panel: Panel, place: tuple[int, int]) -> dict[str, object]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {"fillOpacity": 8}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"x": place[0], "y": place[1], "w": panel.wide, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for place, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _source_variable() -> dict[str, object]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _run_variable() -> dict[str, object]:
    return {
        "name": "run",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(shardsift_shards, run)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=2) + "\n")
