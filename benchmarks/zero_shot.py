"""Zero-shot classification: row by row, transformers' pipeline at each batch size, and ours. Writes a results file.

Example: python -m benchmarks.zero_shot --size base --rows 24 --rounds 3

The study that this follows classified Reddit posts by 16 labels with facebook/bart-large-mnli, at batch sizes from 5 to 40. The
model here has BART's shape and random weights, which take as long as trained ones. How fast the machine multiplies matrices is
measured in every round, and the fastest counts, as with the contenders.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from transformers import BartConfig, BartForSequenceClassification, PreTrainedTokenizerBase, pipeline

from benchmarks.results import provenance_of, timed, write_results
from benchmarks.scorer.models import read_tokenizer
from benchmarks.scorer.texts import Lengths, make_texts
from fleet.run.flops import Shape
from worker.scoring import Hypotheses, Reading, apply
from worker.scoring.device import best_device
from worker.scoring.load import load_scorer
from worker.scoring.peak import matmul_peak
from worker.training.base_model import verified_demo_encoder

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
LABELS = (
    "climate change", "technology", "health", "politics", "sport", "food", "travel", "music",
    "science", "education", "economy", "religion", "film", "gaming", "law", "nature",
)  # fmt: skip
TEMPLATE = "This example is {}."
BATCH_SIZES = range(5, 41, 5)
_DTYPES = (torch.float32, torch.bfloat16)
_TOLERANCE = 1e-4  # of a float32 score
_SAME_SCORES_AS = "apply"


class Size(StrEnum):
    TINY = "tiny"  # 1 + 1 layers of 64, to test the benchmark itself
    BASE = "base"  # 6 + 6 layers of 768
    LARGE = "large"  # 12 + 12 layers of 1024, as facebook/bart-large-mnli


_SHAPES = {Size.TINY: (1, 64, 2), Size.BASE: (6, 768, 12), Size.LARGE: (12, 1024, 16)}


@dataclass(frozen=True, kw_only=True)
class Contender:
    """`score` returns scores of shape (texts, labels)."""

    name: str
    score: Callable[[list[str]], np.ndarray[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Timed:
    name: str
    seconds: list[float]  # of each round
    rows_per_second: float  # of the fastest round, because other work on the machine only makes one slower
    max_error: float  # of its scores against those of row by row


@cli.command()
def zero_shot(
    size: Annotated[Size, typer.Option()] = Size.BASE,
    rows: Annotated[int, typer.Option(min=1, help="Texts of each round.")] = 24,
    sweep_rows: Annotated[int, typer.Option(min=1, help="Texts with which each batch size is tried.")] = 8,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    labels: Annotated[int, typer.Option(min=1, max=len(LABELS))] = len(LABELS),
    output: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path("benchmarks/results"),
) -> None:
    """Score the same posts in each way, in turns."""
    found = provenance_of("benchmarks.zero_shot")
    with tempfile.TemporaryDirectory(prefix="shardsift-bench-") as folder:
        tokenizer = read_tokenizer(str(verified_demo_encoder()))
        model = save_bart(size, Path(folder), tokenizer)
        texts = make_texts(Lengths.POSTS, rows, tokenizer=tokenizer)
        names = LABELS[:labels]
        reference = pipeline("zero-shot-classification", model=model, device=best_device(), dtype=torch.float32)
        sweep = {
            size: round(timed(_of_pipeline(reference, names, size), texts[:sweep_rows])[1], 3) for size in BATCH_SIZES
        }
        best = min(sweep, key=lambda batch_size: sweep[batch_size])
        peaks: dict[str, list[float]] = {str(dtype): [] for dtype in _DTYPES}

        def measure_peaks() -> None:
            for dtype in _DTYPES:
                peaks[str(dtype)].append(_peak(size, dtype))

        ways = _timed(
            [
                Contender(name="apply", score=_row_by_row(reference, names)),
                Contender(name=f"pipeline, batch size {best}", score=_of_pipeline(reference, names, best)),
                Contender(name="ours, float32", score=_ours(model, names, "float32")),
                Contender(name="ours, auto", score=_ours(model, names, "auto")),
            ],
            texts,
            rounds,
            before_each=measure_peaks,
        )
    report = {
        "case": {"size": size, "rows": rows, "labels": labels, "sweep_rows": sweep_rows},
        "seconds_by_batch_size": sweep,
        "matmul_peaks_ops_per_second": peaks,
        "matmul_peak_16_bit_to_float32": round(max(peaks[str(torch.bfloat16)]) / max(peaks[str(torch.float32)]), 2),
        "contenders": [asdict(one) for one in ways],
        "times_the_pipeline": {one.name: round(one.rows_per_second / ways[1].rows_per_second, 2) for one in ways},
    }
    typer.echo(write_results(f"zero-shot-{size}", found, report, output).read_text())


def save_bart(size: Size, folder: Path, tokenizer: PreTrainedTokenizerBase) -> str:
    """A BART of natural language inference with random weights, and a real tokenizer with BERT's separators."""
    torch.manual_seed(0)
    layers, width, heads = _SHAPES[size]
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        decoder_start_token_id=tokenizer.sep_token_id,
        forced_eos_token_id=None,
        id2label={0: "contradiction", 1: "neutral", 2: "entailment"},
        label2id={"contradiction": 0, "neutral": 1, "entailment": 2},
    )
    model = BartForSequenceClassification(config)
    with torch.no_grad():
        model.classification_head.out_proj.weight.normal_(std=2.0)  # so that texts and labels are told apart
    model.save_pretrained(folder)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    return str(folder)


