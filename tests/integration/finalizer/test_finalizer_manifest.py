"""The manifest has one line per shard, and names the files that lie beside it."""

import pyarrow.parquet as pq

from shardsift.fleet.run.spec import disclosed_spec
from shardsift.fleet.storage.manifest import files_digest, read_manifest
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from support.finalizer_runs import A, B, C, FinalizerRun
from support.outputs import file_sha256


def test_a_manifest_has_a_line_a_shard_with_the_run_and_the_cards_digest_and_names_no_folder(run: FinalizerRun) -> None:
    run.do(A, B, C)
    run.finalize()

    manifest = pq.read_table(run.out / MANIFEST_PATH)
    assert manifest.num_rows == 3
    assert manifest.column_names == [
        *("shard", "source_uri", "source_identity", "source_changed", "first_row"),
        *("rows_in", "rows_kept", "rows_dropped", "rows_errored", "rows_bad", "errors", "left_out", "scorings"),
        *("data", "scores"),
        *("worker", "attempt", "device"),
        *("versions", "started_at", "finished_at", "tokens"),
    ]
    first = manifest.to_pylist()[0]
    assert (first["shard"], first["source_uri"], first["worker"]) == (A.name, A.uri, "w1@host/7")
    assert [first[f"rows_{fate}"] for fate in ("in", "kept", "dropped", "errored")] == [10, 6, 3, 1]
    assert first["started_at"].isoformat() == "2023-11-14T22:13:20.500000+00:00"
    read = read_manifest((run.out / MANIFEST_PATH).read_bytes())
    assert read is not None
    assert (read.run_id, read.spec) == (run.run_id, disclosed_spec(run.spec))
    assert files_digest(read.receipts) == files_digest(list(run.ledger.receipts(run.run_id)))
    assert read.card_sha256 == file_sha256(run.out / CARD_PATH)
    about = pq.read_metadata(run.out / MANIFEST_PATH).metadata[b"shardsift.run"]
    assert str(run.out.parent) not in about.decode()
