"""What a published output says of where it was made: no path, no host, no bucket, unless the run's `publish_paths` asks for it.

Inputs are named below their root, a model folder by its last part, a worker by a hash that is the same throughout a run.
Names on the Hub stay whole: without them a revision says nothing, and they tell nothing of a machine.
"""

import hashlib
import re
from dataclasses import replace
from pathlib import PurePosixPath

from fleet.model import Model
from fleet.scoring import Scoring
from fleet.shard import Shard
from fleet.spec import RunSpec

_HUB = "hf://"


def disclosed_spec(spec: RunSpec) -> RunSpec:
    """The spec to publish. Its `run_id` is not the run's, since the digest is of the whole one."""
    if spec.publish_paths:
        return spec
    return replace(
        spec,
        input_uris=disclosed_inputs(spec),
        output_uri=_last_part(spec.output_uri),
        scorings=tuple(_disclosed_scoring(scoring) for scoring in spec.scorings),
    )


def disclosed_inputs(spec: RunSpec) -> tuple[str, ...]:
    """A Hub address as it is; of any other its last part, which is a file, a folder or a glob."""
    return spec.input_uris if spec.publish_paths else tuple(map(_last_part, spec.input_uris))


def disclosed_source(spec: RunSpec, shard: Shard) -> str:
    """A shard's file below the input's root: as long a path as the shard's name, which mirrors it."""
    if spec.publish_paths or shard.uri.startswith(_HUB):
        return shard.uri
    return "/".join(shard.uri.split("/")[-len(shard.name.split("/")) :])


def disclosed_model(model: Model, spec: RunSpec) -> str:
    """A Hub name as it is; of a folder its last part."""
    return model.name if spec.publish_paths else _disclosed(model).name


def _disclosed_scoring(scoring: Scoring) -> Scoring:
    scores_from = scoring.scores_from and _disclosed(scoring.scores_from)
    return replace(scoring, model=_disclosed(scoring.model), scores_from=scores_from)


def _disclosed(model: Model) -> Model:
    is_on_hub = model.name.startswith(_HUB) or not model.is_folder
    return model if is_on_hub else replace(model, name=PurePosixPath(model.name).name)


def disclosed_worker(spec: RunSpec, worker: str) -> str:
    """`worker` is the owner of a claim, which names its host and process."""
    if spec.publish_paths:
        return worker
    return f"worker-{hashlib.sha256(f'{spec.run_id} {worker}'.encode()).hexdigest()[:8]}"


def _last_part(uri: str) -> str:
    """Of a glob also the parts before it back to the first without a wildcard: `shards/**/*.parquet`."""
    if uri.startswith(_HUB):
        return uri
    parts = [part for part in uri.rstrip("/").split("/") if part] or [uri]
    first_wild = next((place for place, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    return "/".join(parts[max(0, min(first_wild, len(parts)) - 1) :])
