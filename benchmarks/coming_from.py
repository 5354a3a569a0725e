"""The comparisons of docs/coming_from.md, each by its file in examples/coming_from. Writes results files.

Example: python -m benchmarks.coming_from --only finepdfs_server --texts 16 --rounds 3

The models are made here, because this runs offline: MiniLM with a head that is fitted to texts of the demo, and random weights in
the shapes of the others, which take as long as trained ones.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from transformers import AutoConfig, PreTrainedTokenizerBase

from benchmarks.results import provenance_of, write_results
from benchmarks.scorer.models import read_tokenizer, save_random
from benchmarks.scorer.texts import Lengths, make_texts
from benchmarks.zero_shot import Size, save_bart
from producer.local.demo_data import write_labelled
from worker.training.base_model import verified_demo_encoder
from worker.training.options import DEMO_ENCODER, TrainOptions
from worker.training.train import train

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_EXAMPLES = Path(__file__).parents[1] / "examples/coming_from"
_LABELLED = 300  # texts
_PDF_TOKENS = 2048
_TINY_ROWS = 4


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`save` makes the model in a folder."""

    example: str
    model: str  # in words
    save: Callable[[Path, PreTrainedTokenizerBase, bool], None]
    lengths: Lengths
    rows: int


@cli.command()
def coming_from(
    only: Annotated[str, typer.Option(help="One of the files, without .py. Default: all.")] = "",
    texts: Annotated[
        int | None, typer.Option(min=1, help="Texts of each file. Default: as many as docs/coming_from.md has of it.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="The ways take turns, and the fastest round counts.")] = 5,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Small models, and 4 texts by default, to test the benchmark itself.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder of the results files.")] = Path("benchmarks/results"),
) -> None:
    """Run each comparison in a process of its own, one after the other, and write a file for each."""
    tokenizer = read_tokenizer(str(verified_demo_encoder()))
    chosen = [one for one in COMPARISONS if only in ("", one.example)]
    if not chosen:
        raise typer.BadParameter(f"There is no {only}. There are: {', '.join(one.example for one in COMPARISONS)}.")
    for one in chosen:
        found = provenance_of("benchmarks.coming_from")
        rows = texts or (_TINY_ROWS if tiny else one.rows)
        report = {"rounds": rounds, **_compared(one, tokenizer, rows=rows, rounds=rounds, tiny=tiny)}
        write_results(f"coming-from-{one.example.replace('_', '-')}", found, report, output)
        typer.echo(_table(report))


def _compared(
    one: Comparison, tokenizer: PreTrainedTokenizerBase, *, rows: int, rounds: int, tiny: bool
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="shardsift-bench-") as name:
        folder = Path(name)
        one.save(folder / "model", tokenizer, tiny)
        texts = make_texts(one.lengths, rows, tokenizer=tokenizer)
        pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")
        options = ["--model", "model", "--input", "texts.parquet", "--rows", rows, "--rounds", rounds]
        subprocess.run(
            [sys.executable, _EXAMPLES / f"{one.example}.py", *map(str, options), "--report", "report.json"],
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            check=True,
        )
        ways = json.loads((folder / "report.json").read_text())
    return {"example": one.example, "model": one.model, "lengths": one.lengths, "rows": rows, "ways": ways}


def _table(report: dict[str, Any]) -> str:
    """For docs/coming_from.md. The last column, the lowest and the highest ratio of a round, says how quiet the machine was."""
    first = report["ways"][0]
    lines = [
        f"| {way['way']}, {way['dtype']} | {way['rows_per_second']:.3g} | {way['ratio']:.2f} | {way['error']:.1g} | "
        f"{_range(first, way)} |"
        for way in report["ways"]
    ]
    head = f"{report['example']}.py, {report['model']}, {report['rows']} texts, {report['rounds']} rounds:"
    names = "| way | rows/s | × the first | scores within | × in each round |"
    return "\n".join([f"\n{head}\n", names, "|---|---:|---:|---:|---|", *lines])


def _range(first: dict[str, Any], way: dict[str, Any]) -> str:
    ratios = [one / other for one, other in zip(first["seconds"], way["seconds"], strict=True)]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _save_minilm(folder: Path, _: PreTrainedTokenizerBase, tiny: bool) -> None:
    labelled = folder.with_suffix(".parquet")
    write_labelled(labelled, rows=_LABELLED, seed=0)
    max_tokens = 16 if tiny else 512
    train(
        TrainOptions(data=str(labelled), base_model=DEMO_ENCODER, output=str(folder), max_tokens=max_tokens),
        device="cpu",
    )


def _save_bart(folder: Path, tokenizer: PreTrainedTokenizerBase, tiny: bool) -> None:
    save_bart(Size.TINY if tiny else Size.BASE, folder, tokenizer)


def _save_distilbert(folder: Path, tokenizer: PreTrainedTokenizerBase, tiny: bool) -> None:
    config = AutoConfig.for_model(
        "distilbert", vocab_size=len(tokenizer), num_labels=2, **({"n_layers": 1} if tiny else {})
    )
    save_random(config, folder, tokenizer=tokenizer)


def _save_modernbert(folder: Path, tokenizer: PreTrainedTokenizerBase, tiny: bool) -> None:
    special = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("pad", "cls", "sep")}
    size = {"num_hidden_layers": 1, "hidden_size": 48, "intermediate_size": 64} if tiny else {}
    config = AutoConfig.for_model(
        "modernbert",
        vocab_size=len(tokenizer),
        num_labels=1,
        classifier_pooling="mean",
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        **special,
        **size,
    )
    tokenizer.model_max_length = _PDF_TOKENS
    save_random(config, folder, tokenizer=tokenizer)


COMPARISONS = (
    Comparison(
        example="dask_recipe",
        model="all-MiniLM-L6-v2 with a fitted head",
        save=_save_minilm,
        lengths=Lengths.FINEWEB,
        rows=64,
    ),
    Comparison(
        example="apply_over_a_pipeline",
        model="BART of 6 + 6 layers of 768, random weights",
        save=_save_bart,
        lengths=Lengths.POSTS,
        rows=6,
    ),
    Comparison(
        example="sentiment",
        model="DistilBERT, random weights",
        save=_save_distilbert,
        lengths=Lengths.SHORT,
        rows=256,
    ),
    Comparison(
        example="finepdfs_server",
        model="ModernBERT-base, random weights",
        save=_save_modernbert,
        lengths=Lengths.PDFS,
        rows=6,
    ),
)


if __name__ == "__main__":
    cli()
