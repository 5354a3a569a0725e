"""A run of three shards for the tests of the finalizer, and what workers and other runs do to its output."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.run.output_columns import kept_schema, scores_schema
from shardsift.fleet.run.receipt import OutputFile
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import MANIFEST_PATH, Output
from support.ledger_states import claimed
from support.output_runs import OutputRun
from support.outputs import visible
from support.records import a_manifest, a_receipt, a_shard, stage_file

A, B, C = a_shard("crawl/a"), a_shard("crawl/b"), a_shard("crawl/c")
INPUT_SCHEMA = pa.schema([("text", pa.string()), ("id", pa.string())])


@dataclass(frozen=True, kw_only=True)
class FinalizerRun(OutputRun):
    """A run whose output is a folder, with the actions of workers."""

    @property
    def out(self) -> Path:
        return Path(self.spec.output_uri)

    def do(self, *shards: Shard) -> None:
        """Complete shards as a worker does: claim each, stage both of its files and record it as done."""
        for shard in shards:
            finish(self.ledger, claimed(self.ledger, self.run_id, shard))

    def lose(self, field: str) -> None:
        """Delete a field of the run's hash in Redis."""
        self.ledger.redis.hdel(Keys(self.run_id).run, field)

    def visible(self) -> dict[str, bytes]:
        return visible(self.out)

    def findings(self) -> list[str]:
        found = self.output.inspect(list(self.ledger.receipts(self.run_id)), hashes=True)
        return [str(finding) for finding in found]


def finish(ledger: Ledger, claim: Claim) -> None:
    """Stage both files of a claimed shard, store its receipt, and complete it."""
    shard, spec, attempt = claim.shard, claim.spec, f"{claim.token}-aa"
    output = open_output(spec.output_uri, spec.run_id)
    data = staged(output, shard.data_path, kept_schema(INPUT_SCHEMA, spec), attempt=attempt)
    scores = staged(output, shard.scores_path, scores_schema(spec), attempt=attempt)
    receipt = a_receipt(spec.run_id, shard, data=data, scores=scores)
    output.store_receipt(receipt)
    ledger.complete(claim, receipt)


def staged(output: Output, path: str, schema: pa.Schema, *, attempt: str) -> OutputFile:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table().replace_schema_metadata({"path": path}), sink)
    return stage_file(output, path, sink.getvalue().to_pybytes(), Path(output.uri).parent, attempt=attempt)


def publish_as_other_run(out: Path) -> None:
    (out / MANIFEST_PATH).write_bytes(a_manifest("other", []))
