"""Publish a run of many simulated shards on the tests' Hub with a real finalizer: its commits, requests, time and memory.

Example: PYTHONPATH=tests python -m benchmarks.publication --shards 100000

No worker runs: the blobs of the shards lie on the Hub, and their receipts in the ledger. First all shards but one are done,
so that they are saved in waves; then the last one too, and the run is published. With --merged, shards have a few rows each and
are merged.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.ledger.records import fineweb_shards, fineweb_spec, receipt_of
from benchmarks.results import provenance_of, write_results
from hubserver.server import HubServer
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.run.text import as_metadata
from shardsift.fleet.storage.hub import place_of
from shardsift.producer.local.redis import embedded_redis

_POLL_SECONDS = 1.0
_ROWS = 5  # of a small shard, all of which are kept
_SMALL: dict[str, Any] = {"rows_in": _ROWS, "rows_kept": _ROWS, "rows_dropped": 0, "rows_errored": 0, "errors": {}}
# As in the image of the control side, which has neither of these; pyarrow imports pandas if it is there.
_FINALIZER = """
import sys
from importlib.abc import MetaPathFinder

class Left(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("pandas", "matplotlib"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Left())
from shardsift.producer.cli import main
main()
"""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the finalizer did from the last receipt to the last commit. `peak_mb` is since it began."""

    seconds: float
    commits: int
    largest_commit_mb: float
    requests: int
    peak_mb: float


def main(
    shards: Annotated[int, typer.Option()] = 100_000,
    merged: Annotated[bool, typer.Option("--merged")] = False,
    output: Annotated[Path, typer.Option()] = Path("benchmarks/results"),
) -> None:
    """Print both steps, and write them to the folder."""
    with tempfile.TemporaryDirectory() as name, embedded_redis(Path(name)) as url, HubServer(xet=False) as hub:
        ledger, spec = Ledger.connect(Settings(redis_url=url)), fineweb_spec(0)
        spec = replace(spec, target_file_bytes=512_000_000) if merged else spec
        repo_id, _ = place_of(spec.output_uri)
        hub.create_repo(repo_id)
        ledger.create_run(spec, fineweb_shards(shards), now=time.time())
        receipts = _uploaded(hub, repo_id, spec.run_id, fineweb_shards(shards), merged=merged)
        environment = {**hub.client_env(Path(name) / "hf", hub.token()), "REDIS_URL": url}
        ledger.restore(spec.run_id, islice(receipts, shards - 1))
        with subprocess.Popen([sys.executable, "-c", _FINALIZER, "finalizer"], env=environment) as finalizer:
            try:
                saved = _step(hub, finalizer, lambda: _has_saved(hub, repo_id, spec.run_id, shards - 1))
                ledger.restore(spec.run_id, receipts)
                published = _step(hub, finalizer, lambda: ledger.publication(spec.run_id) is not None)
            finally:
                finalizer.terminate()
        files = len(hub.files(repo_id))
    report = {"shards": shards, "files": files, "waves": asdict(saved), "publication": asdict(published)}
    found = provenance_of("benchmarks.publication")
    typer.echo(write_results(f"publication-{shards}{'-merged' * merged}", found, report, output).read_text())


def _uploaded(hub: HubServer, repo_id: str, run_id: str, shards: Iterator[Shard], *, merged: bool) -> Iterator[Receipt]:
    """Put small blobs on the Hub, and yield the receipts that name them."""
    table = _small_table()
    for shard in shards:
        receipt = receipt_of(run_id, shard, token="123456-0123456789ab")
        contents = (table, table) if merged else (f"{shard.name} {kind}".encode() for kind in ("data", "scores"))
        (data, data_bytes), (scores, scores_bytes) = (hub.add_blob(repo_id, content) for content in contents)
        files = (receipt.data, data, data_bytes), (receipt.scores, scores, scores_bytes)
        stored = [
            replace(file, staged_path=file.path, sha256=digest, size_bytes=size, rows=_ROWS if merged else file.rows)
            for file, digest, size in files
        ]
        yield replace(receipt, data=stored[0], scores=stored[1], **(_SMALL if merged else {}))


def _small_table() -> bytes:
    sink, metadata = pa.BufferOutputStream(), as_metadata({0: ["0123456789abcdef" * 2]})
    table = pa.table({"shard": ["a shard"] * _ROWS, "row": range(_ROWS), "score": [0.5] * _ROWS})
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _step(hub: HubServer, finalizer: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> Step:
    begun = time.monotonic()
    while not is_over():
        if finalizer.poll() is not None:
            raise RuntimeError("The finalizer has ended.")
        time.sleep(_POLL_SECONDS)
    seconds, requests = time.monotonic() - begun, hub.requests
    hub.forget_requests()
    commits = [request.bytes_in for request in requests if "/commit/" in request.path and request.status == 200]
    return Step(
        seconds=round(seconds, 1),
        commits=len(commits),
        largest_commit_mb=round(max(commits) / 1e6, 1),
        requests=len(requests),
        peak_mb=round(_peak_kib(finalizer.pid) * 1024 / 1e6),
    )


def _has_saved(hub: HubServer, repo_id: str, run_id: str, shards: int) -> bool:
    branch = f"shardsift/{run_id}"
    names = hub.files(repo_id, revision=branch) if branch in hub.branches(repo_id) else ()
    return sum(name.endswith(".parquet") for name in names) == 2 * shards


def _peak_kib(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


if __name__ == "__main__":
    typer.run(main)
