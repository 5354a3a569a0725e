"""Several models in one pass: two heads on one encoder against one, and two models against each alone. Writes a results file.

Example: python -m benchmarks.several_models --model bert-base --rows 96 --rounds 5
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import pyarrow as pa
import torch
import typer
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.results import provenance_of, write_results
from benchmarks.scorer.case import Model as Shape
from benchmarks.scorer.models import read_tokenizer, save_model
from benchmarks.scorer.texts import Lengths, make_texts
from fleet.run.model import Model
from fleet.run.scoring import Scoring
from fleet.run.spec import Shard
from worker.scoring.load import load_scorer
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.shard.checkpoint import Checkpoint
from worker.shard.pipelining import prefetched
from worker.shard.reader import Window
from worker.shard.vitals import Progress
from worker.shard.window_scoring import WindowScoring
from worker.training.base_model import verified_demo_encoder

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_WINDOWS = 3  # one is tokenized while another is scored


@cli.command()
def several_models(
    model: Annotated[Shape, typer.Option(help="Shape of the models; their weights are random.")] = Shape.MINILM,
    dtype: Annotated[str, typer.Option()] = "auto",
    rows: Annotated[int, typer.Option(min=1, help="Texts of each round, as long as FineWeb's.")] = 192,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    output: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path("benchmarks/results"),
) -> None:
    """Score the same texts with one model, with another, with both, and with two heads on one encoder, in turns."""
    found = provenance_of("benchmarks.several_models")
    with tempfile.TemporaryDirectory(prefix="shardsift-bench-") as folder:
        tokenizer = read_tokenizer(str(verified_demo_encoder()))
        one = save_model(model, Path(folder, "one"), tokenizer=tokenizer)
        head = _with_another_head(one, Path(folder, "head"), tokenizer)
        other = _with_other_weights(one, Path(folder, "other"), tokenizer)
        loaded = {path: load_scorer(str(path), dtype) for path in (one, head, other)}
        texts = make_texts(Lengths.FINEWEB, rows, tokenizer=tokenizer)
    lineup = {"one": [one], "another": [other], "two heads": [one, head], "two models": [one, other]}
    scorers = {name: [loaded[path] for path in paths] for name, paths in lineup.items()}
    for each in scorers.values():
        _seconds(each, texts[:8])  # joins what can be joined, and warms up
    if loaded[one].joined_with([loaded[head]]) is None:
        raise SystemExit("The two heads do not share their encoder.")
    seconds = [{name: _seconds(each, texts) for name, each in scorers.items()} for _ in range(rounds)]
    report = {
        "case": {"model": model, "dtype": loaded[one].dtype, "rows": rows, "windows": _WINDOWS},
        "seconds": seconds,
        "two_heads_times_one": round(median(took["two heads"] / took["one"] for took in seconds), 3),
        "two_models_times_their_sum": round(
            median(took["two models"] / (took["one"] + took["another"]) for took in seconds), 3
        ),
    }
    typer.echo(write_results(f"several-models-{model}", found, report, output).read_text())


def _with_another_head(model: Path, folder: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
    made = AutoModelForSequenceClassification.from_pretrained(model)
    with torch.no_grad():
        made.classifier.weight.mul_(-1)
    return _saved(made, folder, tokenizer)


def _with_other_weights(model: Path, folder: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
    made = AutoModelForSequenceClassification.from_pretrained(model)
    with torch.no_grad():
        for weights in made.base_model.parameters():
            weights.mul_(1.01)
    return _saved(made, folder, tokenizer)


def _saved(made: PreTrainedModel, folder: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _seconds(scorers: Sequence[SequenceClassifier], texts: list[str]) -> float:
    """The time to tokenize and score the texts with all of them, window by window, as a worker does."""
    scorings = [_scoring(scorer, f"score_{number}") for number, scorer in enumerate(scorers)]
    began = time.perf_counter()
    work = WindowScoring(Shard(name="s", uri="", identity=""), scorings, scorers, Checkpoint({}, lambda *_: None))
    with prefetched(work.prepared(_windows(texts)), "tokenizer") as windows:
        for window in windows:
            work.scores(window, Progress())
    return round(time.perf_counter() - began, 3)


def _windows(texts: list[str]) -> list[Window]:
    size = -(-len(texts) // _WINDOWS)
    return [
        Window(first_row=first, rows=pa.table({"text": texts[first : first + size]}))
        for first in range(0, len(texts), size)
    ]


def _scoring(scorer: SequenceClassifier, column: str) -> Scoring:
    model = Model(name=scorer.model, revision="", labels=("score",))
    return Scoring(model=model, dtype="auto", text_columns=("text",), score_column=column)


if __name__ == "__main__":
    cli()
