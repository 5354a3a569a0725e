"""A published dataset, and ways to damage it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.storage.manifest import Manifest, read_manifest
from shardsift.fleet.storage.output import MANIFEST_PATH
from shardsift.producer.verify.verification import Verification
from shardsift.producer.verify.verify import verify
from support.outputs import file_sha256

SHARDS, ROWS = 3, 40


@dataclass(frozen=True)
class Dataset:
    """A published dataset and its input. A test may damage them."""

    source: Path
    output: Path

    def verify(self, *, with_source: bool = False) -> Verification:
        return verify(str(self.output), source=(str(self.source),) if with_source else ())

    def faults(self, *, with_source: bool = False) -> list[str]:
        return [str(fault) for fault in self.verify(with_source=with_source).faults]

    @property
    def manifest(self) -> Manifest:
        read = read_manifest((self.output / MANIFEST_PATH).read_bytes())
        assert read is not None
        return read

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    def rewrite(self, path: str, change: Callable[[pa.Table], pa.Table]) -> None:
        """Change the rows of a file and adapt the manifest, so that only the content of the rows is wrong."""
        file = self.output / path
        pq.write_table(change(pq.read_table(file)), file)
        self._write_manifest([_with_file(receipt, path, file) for receipt in self.manifest.receipts])

    def change(self, shard: str, change: Callable[[Receipt], Receipt]) -> None:
        """Change the receipt of a shard in the manifest."""
        self._write_manifest([change(one) if one.shard == shard else one for one in self.manifest.receipts])

    def leave_out(self, shard: str, *, said: bool = False) -> None:
        """Publish the run without a shard. With `said`, the manifest lists the shard as left out."""
        gone = next(receipt for receipt in self.manifest.receipts if receipt.shard == shard)
        for file in (gone.data, gone.scores):
            (self.output / file.path).unlink()
        left = [receipt for receipt in self.manifest.receipts if receipt.shard != shard]
        self._write_manifest(left, left_out=(shard,) if said else ())

    def name_sources_as_the_hub_does(self) -> None:
        """Publish the run as if its input were on the Hub."""
        self._write_manifest(
            [replace(receipt, source_identity=f"sha256:{'ab' * 32}") for receipt in self.manifest.receipts]
        )

    def _write_manifest(self, receipts: list[Receipt], left_out: tuple[str, ...] = ()) -> None:
        changed = replace(self.manifest, receipts=tuple(receipts), left_out=left_out)
        (self.output / MANIFEST_PATH).write_bytes(changed.to_parquet())


def _with_file(receipt: Receipt, path: str, file: Path) -> Receipt:
    def now(one: OutputFile) -> OutputFile:
        if one.path != path:
            return one
        return replace(one, size_bytes=file.stat().st_size, sha256=file_sha256(file))

    return replace(receipt, data=now(receipt.data), scores=now(receipt.scores))


def a_file(dataset: Dataset, kind: str = "data") -> str:
    return f"{kind}/{sorted(path.name for path in (dataset.output / kind).iterdir())[1]}"
