"""The manifest has one line per shard, and names the files that lie beside it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.run.spec import disclosed_spec
from shardsift.fleet.storage.manifest import files_digest, read_manifest
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from support.finalizer_runs import A, B, C, FinalizerRun
from support.outputs import file_sha256


class TestManifest:
    @pytest.fixture
    def manifest(self, run: FinalizerRun) -> pa.Table:
        run.do(A, B, C)
        run.finalize()
        return pq.read_table(run.out / MANIFEST_PATH)

    def test_it_has_a_line_a_shard(self, manifest: pa.Table) -> None:
        assert manifest.column_names == [
            *("shard", "source_uri", "source_identity", "source_changed", "first_row"),
            *("rows_in", "rows_kept", "rows_dropped", "rows_errored", "rows_bad", "errors", "left_out", "scorings"),
            *("data", "scores"),
            *("worker", "attempt", "device"),
            *("versions", "started_at", "finished_at", "tokens"),
        ]
        first = manifest.to_pylist()[0]
        assert (first["shard"], first["source_uri"]) == (A.name, A.uri)
        assert [first[f"rows_{fate}"] for fate in ("in", "kept", "dropped", "errored")] == [10, 6, 3, 1]
        assert first["errors"] == [("empty text", 1)]
        (scoring,) = first["scorings"]
        assert [scoring[name] for name in ("score_column", "dtype", "backend")] == ["score", "float32", "padded"]
        assert scoring["histogram"] == {"bins_per_unit": 4, "rows_by_bin": [(-2, 1), (5, 2), (12, 4), (15, 2)]}
        assert dict(first["versions"]) == {"torch": "2.11.0", "shardsift": "0.1.0"}
        assert first["started_at"].isoformat() == "2023-11-14T22:13:20.500000+00:00"
        assert first["worker"] == "w1@host/7"
        assert (scoring["parity"]["rows"], scoring["parity"]["flipped_share"]) == (16, 0.0)

    def test_it_carries_the_run_and_the_digest_of_the_card(self, manifest: pa.Table, run: FinalizerRun) -> None:
        read = read_manifest((run.out / MANIFEST_PATH).read_bytes())
        assert read is not None
        assert (read.run_id, read.spec) == (run.run_id, disclosed_spec(run.spec))
        assert read.digest == files_digest(list(run.ledger.receipts(run.run_id)))
        assert read.card_sha256 == file_sha256(run.out / CARD_PATH)
        assert manifest.num_rows == 3
        about = pq.read_metadata(run.out / MANIFEST_PATH).metadata[b"shardsift.run"]
        assert str(run.out.parent) not in about.decode()
