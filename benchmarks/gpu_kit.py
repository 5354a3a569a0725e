"""Measure a CUDA GPU for the first time: what a worker chooses, how fast it is, and what limits it.

python -m benchmarks.gpu_kit PART OUT [TOKENIZER]

Writes OUT/gpu-kit-PART.json as it goes, and the GPU's clock to OUT/clock-PART.csv. A step that fails leaves its reason in
the JSON. benchmarks/README.md says which parts to run in ten, twenty and thirty minutes. Needs torch and transformers;
`shards` needs everything that a worker needs. TOKENIZER is a folder with a WordPiece tokenizer, if the demo encoder is not
installed. TINY=1 tries the steps on a CPU.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, PreTrainedConfig

from benchmarks.scorer.case import Model
from benchmarks.scorer.models import config_of, read_tokenizer, save_random
from benchmarks.scorer.texts import Lengths, make_texts
from shardsift.fleet.run.flops import Shape
from shardsift.worker.scoring import EncodedRows
from shardsift.worker.scoring.backends.graphed import Graphed
from shardsift.worker.scoring.backends.packed import FAMILIES, Packed, flash_attention
from shardsift.worker.scoring.device import best_device
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.parity_trial import sample_texts
from shardsift.worker.scoring.peak import finish, matmul_peak
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.tokens import Tokens

TINY = bool(os.environ.get("TINY"))
DEVICE = best_device()
MODELS = (Model.TINY,) if TINY else (Model.BERT_BASE, Model.MINILM)
DTYPES = ("bfloat16",) if TINY else ("float16", "bfloat16")
BUDGET = 1_024 if TINY else 32_768  # tokens of a batch
SIZES = (BUDGET,) if TINY else (16_384, BUDGET)
ROWS = 64 if TINY else 16_384
WINDOW_ROWS = 8_192
SECONDS = 90  # limit for one fact, which may need to compile
Facts = Iterator[tuple[str, object]]


class Kit:
    def __init__(self, tokenizer: str, folder: Path) -> None:
        self.tokenizer = tokenizer
        self.folder = folder

    def model(self, model: Model | str) -> str:
        """Return a folder with random weights, for a known shape or for a small model of a family that can be packed."""
        folder = self.folder / model
        if not folder.exists():
            words = read_tokenizer(self.tokenizer)
            config = config_of(model, vocabulary=len(words)) if isinstance(model, Model) else _small(model, len(words))
            config.num_labels = 1
            save_random(config, folder, tokenizer=words)
        return str(folder)

    def scorer(self, model: Model | str, way: str, dtype: str = "auto", *, threads: int = 1) -> SequenceClassifier:
        """Load a model without the parity gate. `way` is padded, packed or graphed. On a CPU, all ways are padded.

        With one thread, no tokenizer processes are started, because that takes seconds.
        """
        asked: Any = "padded" if way == "padded" else "packed"
        scorer = load_classifier(
            self.model(model), dtype, backend=asked, parity_rows=0, max_batch_tokens=BUDGET, threads=threads
        )
        if way == "graphed" and isinstance(scorer.backend, Packed):
            graph = Graphed(scorer.backend, tokens=scorer.max_batch_tokens, longest=scorer.tokenizer.max_tokens)
            return replace(scorer, backend=graph)
        return scorer


def _small(model_type: str, vocabulary: int) -> PreTrainedConfig:
    decoder = {"num_key_value_heads": 2, "head_dim": 64} if FAMILIES[model_type].has_cache else {}
    return AutoConfig.for_model(
        model_type,
        vocab_size=vocabulary,
        pad_token_id=0,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        **decoder,
    )


# ---- The steps. Each yields facts -------------------------------------------------------------------------------------


def environment(kit: Kit) -> Facts:
    yield "versions", {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count()}
    query = "name,driver_version,power.limit,clocks.max.sm"
    asked = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    yield query, "" if TINY else subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def ways_agree(kit: Kit) -> Facts:
    """Yield the largest difference of a logit from padded float32, and the logits' spread, by model, format and way."""
    yield from _agreement(kit, MODELS if TINY else (*MODELS, *FAMILIES), "padded", "packed")


def graphs_agree(kit: Kit) -> Facts:
    yield from _agreement(kit, MODELS, "graphed")


