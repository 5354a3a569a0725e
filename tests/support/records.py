"""Small specs, shards and receipts, with all fields as in a real run."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardsift.fleet.presence.announcements import WorkerState
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.receipt import Histogram, OutputFile, Parity, Provenance, Receipt, ScoringReceipt
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.manifest import Manifest
from shardsift.fleet.storage.output import Output

_SCORING = Scoring(
    model=Model(name="HuggingFaceFW/fineweb-edu-classifier", revision="4567def", labels=("LABEL_0",)),
    dtype="float32",
    text_columns=("text",),
    score_column="score",
    int_score=True,
)
_SPEC = RunSpec(
    input_uris=("hf://datasets/HuggingFaceFW/fineweb@0123abc/data/CC-MAIN-2024-10/*.parquet",),
    input_revision="0123abc",
    crawl="CC-MAIN-2024-10",
    columns=(("text", "string"), ("id", "string")),
    scorings=(_SCORING,),
    where='"score" >= 3.0',
    output_uri="memory://out",
)


def a_spec(**changes: Any) -> RunSpec:
    """Make a spec with one scoring. `changes` are fields of the spec or the scoring."""
    of_scoring = {name: changes.pop(name) for name in _SCORING.__dict__ if name in changes}
    return replace(_SPEC, **{"scorings": (replace(_SCORING, **of_scoring),), **changes})


def a_shard(name: str = "CC-MAIN-2024-10/000_00000", **changes: Any) -> Shard:
    shard = Shard(name=name, uri=f"file:///input/{name}.parquet", identity=f"sha256:{'cd' * 32}", size_bytes=1000)
    return replace(shard, **changes)


def a_receipt(run_id: str, shard: Shard, **changes: Any) -> Receipt:
    """Make a receipt of ten rows: six kept, three dropped, one errored."""
    receipt = Receipt(
        run_id=run_id,
        shard=shard.name,
        source_uri=shard.uri,
        source_identity=shard.identity,
        source_changed=shard.changed,
        data=an_output_file(shard.data_path, rows=6),
        scores=an_output_file(shard.scores_path, rows=10),
        rows_in=10,
        rows_kept=6,
        rows_dropped=3,
        rows_errored=1,
        errors={"empty text": 1},
        scorings=(a_scoring_receipt(),),
        provenance=Provenance(
            worker="w1@host/7",
            attempt=1,
            device="cpu",
            versions={"torch": "2.11.0", "shardsift": "0.1.0"},
            started_at=1_700_000_000.5,
            finished_at=1_700_000_060.25,
        ),
    )
    return replace(receipt, **changes)


def a_scoring_receipt(**changes: Any) -> ScoringReceipt:
    receipt = ScoringReceipt(
        score_column="score",
        dtype="float32",
        backend="padded",
        max_batch_tokens=2048,
        parity=Parity(rows=16, max_error=2e-6, p999_error=1e-6, flipped_share=0.0),
        histogram=Histogram(bins_per_unit=4, rows_by_bin={-2: 1, 5: 2, 12: 4, 15: 2}),
    )
    return replace(receipt, **changes)


def a_worker(**changes: Any) -> WorkerState:
    """Make a worker's announcement for the run of `a_spec`."""
    model, dtype = _SCORING.model, _SCORING.dtype
    state = WorkerState(
        name="w1@host/7",
        queue=_SPEC.queue,
        model=model.name,
        revision=model.revision,
        dtype=dtype,
        activity="busy",
        activity_seconds=1.0,
    )
    return replace(state, **changes)


def a_manifest(run_id: str, receipts: Sequence[Receipt], *, spec: RunSpec = _SPEC) -> bytes:
    """What is published as manifest.parquet, beside the card `# Card`."""
    card = hashlib.sha256(b"# Card").hexdigest()
    manifest = Manifest(run_id=run_id, spec=spec, receipts=tuple(receipts), shards=len(receipts), card_sha256=card)
    return manifest.to_parquet()


def an_output_file(path: str, **changes: Any) -> OutputFile:
    file = OutputFile(path=path, staged_path=f"staged/{path}", size_bytes=100, sha256="ab" * 32, rows=1)
    return replace(file, **changes)


def stage_shard(output: Output, run_id: str, shard: Shard, folder: Path, *, attempt: str = "1-aa") -> Receipt:
    """Stage a shard and store its receipt, as a worker does. Each file's content names its path and attempt."""
    data, scores = (
        stage_file(output, path, f"{path} of {attempt}".encode(), folder, attempt=attempt)
        for path in (shard.data_path, shard.scores_path)
    )
    receipt = a_receipt(run_id, shard, data=data, scores=scores)
    output.store_receipt(receipt)
    return receipt


def stage_file(output: Output, path: str, content: bytes, folder: Path, *, attempt: str) -> OutputFile:
    (folder / "scratch").write_bytes(content)
    staged_path = output.stage(folder / "scratch", path, attempt=attempt)
    sha256 = hashlib.sha256(content).hexdigest()
    return OutputFile(path=path, staged_path=staged_path, size_bytes=len(content), sha256=sha256, rows=1)