def _row_by_row(reference: Any, labels: Sequence[str]) -> Callable[[list[str]], np.ndarray[Any, Any]]:
    """`posts["text"].apply(lambda text: classifier(text, labels))`."""
    return lambda texts: np.array([_in_order(reference(text, list(labels)), labels) for text in texts])


def _of_pipeline(reference: Any, labels: Sequence[str], batch_size: int) -> Callable[[list[str]], np.ndarray[Any, Any]]:
    return lambda texts: np.array(
        [_in_order(one, labels) for one in reference(texts, list(labels), batch_size=batch_size)]
    )


def _in_order(found: dict[str, Any], labels: Sequence[str]) -> list[float]:
    scores = dict(zip(found["labels"], found["scores"], strict=True))
    return [scores[label] for label in labels]


def _ours(model: str, labels: Sequence[str], dtype: str) -> Callable[[list[str]], np.ndarray[Any, Any]]:
    scorer = _scorer(model, labels, dtype)

    def score(texts: list[str]) -> np.ndarray[Any, Any]:
        return apply("softmax", scorer.score_encoded(scorer.encode(texts), lambda rows: True, None).values)

    return score


def _scorer(model: str, labels: Sequence[str], dtype: str) -> Any:
    hypotheses = Hypotheses(texts=tuple(map(TEMPLATE.format, labels)), entailment=2, multi_label=False)
    return load_scorer(model, dtype).reading(Reading(hypotheses=hypotheses))


def _timed(
    contenders: list[Contender], texts: list[str], rounds: int, *, before_each: Callable[[], None]
) -> list[Timed]:
    """Each contender once in each round, so that a disturbance hits all of them."""
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    scores: dict[str, np.ndarray[Any, Any]] = {}
    for _ in range(rounds):
        before_each()
        for contender in contenders:
            scores[contender.name], took = timed(contender.score, texts)
            seconds[contender.name].append(round(took, 3))
    errors = {name: float(np.abs(found - scores[_SAME_SCORES_AS]).max()) for name, found in scores.items()}
    if errors["ours, float32"] > _TOLERANCE:
        raise SystemExit(f"The scores differ by {errors['ours, float32']:.2g}.")
    return [
        Timed(
            name=name,
            seconds=taken,
            rows_per_second=round(len(texts) / min(taken), 3),
            max_error=errors[name],
        )
        for name, taken in seconds.items()
    ]


def _peak(size: Size, dtype: torch.dtype) -> float:
    """By the fastest products: on a CPU, oneDNN's."""
    layers, width, _ = _SHAPES[size]
    shape = Shape(
        layers=2 * layers, hidden=width, attention=width, key_value=width, feed_forward=4 * width, gated=False
    )
    return matmul_peak(shape, dtype, best_device())


if __name__ == "__main__":
    cli()