def _agreement(kit: Kit, models: Iterable[Model | str], *ways: str) -> Facts:
    texts = sample_texts(16 if TINY else 500)
    for model in models:
        exact = kit.scorer(model, "padded", "float32").score(texts).values
        for dtype in DTYPES:
            for way in ways:
                yield f"{model}, {dtype}, {way}", _tried(_error, kit, model, way, dtype, texts, exact)


def _error(kit: Kit, model: str, way: str, dtype: str, texts: list[str], exact: Any) -> object:
    scores = kit.scorer(model, way, dtype).score(texts)
    return {"max_error": np.abs(scores.values - exact).max(), "spread": exact.std(), "errored": len(scores.errors)}


def start(kit: Kit) -> Facts:
    """Yield what a worker chooses at its start, and how long that takes. The second start reuses compiled code of the first."""
    for turn in ("first", "second"):
        yield turn, _tried(_start, kit)


def _start(kit: Kit) -> object:
    torch._dynamo.reset()
    began = time.perf_counter()
    info = load_classifier(kit.model(MODELS[0])).info
    return {"backend": info.backend, "dtype": info.dtype, "seconds": time.perf_counter() - began}


def peaks(kit: Kit) -> Facts:
    size = 512 if TINY else 8_192
    square = [torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)]
    seconds = min(_seconds(lambda: [square[0] @ square[1] for _ in range(20)]) for _ in range(3))
    yield f"{size}³", 20 * 2 * size**3 / seconds
    for model in MODELS:
        yield f"shapes of {model}", matmul_peak(_shape(kit, model), torch.bfloat16, DEVICE)


def rates(kit: Kit) -> Facts:
    for model in MODELS:
        for way in ("padded", "packed"):
            yield f"{model}, {way}", _tried(_rate, kit, model, way)


def graphs(kit: Kit) -> Facts:
    """Yield for each fixed size the time to record it, and the time of a full batch, graphed and packed.

    Then yield the rate for FineWeb's lengths.
    """
    for model in MODELS:
        scorer = kit.scorer(model, "graphed")
        graph = scorer.backend
        if isinstance(graph, Graphed):
            for texts, longest in graph.sizes:
                if BUDGET // texts < longest:  # the others are for models that read longer texts
                    name = f"{model}, {texts:,} texts of up to {longest}"
                    yield name, _tried(_graph, graph, BUDGET // texts, longest)
        yield f"{model}, FineWeb", _tried(_rate, kit, model, "graphed")


def _graph(graph: Graphed, average: int, longest: int) -> object:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.integers(average, 2 * average, BUDGET), 3, longest)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), BUDGET, side="right")]
    batch = _tokens(lengths)
    first = _seconds(lambda: graph.logits(batch))
    graphed, packed = (
        float(np.median([_seconds(partial(way.logits, batch)) for _ in range(20)])) for way in (graph, graph.packed)
    )
    return {
        "name": graph.name,
        "first_seconds": first,
        "seconds": graphed,
        "packed_seconds": packed,
        "texts": len(batch),
    }


def sizes(kit: Kit) -> Facts:
    """Yield the rates of batches of other sizes. The first run of a graph includes its compilation."""
    for model in MODELS:
        for way in ("packed", "graphed"):
            for size in SIZES:
                yield f"{model}, {way}, {size:,} tokens", _tried(_rate, kit, model, way, size)


def _rate(kit: Kit, model: Model, way: str, size: int = BUDGET, rounds: int = 3) -> object:
    """Measure rows and operations per second over windows of FineWeb's lengths, from ids on the host."""
    scorer = kit.scorer(model, way).with_budget(size)
    tokens = fineweb_ids(ROWS)
    windows = [_encoded(tokens.take(np.arange(at, min(at + WINDOW_ROWS, ROWS)))) for at in range(0, ROWS, WINDOW_ROWS)]
    first = _seconds(lambda: scorer.score_encoded(windows[0]))
    seconds = float(
        np.median([_seconds(lambda: [scorer.score_encoded(one) for one in windows]) for _ in range(rounds)])
    )
    operations = float(_shape(kit, model).flops(tokens.lengths).sum())
    return {"rows_per_second": ROWS / seconds, "operations_per_second": operations / seconds, "first_seconds": first}


