"""Limit what a published output reveals about where it was made: no path, host or bucket.

Input files are named relative to their root, a model folder by its last part, and a worker by a hash that is constant
within a run. Hub names stay complete: a revision means nothing without them, and they reveal nothing about a machine.
"""

import hashlib
import re
from dataclasses import replace
from pathlib import PurePosixPath

from fleet.run.model import Model
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec, Shard

_HUB = "hf://"


def disclosed_spec(spec: RunSpec) -> RunSpec:
    """The spec to publish. Its `run_id` differs from the run's, which is a digest of the complete spec."""
    return replace(
        spec,
        input_uris=disclosed_inputs(spec),
        output_uri=_last_part(spec.output_uri),
        scorings=tuple(_disclosed_scoring(scoring) for scoring in spec.scorings),
    )


def disclosed_inputs(spec: RunSpec) -> tuple[str, ...]:
    """Hub URIs unchanged; of any other URI the last part, which is a file, a folder or a glob."""
    return tuple(map(_last_part, spec.input_uris))


def disclosed_source(shard: Shard) -> str:
    """The path of a shard's file relative to the input's root. It has as many segments as the shard's name."""
    if shard.uri.startswith(_HUB):
        return shard.uri
    return "/".join(shard.uri.split("/")[-len(shard.name.split("/")) :])


def disclosed_model(model: Model) -> str:
    """A Hub name unchanged; of a folder the last part."""
    is_on_hub = model.name.startswith(_HUB) or not model.is_folder
    return model.name if is_on_hub else PurePosixPath(model.name).name


def _disclosed_scoring(scoring: Scoring) -> Scoring:
    scores_from = scoring.scores_from and _disclosed(scoring.scores_from)
    return replace(scoring, model=_disclosed(scoring.model), scores_from=scores_from)


def _disclosed(model: Model) -> Model:
    return replace(model, name=disclosed_model(model))


def disclosed_worker(spec: RunSpec, worker: str) -> str:
    """`worker` is the owner of a claim, which names its host and process."""
    return f"worker-{hashlib.sha256(f'{spec.run_id} {worker}'.encode()).hexdigest()[:8]}"


def _last_part(uri: str) -> str:
    """The last part of a path. For a glob, starts one part before the first wildcard: `shards/**/*.parquet`."""
    if uri.startswith(_HUB):
        return uri
    parts = [part for part in uri.rstrip("/").split("/") if part] or [uri]
    first_wild = next((place for place, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    return "/".join(parts[max(0, min(first_wild, len(parts)) - 1) :])
