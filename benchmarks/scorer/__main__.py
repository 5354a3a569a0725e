"""The command `python -m benchmarks.scorer`. Thin: options in, the cases one after another, a report out."""

import os
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.markdown import Markdown

from benchmarks.results import provenance_of
from benchmarks.scorer.case import Case, Model, Name
from benchmarks.scorer.plans import chosen_cases, plan_for
from benchmarks.scorer.texts import Lengths
from shardsift.fleet.errors import UsageError
from shardsift.fleet.run import choices

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from benchmarks.scorer.compare import Comparison
    from benchmarks.scorer.ours import OurSettings

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Device(StrEnum):
    AUTO = "auto"  # a GPU if there is one
    CPU = "cpu"
    CUDA = "cuda"


@cli.command(
    epilog="Example: python -m benchmarks.scorer --models bert-base,minilm --lengths fineweb --only reference,ours --rows 48"
)
def scorer(
    device: Annotated[Device, typer.Option(help="Where to run; it also chooses the plan.")] = Device.AUTO,
    models: Annotated[
        str, typer.Option(help="bert-base, minilm, distilbert, bert-large, tiny; joined by commas.")
    ] = "",
    lengths: Annotated[str, typer.Option(help="fineweb, full, short; joined by commas.")] = "",
    only: Annotated[str, typer.Option(help=f"{', '.join(Name)}; joined by commas.")] = "",
    rows: Annotated[int, typer.Option(min=0, help="Texts of each case. 0: as planned.")] = 0,
    repeats: Annotated[int, typer.Option(min=0, help="Rounds of each case. 0: as planned.")] = 0,
    tokenizer: Annotated[str, typer.Option(help="Folder of a WordPiece tokenizer. Default: the demo encoder's.")] = "",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads, the same for all. 0: one a core.")] = 0,
    dtype: Annotated[str, typer.Option(help="Of ours, as `worker start` takes it.")] = "auto",
    backend: Annotated[choices.BackendName, typer.Option(help="Of ours, as a worker takes it.")] = "auto",
    compile: Annotated[bool, typer.Option("--compile", help="Ours with torch.compile.")] = False,
    max_batch_tokens: Annotated[int, typer.Option(min=0, help="Of ours. 0: its own choice.")] = 0,
    output: Annotated[Path, typer.Option(help="Folder of the results files.")] = Path("benchmarks/results"),
) -> None:
    """Measure the scorer against what it replaces, on the same texts in the same run. Writes a results file.

    Without options the plan for the device is run: minutes on a CPU or a GPU.
    """
    chosen_models, chosen_lengths = _named(models, Model, "--models"), _named(lengths, Lengths, "--lengths")
    chosen_contenders = _named(only, Name, "--only")
    _set_up_process(device, threads)
    import torch

    from benchmarks.scorer.models import read_tokenizer
    from benchmarks.scorer.ours import OurSettings
    from benchmarks.scorer.report import Report

    plan = plan_for(_device_type(device))
    cases = chosen_cases(
        plan, models=chosen_models, lengths=chosen_lengths, rows=rows, repeats=repeats, only=chosen_contenders
    )
    if not cases:
        raise typer.BadParameter("The plan for this device has no such case. Name the model with --models.")
    settings = OurSettings(
        dtype=dtype,
        backend=backend,
        compile=compile,
        max_batch_tokens=max_batch_tokens,
        threads=threads,
    )
    found = provenance_of("benchmarks.scorer")
    report = Report(provenance=found, settings=settings, comparisons=[], threads=torch.get_num_threads())
    part = "-".join([*chosen_models, *chosen_lengths, *chosen_contenders])
    words = read_tokenizer(tokenizer or _demo_tokenizer())
    for comparison in _comparisons(cases, words, settings, warmup_rows=plan.warmup_rows):
        report.comparisons.append(comparison)
        written = report.write(output, part=part)  # after each case, so that a stopped benchmark keeps its results
    Console().print(Markdown(report.markdown()))
    _say(f"Written: {', '.join(map(str, written))}")


def _set_up_process(device: Device, threads: int) -> None:
    """Set the device and the threads of this process.

    Call this before torch and the tokenizers are imported, because they read the environment at import.
    """
    if device is Device.CPU:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if threads:
        os.environ["RAYON_NUM_THREADS"] = str(threads)
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if threads:
        torch.set_num_threads(threads)


def _device_type(device: Device) -> str:
    from shardsift.worker.scoring.device import best_device

    found = best_device().type
    if device is Device.CUDA and found != "cuda":
        raise typer.BadParameter("torch finds no CUDA device here.", param_hint="--device")
    return found


_Choice = TypeVar("_Choice", bound=StrEnum)


def _named(joined: str, choices: type[_Choice], option: str) -> tuple[_Choice, ...]:
    try:
        return tuple(choices(name.strip()) for name in joined.split(",") if name.strip())
    except ValueError as error:
        raise typer.BadParameter(f"{error}. There are: {', '.join(choices)}.", param_hint=option) from None


def _demo_tokenizer() -> str:
    from shardsift.worker.training.base_model import verified_demo_encoder

    try:
        return verified_demo_encoder()
    except UsageError as error:
        raise typer.BadParameter(f"{error} Or name another folder.", param_hint="--tokenizer") from error


def _comparisons(
    cases: list[Case], tokenizer: "PreTrainedTokenizerBase", settings: "OurSettings", *, warmup_rows: int
) -> "Iterator[Comparison]":
    """Compare the contenders of each case. Creates each model once, and frees it when its cases are done."""
    from benchmarks.scorer.compare import compare
    from benchmarks.scorer.lineup import load_lineup
    from benchmarks.scorer.models import save_model

    for name, of_model in groupby(cases, key=lambda case: case.model):
        its_cases = list(of_model)
        with tempfile.TemporaryDirectory() as folder:
            model = save_model(name, Path(folder), tokenizer=tokenizer)
            lineup = load_lineup({who for case in its_cases for who in case.contenders}, model, settings)
            for case in its_cases:
                _say(f"{case}: {', '.join(case.contenders)}")
                yield compare(case, lineup, model=model, tokenizer=tokenizer, warmup_rows=warmup_rows, say=_say)


def _say(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    cli()