def kernels(kit: Kit) -> Facts:
    """Yield the seconds of each kernel of a layer by itself, in bfloat16, and its operations or bytes per second."""
    for model in MODELS:
        for name, (work, amount) in _kernels_of(_shape(kit, model), fineweb_ids(BUDGET // 64)).items():
            yield f"{model}, {name}", _tried(_kernel, work, amount)


def _kernels_of(shape: Shape, tokens: Tokens) -> dict[str, tuple[Callable[[], object], float]]:
    """Return a layer's kernels by name, each with its operations or bytes."""
    hidden, inner, count = shape.hidden, shape.feed_forward, len(tokens.ids)
    states, wide = _random(count, hidden), _random(count, inner)
    norm = torch.nn.LayerNorm(hidden, device=DEVICE, dtype=torch.bfloat16)
    query, joined, up, down = (
        torch.nn.Linear(rows, columns, device=DEVICE, dtype=torch.bfloat16)
        for rows, columns in ((hidden, hidden), (hidden, 3 * hidden), (hidden, inner), (inner, hidden))
    )
    product, gelu = 2 * count * hidden, torch.nn.functional.gelu

    def added(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = norm(one + other)
        return normed

    found: dict[str, tuple[Callable[[], object], float]] = {
        "query": (partial(query, states), product * hidden),
        "query, key and value": (partial(joined, states), product * 3 * hidden),
        "up": (partial(up, states), product * inner),
        "down": (partial(down, wide), product * inner),
        "GELU": (partial(gelu, wide), 4 * wide.numel()),
        "up, then GELU": (lambda: gelu(up(states)), product * inner),
        "up with tanh-GELU in its epilogue": (
            lambda: torch.ops.aten._addmm_activation(up.bias, states, up.weight.t(), use_gelu=True),
            product * inner,
        ),
        "add and LayerNorm": (partial(added, states, states), 6 * states.numel()),
        "add and LayerNorm, compiled": (partial(torch.compile(added), states, states), 6 * states.numel()),
        "ids to the device": (lambda: torch.from_numpy(tokens.ids).to(DEVICE), tokens.ids.nbytes),
        "copy on the device": (wide.clone, 4 * wide.numel()),
    }
    if DEVICE.type == "cuda":
        heads = torch.randn(count, hidden // 64, 64, device=DEVICE, dtype=torch.bfloat16)
        starts = torch.from_numpy(tokens.offsets.astype(np.int32)).to(DEVICE)
        most = int(tokens.lengths.max())
        attend = partial(flash_attention, heads, heads, heads, starts, starts, most, most)
        work = partial(attend, scale=None, window_size=(-1, -1))
        found["attention"] = (work, 4.0 * hidden * float((tokens.lengths.astype(np.float64) ** 2).sum()))
    return found


@torch.inference_mode()
def _kernel(work: Callable[[], object], amount: float, times: int = 50) -> object:
    for _ in range(3):
        work()
    seconds = _seconds(lambda: [work() for _ in range(times)]) / times
    return {"seconds": seconds, "per_second": amount / seconds}


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def profile(kit: Kit) -> Facts:
    from torch.profiler import profile

    encoded = _encoded(fineweb_ids(64 if TINY else 600))
    for way in ("packed", "graphed"):
        scorer = kit.scorer(MODELS[0], way)
        scorer.score_encoded(encoded)
        with profile() as found:
            scorer.score_encoded(encoded)
        order = f"self_{DEVICE.type}_time_total"
        yield way, found.key_averages().table(sort_by=order, row_limit=20, max_name_column_width=60).splitlines()


def lack_of_memory(kit: Kit) -> Facts:
    """Score a batch that does not fit in memory. The smaller batches must give the same scores."""
    encoded = _encoded(fineweb_ids(64 if TINY else 4_000))
    scorer = kit.scorer(MODELS[0], "packed")
    wanted = scorer.score_encoded(encoded).values
    if DEVICE.type == "cuda":
        torch.cuda.set_per_process_memory_fraction((2 << 30) / torch.cuda.mem_get_info()[1])
    found = scorer.with_budget(1 << 21).score_encoded(encoded)
    yield "largest difference", np.abs(found.values - wanted).max()
    yield "times", torch.cuda.memory_stats()["num_ooms"] if DEVICE.type == "cuda" else 0


def shards(kit: Kit) -> Facts:
    from benchmarks.scorer.whole_shard import OursShard

    for model, lengths in [(MODELS[0], Lengths.FINEWEB), (MODELS[-1], Lengths.FINEWEB), (MODELS[0], Lengths.SHORT)]:
        texts = make_texts(lengths, ROWS, tokenizer=read_tokenizer(kit.tokenizer))
        run = OursShard(kit.scorer(model, "graphed", threads=os.cpu_count() or 1)).prepare(texts)
        run()
        yield f"{model}, {lengths}", {"rows_per_second": ROWS / _seconds(run)}


def two_processes(kit: Kit) -> Facts:
    """Yield the rates of one and of two workers on one GPU. Two may fill each other's gaps."""
    for count in (1, 2):
        command = [sys.executable, "-m", "benchmarks.gpu_kit", "one", str(kit.folder), kit.tokenizer]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        yield f"{count}", [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]


def one_process(kit: Kit) -> Facts:
    yield "rate", _rate(kit, MODELS[0], "packed", rounds=7)


PARTS: dict[str, tuple[Callable[[Kit], Facts], ...]] = {
    "start": (environment, start, profile),
    "kernels": (environment, peaks, kernels),
    "graphs": (environment, graphs, graphs_agree),
    "sizes": (environment, sizes),
    "right": (environment, rates, ways_agree, lack_of_memory),
    "shards": (environment, shards),
    "two": (environment, two_processes),
    "one": (one_process,),
}


# ---- Helpers ----------------------------------------------------------------------------------------------------------


def fineweb_ids(rows: int) -> Tokens:
    """Make random ids with FineWeb's lengths, cut at 512 tokens. See `texts.py`."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(698) - 0.5, 1.0, rows).astype(np.int64) + 2, 3, 512)
    return _tokens(lengths)


def _tokens(lengths: npt.NDArray[np.int64]) -> Tokens:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.random.default_rng(0).integers(999, 30_000, offsets[-1]).astype(np.int32)
    return Tokens(ids=ids, offsets=offsets)


def _encoded(tokens: Tokens) -> EncodedRows:
    rows = len(tokens)
    return EncodedRows(rows=rows, sequences=tokens, offsets=np.arange(rows + 1), row_of_text=np.arange(rows), errors={})


def _shape(kit: Kit, model: Model) -> Shape:
    return Shape.of(AutoConfig.from_pretrained(kit.model(model)))


def _seconds(work: Callable[[], object]) -> float:
    finish(DEVICE)
    began = time.perf_counter()
    work()
    finish(DEVICE)
    return time.perf_counter() - began


def _tried(measure: Callable[..., object], *arguments: object) -> object:
    """Call `measure` for at most SECONDS. Returns its result, or the reason if it fails.

    So a GPU with several faults shows them all.
    """
    signal.alarm(SECONDS)
    try:
        return measure(*arguments)
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"[:500]
    finally:
        signal.alarm(0)


@contextmanager
def _clock(log: Path) -> Iterator[None]:
    """Record the GPU's clock, power and temperature every half second."""
    if DEVICE.type != "cuda":
        yield
        return
    asked = ["nvidia-smi", "--query-gpu=timestamp,clocks.sm,power.draw,temperature.gpu", "--format=csv", "-lms", "500"]
    with log.open("w") as file, subprocess.Popen(asked, stdout=file) as process:
        try:
            yield
        finally:
            process.terminate()


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main(part: str, out: Path, tokenizer: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, object] = {}

    def note(fact: str, value: object) -> None:
        found[fact] = value
        line = json.dumps({fact: value}, default=float)
        sys.stdout.write(f"{line}\n")
        (out / f"gpu-kit-{part}.json").write_text(json.dumps(found, indent=1, default=float))

    with tempfile.TemporaryDirectory(prefix="shardsift-gpu-kit-") as folder, _clock(out / f"clock-{part}.csv"):
        for step in PARTS[part]:
            try:
                for fact, value in step(Kit(tokenizer, Path(folder))):
                    note(f"{step.__name__}: {fact}", value)
            except Exception as error:
                note(step.__name__, f"failed: {type(error).__name__}: {error}")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _too_long)
    name, place, *given = sys.argv[1:]
    if not given:
        from shardsift.worker.training.base_model import verified_demo_encoder

        given = [verified_demo_encoder()]
    main(name, Path(place), given[0])
