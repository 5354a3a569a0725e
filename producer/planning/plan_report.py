"""The report of a dry run: shards, bytes, and rows if they are cheap to count."""

from fleet.inputs.formats import has_footer
from fleet.process.wording import counted
from fleet.run.spec import Shard
from producer.planning.inputs import count_rows
from producer.planning.plan import Plan

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
