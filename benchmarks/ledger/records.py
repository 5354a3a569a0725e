"""Specs, shards and receipts with the same names and sizes as in a run over all of FineWeb."""

from collections.abc import Iterator
from hashlib import sha256

from shardsift.fleet.run.model import Model
from shardsift.fleet.run.receipt import Histogram, OutputFile, Parity, Provenance, Receipt, ScoringReceipt
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, Shard

ROWS = 1_048_576
WINDOW_SCORES = bytes(32 << 10)  # of 8,192 rows, 4 bytes each
_FILES_OF_A_CRAWL = 250
_REVISION = "9bb295ddab0e05d785b879661af7260fed5140fc"


def fineweb_spec(number: int) -> RunSpec:
    return RunSpec(
        input_uris=(f"hf://datasets/HuggingFaceFW/fineweb@{_REVISION}/data/*/*.parquet",),
        input_revision=_REVISION,
        crawl=None,
        columns=(
            *((name, "string") for name in ("text", "id", "dump", "url", "date", "file_path", "language")),
            ("language_score", "double"),
            ("token_count", "int64"),
        ),
        scorings=(
            Scoring(
                model=Model(
                    name="HuggingFaceFW/fineweb-edu-classifier",
                    revision="284663d0d1b1f1ee8d3b6f9d4f0e1d6f0a5e0c88",
                    labels=("LABEL_0",),
                ),
                dtype="float16",
                text_columns=("text",),
                score_column="score",
                int_score=True,
            ),
        ),
        where='"score" >= 3.0',
        output_uri=f"hf://datasets/somebody/fineweb-edu-{number}",
    )


def fineweb_shards(count: int) -> Iterator[Shard]:
    """Yield shards that are named like FineWeb's files: 250 per crawl, of 2 GB each."""
    for number in range(count):
        crawl, file = divmod(number, _FILES_OF_A_CRAWL)
        year, week = divmod(crawl, 52)
        name = f"CC-MAIN-{2013 + year}-{week:02}/{file // 10:03}_{file % 10:05}"
        uri = f"hf://datasets/HuggingFaceFW/fineweb@{_REVISION}/data/{name}.parquet"
        identity = f"sha256:{sha256(uri.encode()).hexdigest()}"
        yield Shard(name=name, uri=uri, identity=identity, size_bytes=2_147_509_487)


def receipt_of(run_id: str, shard: Shard, *, token: str, attempt: int = 1, worker: str = "gpu-000") -> Receipt:
    """Make a receipt for an output in a folder, which has the longest staged paths. All digests and times differ."""
    digest = sha256(shard.name.encode())
    spread = int.from_bytes(digest.digest()[:4])
    kept = ROWS // 10 + spread % 9_973
    staged_path = f".shardsift/{run_id}/staged/{{}}/{token}"
    data = OutputFile(
        path=shard.data_path,
        staged_path=staged_path.format(shard.data_path),
        size_bytes=200_000_000 + spread % 9_999_991,
        sha256=digest.hexdigest(),
        rows=kept,
    )
    scores = OutputFile(
        path=shard.scores_path,
        staged_path=staged_path.format(shard.scores_path),
        size_bytes=12_000_000 + spread % 999_983,
        sha256=sha256(digest.digest()).hexdigest(),
        rows=ROWS,
    )
    errored = spread % 7
    return Receipt(
        run_id=run_id,
        shard=shard.name,
        source_uri=shard.uri,
        source_identity=shard.identity,
        source_changed=shard.changed,
        data=data,
        scores=scores,
        rows_in=ROWS,
        rows_kept=kept,
        rows_dropped=ROWS - kept - errored,
        rows_errored=errored,
        errors={"the text is null": errored} if errored else {},
        scorings=(
            ScoringReceipt(
                score_column="score",
                dtype="float16",
                backend="packed",
                max_batch_tokens=131_072,
                parity=Parity(
                    rows=1024, max_error=0.0048828125, p999_error=0.003234863281250, flipped_share=0.0009765625
                ),
                histogram=_histogram(ROWS - errored),
            ),
        ),
        provenance=Provenance(
            worker=f"gpu@{worker}.europe-west4-a.c.fleet.internal/4711",
            attempt=attempt,
            device="NVIDIA H100 80GB HBM3",
            versions={"shardsift": "0.1.0", "torch": "2.11.0+cu128", "transformers": "5.17.0", "pyarrow": "26.0.1"},
            started_at=1_763_000_000.123456 + spread,
            finished_at=1_763_000_214.654321 + spread,
        ),
    )


def _histogram(rows: int) -> Histogram:
    bins = range(-4, 20)
    return Histogram(bins_per_unit=4, rows_by_bin=dict.fromkeys(bins, rows // len(bins)))
