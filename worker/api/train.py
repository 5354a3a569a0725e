"""Train a classifier in this process: `shardsift.train`, as `worker train` does. Knows no queue."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack, get_type_hints

from fleet.errors import Stopped
from fleet.process.command_line import checked, keywords_told, options_help, say, showing
from fleet.process.settings import read_settings
from worker.scoring.quiet import quiet_imports
from worker.training.options import ClassWeights, TrainDtype, TrainOptions, TrainTask, check_installed

if TYPE_CHECKING:
    from worker.training.report import TrainReport

Place: TypeAlias = str | PathLike[str]  # a path or a URI
_Function = TypeVar("_Function", bound=Callable[..., Any])


class TrainKeywords(TypedDict, total=False):
    """The options of `worker train` that need not be given."""

    data: Place | None
    label_with: Place | None
    text_column: str | None
    label_column: str | None
    task: TrainTask
    class_weights: ClassWeights
    max_tokens: int | None
    validation: Place | None
    held_out: float
    seed: int
    threshold: float | None
    full: bool
    epochs: float
    learning_rate: float
    batch_rows: int
    accumulate: int
    patience: int | None
    checkpoint_steps: int
    checkpoints: Place | None
    loader_processes: int
    dtype: TrainDtype


def with_train_keywords(function: _Function) -> _Function:
    """Show the options of a training in a function's signature and help, where it says `**options`."""
    types, own = get_type_hints(TrainKeywords), inspect.signature(function).parameters
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
        )
        for field in fields(TrainOptions)
        if field.name not in own
    ]
    function.__doc__ = (
        f"{inspect.cleandoc(function.__doc__ or '')}\n\nThe options of a training:\n\n{options_help(TrainOptions)}"
    )
    return showing(function, options)


def train_options(given: Mapping[str, Any]) -> TrainOptions:
    """The options of a training. Raises TypeError for an unknown keyword, UsageError for a wrong value."""
    types = get_type_hints(TrainOptions, include_extras=True)
    for name in given:
        if name not in types:
            raise TypeError(f"There is no option {name!r}. The options are: {', '.join(types)}.")
    plain = {name: _plain(name, value) for name, value in given.items()}
    return TrainOptions(**{name: checked(name, value, types[name]) for name, value in plain.items()})


def _plain(name: str, value: Any) -> Any:
    if not isinstance(value, PathLike):
        return value
    return (
        str(Path(value).absolute()) if name == "label_with" else os.fspath(value)
    )  # "kept" may be a run, Path("kept") is none


@with_train_keywords
def train(
    *,
    base_model: Place,
    output: Place,
    device: str | None = None,
    resume: bool = True,
    progress: bool = True,
    **options: Unpack[TrainKeywords],
) -> "TrainReport | None":
    """Train a classifier on labelled texts in this process, and save it as a model folder. Returns its figures.

    >>> shardsift.train(data="labelled.parquet", base_model="./all-MiniLM-L6-v2", output="./my-classifier")
    <TrainReport ./my-classifier: accuracy 91.2%, F1 0.904 of 1,200 held-out rows>
    >>> scores = shardsift.score(texts, "./my-classifier")

    The encoder is frozen, as for fineweb-edu-classifier: each text is embedded once, and the last layer is fitted to that. With
    `full=True`, all weights are trained. Then interrupting it saves a checkpoint and raises KeyboardInterrupt, and the same call
    goes on after the last checkpoint. An output that exists is never overwritten.

    device: "cuda", "cpu" and so on. Default: SHARDSIFT_DEVICE, otherwise the best of this machine.
    resume: with `full=True`, go on after the last checkpoint.
    progress: show progress on stderr.

    Returns None in all processes of `torchrun` but the first. Raises UsageError for wrong options, and for labels, models and
    outputs that do not fit.
    """
    with keywords_told():
        chosen = train_options({"base_model": base_model, "output": output, **options})
        with quiet_imports():
            return _trained(
                chosen,
                device=read_settings(device=device).device,
                resume=resume,
                tell=say if progress else lambda line: None,
            )


def _trained(options: TrainOptions, *, device: str, resume: bool, tell: Callable[[str], None]) -> "TrainReport | None":
    check_installed()
    from worker.commands.train import with_run_found
    from worker.training.train import train as train_model

    try:
        return train_model(with_run_found(options), device=device, resume=resume, tell=tell)
    except Stopped as stop:
        raise KeyboardInterrupt(str(stop)) from None
