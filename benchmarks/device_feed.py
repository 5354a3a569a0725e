"""Measure how busy a fast GPU is kept by a worker's reader, tokenizer, launches and writer. The device is simulated.

Example: python -m benchmarks.device_feed --lengths fineweb --shards 3 --open-seconds 1 --upload-seconds 3

The device takes a batch's operations ÷ a rate, and queues some batches. A launch is a real forward of a few tokens with as
many layers. It holds Python's lock as a real one does. With --graphed, a launch takes 0.1 ms.

The tokenizer's Rust threads are simulated, because beside such a GPU they have their own cores. Ids come from a table after
the time that the threads would take. With --tokenizers N, N processes tokenize, as a worker starts them for a small model on
a GPU. Their Rust threads share the same cores.

Reading, filtering, compressing, writing, the tokenizer's Python and the overlap of shards are real, and share this machine's
cores.
"""

import os
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer

from benchmarks.results import provenance_of, write_results
from benchmarks.scorer.case import Model
from benchmarks.scorer.models import MAX_TOKENS, config_of, read_tokenizer, save_random
from benchmarks.scorer.texts import Lengths, make_texts
from benchmarks.scorer.whole_shard import claim_of
from benchmarks.simulated_tokenizer import read_simulated
from shardsift.fleet.run.flops import Shape
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.contents import ContentEncoder
from shardsift.worker.scoring.tokenizing.processes import TokenizerProcesses
from shardsift.worker.scoring.tokenizing.tokens import Tokens
from shardsift.worker.service import ipc
from shardsift.worker.service.in_hand import InHand
from shardsift.worker.shard.checkpoint import Checkpoint
from shardsift.worker.shard.score_shard import score_shard
from shardsift.worker.shard.vitals import Progress, WindowPace
from shardsift.worker.training.base_model import verified_demo_encoder

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
H200 = 466e12  # operations per second of BERT-base's kernels; the peak is 790e12: docs/performance.md
_QUEUED = 5  # queued batches; a further launch waits
_RUST_SECONDS, _RUST_CORES = 557e-6, 12.8  # to tokenize a FineWeb row on one core; number of cores
_DIFFERENT_TEXTS = 2_048
_GRAPH_SECONDS = 1e-4


@dataclass(kw_only=True)
class Device:
    """A simulated GPU that computes one batch after another. It is a backend of the scorer."""

    shape: Shape
    rate: float
    launch: Any  # a small model with as many layers; None for a graph
    name: str = "simulated"
    free_at: float = 0.0
    began_at: float = 0.0
    busy_seconds: float = 0.0
    ends: deque[float] = field(default_factory=deque)

    def logits(self, batch: Tokens) -> torch.Tensor:
        if self.launch is None:
            time.sleep(_GRAPH_SECONDS)
        else:
            with torch.inference_mode():
                self.launch(input_ids=torch.ones(1, 8, dtype=torch.long))
        while self.ends and self.ends[0] <= time.perf_counter():
            self.ends.popleft()
        if len(self.ends) >= _QUEUED:
            _sleep_until(self.ends.popleft())
        now = time.perf_counter()
        self.began_at = self.began_at or now
        seconds = float(self.shape.flops(batch.lengths).sum()) / self.rate
        self.free_at = max(now, self.free_at) + seconds
        self.busy_seconds += seconds
        self.ends.append(self.free_at)
        logits = torch.zeros(len(batch), 1).as_subclass(_OnDevice)
        logits.ready_at = self.free_at
        return logits


class _OnDevice(torch.Tensor):
    """Logits that are computed at `ready_at`. `torch.cat`, the first step of fetching them, waits until then."""

    ready_at: float

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.cat:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        _sleep_until(max(logits.ready_at for logits in args[0]))
        return torch.cat([logits.as_subclass(torch.Tensor) for logits in args[0]])


def _sleep_until(then: float) -> None:
    time.sleep(max(0.0, then - time.perf_counter()))


class SlowOutput(FolderOutput):
    """A folder that takes `seconds` for each file."""

    seconds = 0.0

    def stage(self, file: Path, path: str, *, attempt: str) -> str:
        time.sleep(self.seconds)
        return super().stage(file, path, attempt=attempt)


@cli.command(help=__doc__)
def main(
    *,
    model: Model = Model.BERT_BASE,
    lengths: Lengths = Lengths.FINEWEB,
    graphed: bool = False,
    rate: Annotated[float, typer.Option(help="Operations per second.")] = H200,
    shards: int = 3,
    windows: Annotated[int, typer.Option(help="Of 8,192 rows, in each shard.")] = 6,
    open_seconds: float = 0.0,
    upload_seconds: float = 0.0,
    tokenizers: Annotated[int, typer.Option(help="Processes that tokenize; 0: one thread.")] = 0,
    results: Annotated[Path | None, typer.Option(help="Write a results file to this folder.")] = None,
) -> None:
    torch.set_num_threads(1)
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # where the tokenizer processes find this package
    with tempfile.TemporaryDirectory(prefix="shardsift-feed-") as name:
        folder = Path(name)
        scorer, device = _simulated(folder / "model", model, rate=rate, graphed=graphed)
        texts = make_texts(lengths, _DIFFERENT_TEXTS, tokenizer=read_tokenizer(verified_demo_encoder()))
        _simulate_tokenizer(scorer, texts, folder / "cores", processes=tokenizers)
        source = _written(folder / "input", texts, rows=windows * 8_192)
        output = SlowOutput(str(folder / "output"), "run")
        output.seconds = upload_seconds
        os.environ[ipc.FOLDER] = name
        in_hand, pace, seconds = InHand(), WindowPace(), Counter[str]()
        for number in range(shards):
            score = partial(_score, scorer, source, output, seconds, open_seconds, pace)
            in_hand.begin("run", str(number), _Work(score))
        in_hand.drain()
    span = device.free_at - device.began_at
    found = {"busy": device.busy_seconds / span, "rows_per_second": shards * windows * 8_192 / span, "seconds": seconds}
    typer.echo(f"busy {found['busy']:.3f} from the first batch to the last, {found['rows_per_second']:,.0f} rows/s")
    typer.echo(", ".join(f"{phase} {spent:.2f} s" for phase, spent in seconds.items()))
    if results:
        typer.echo(
            write_results(f"device-feed-{model}-{lengths}", provenance_of("benchmarks.device_feed"), found, results)
        )


def _simulated(folder: Path, model: Model, *, rate: float, graphed: bool) -> tuple[SequenceClassifier, Device]:
    tokenizer = read_tokenizer(verified_demo_encoder())
    config = config_of(model, vocabulary=len(tokenizer))
    shape = Shape.of(config)
    config.update({"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 128, "num_labels": 1})
    loaded = load_classifier(
        str(save_random(config, folder, tokenizer=tokenizer)), "float32", device="cpu", parity_rows=0
    )
    assert loaded.backend.name == "padded"
    device = Device(shape=shape, rate=rate, launch=None if graphed else loaded.backend.model)  # type: ignore[attr-defined]
    return replace(loaded, backend=device, max_batch_tokens=32_768), device


def _simulate_tokenizer(scorer: SequenceClassifier, texts: list[str], cores: Path, *, processes: int) -> None:
    """Replace the Rust tokenizer by a table, in this process or in `processes` other processes."""
    seconds_a_row = _RUST_SECONDS / _RUST_CORES * sum(map(len, texts)) / len(texts) / 3_400
    read = partial(read_simulated, scorer.model, texts, room=MAX_TOKENS - 2, cores=cores, seconds_a_row=seconds_a_row)
    encoder: Any = scorer.tokenizer._encoder
    if processes:
        encoder._contents = partial(TokenizerProcesses(read, processes).encode, room=MAX_TOKENS - 2)
    else:
        encoder._contents = ContentEncoder(read().backend_tokenizer, room=MAX_TOKENS - 2).encode


def _written(folder: Path, texts: list[str], *, rows: int) -> Path:
    """Write a shard with FineWeb's columns and row groups. Its texts repeat."""
    number = np.arange(rows)
    columns = {
        "text": pa.array(texts).take(pa.array(number % len(texts))),
        "id": [f"<urn:uuid:{row:08d}-8c41-4c7a-a20d>" for row in number],
        "url": [f"https://www.example{row % 997}.com/some/path/{row}" for row in number],
        "file_path": [
            f"s3://commoncrawl/crawl-data/CC-MAIN-2024-10/segments/{row % 90}/warc/x.warc.gz" for row in number
        ],
        "language_score": np.linspace(0.6, 1, rows),
        "token_count": number,
    }
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "000_00000.parquet", row_group_size=1_000)
    return folder / "000_00000.parquet"


class _Launching(Progress):
    def __init__(self, pace: WindowPace, may_begin_next: threading.Event) -> None:
        super().__init__(pace)
        self.on_read = self.on_launched = may_begin_next.set  # type: ignore[method-assign]


@dataclass(frozen=True)
class _Work:
    run: Callable[[threading.Event], str]

    def give_back(self) -> None: ...


def _score(
    scorer: SequenceClassifier,
    source: Path,
    output: FolderOutput,
    seconds: Counter[str],
    open_seconds: float,
    pace: WindowPace,
    may_begin_next: threading.Event,
) -> str:
    time.sleep(open_seconds)
    progress, checkpoint = _Launching(pace, may_begin_next), Checkpoint({}, lambda first_row, scores: None)
    claim = claim_of(source, Path(output.uri), scorer.dtype)
    score_shard(claim, [scorer], progress, checkpoint, output, worker="benchmark", scratch_dir=None)
    seconds.update(progress.vitals.seconds())
    return "done"


if __name__ == "__main__":
    cli()
