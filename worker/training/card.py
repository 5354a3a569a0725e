"""The model card: what was trained on what, with which figures and which command."""

import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from huggingface_hub import ModelCardData

from fleet.errors import UsageError
from fleet.process.redact import redacted
from fleet.run.choices import DEFAULT_TEXT_COLUMN
from fleet.run.model import with_revision
from worker.scoring.quiet import quiet_transformers
from worker.training.base_model import DEMO_ENCODER, HUB_NAME
from worker.training.output import ModelOutput
from worker.training.place import TrainPlace
from worker.training.report import CALIBRATION, CONFUSION, TrainReport, report_lines
from worker.training.spec import train_command

if TYPE_CHECKING:
    from worker.training.base_model import BaseModel


_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def model_card(report: TrainReport) -> str:
    """Markdown with a YAML head, as the Hub reads it. Names files and folders of this machine without their paths."""
    spec = report.spec
    way = "All weights were trained" if spec.full else "The encoder is frozen and the last layer was fitted"
    learned = f"one of {len(report.classes)} classes" if report.classes else "a number"
    figures = "\n".join(f"| {name} | {value} |" for name, value in report_lines(report))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"""---
{_head(report)}
---

# {_last(spec.output_uri)}

Predicts {learned} for a text, {_learned_from(report)} ({report.rows:,} rows).
{way}; the base model is `{_public(_base_model(report))}`.

| | |
|---|---|
{figures}

{_measured_on(report)}

![Confusion matrix]({CONFUSION}) ![Calibration]({CALIBRATION})

## How it was trained

```bash
{shlex.join(_without_paths(train_command(spec)))}
```

With {versions}.

## How to use it

```bash
{run_command(report, _model(spec.output_uri))}
```
"""


def run_command(report: TrainReport, model: str, input_uri: str = "./shards") -> str:
    """The command that scores files with the classifier, as `model` names it."""
    return (
        f"producer run --input {shlex.quote(input_uri)}{_text(report)}{_length(report)} --model {shlex.quote(model)} "
        f"--output ./kept{_filter(report)}"
    )


def next_step(report: TrainReport) -> str:
    """Where the classifier is, and a command that scores the labelled files with it, or others if they have its columns."""
    uri, data = report.spec.output_uri, report.spec.data_uri
    added = ("score", "label") if report.classes else ("score",)
    named = "predicted=" if data and report.source.label_column in added else ""
    command = run_command(report, named + uri.removeprefix("hf://"), data or "./shards")
    return f"The classifier is in {uri}. To score files with it:\n  {command}"


def _head(report: TrainReport) -> str:
    """Without a license: that of the base model is not known here."""
    base, _ = with_revision(_base_model(report))
    on_hub = base == HUB_NAME or (_HUB_NAME.fullmatch(base) is not None and not Path(base).exists())
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        base_model=base if on_hub else None,
        tags=["shardsift"],
    )
    return str(data.to_yaml())


def _base_model(report: TrainReport) -> str:
    """What the demo's encoder is called on the Hub; any other base model as it was given."""
    base = report.spec.base_model
    return HUB_NAME if base == DEMO_ENCODER else base


def _learned_from(report: TrainReport) -> str:
    source = report.source
    if source.teacher is None:
        return f"from the column `{source.label_column}` of `{_disclosed(source.shown)}`"
    return (
        f"from the column `{source.label_column}` of `{_disclosed(source.shown)}`, which holds what "
        f"`{source.teacher.model}` said of it in the run `{source.teacher.run_id}`"
    )


def _text(report: TrainReport) -> str:
    """The options that put the text together as it was learned."""
    column = report.source.text.text_column
    on_one_line = column.replace("\n", "\\n").replace("\t", "\\t")
    return "" if column == DEFAULT_TEXT_COLUMN else f" --text-column {shlex.quote(on_one_line)}"


def _length(report: TrainReport) -> str:
    """The option that reads as much of a text as was learned and measured."""
    most = report.spec.max_tokens
    return "" if most is None else f" --max-tokens {most}"


def _model(output_uri: str) -> str:
    return output_uri.removeprefix("hf://").rstrip("/") if output_uri.startswith("hf://") else _last(output_uri)


def _measured_on(report: TrainReport) -> str:
    if not report.spec.full:
        if report.spec.validation_uri is None:
            return "The figures are of a head that was fitted without the held-out rows. The saved one was fitted to all rows."
        return "The figures are of rows that the head was not fitted to."
    return (
        "No weight was fitted to the held-out rows. They chose the checkpoint that was kept, so the figures are slightly "
        "better than on rows that had no part in it."
    )


def _filter(report: TrainReport) -> str:
    return " --keep-all" if report.classes else f" --min-score {report.threshold:g}"


def _without_paths(command: list[str]) -> list[str]:
    return [_disclosed(part) if part.startswith(("/", "~", "./", "../")) or "://" in part else part for part in command]


def _disclosed(uri: str) -> str:
    """A Hub URI unchanged; of any other path the last part. Without secrets: the URL of a file may be signed."""
    shown = redacted(uri)
    return shown if uri.startswith("hf://") else _last(shown)


def _public(name: str) -> str:
    return _last(name) if name.startswith(("/", "~", ".")) else name


def _last(uri: str) -> str:
    return PurePosixPath(uri).name


# Write the files of a trained model.


def save_model(
    base: "BaseModel", output: ModelOutput, write_more: Callable[[Path], None], place: TrainPlace, *, training: str
) -> None:
    """Write to a partial folder, then make it the output. `write_more` adds files to the folder that it gets."""
    from transformers import AutoTokenizer

    partial = output.partial(place.folder)
    try:
        remove_partial(output, place)
        partial.mkdir(parents=True)
        with quiet_transformers():
            base.model.save_pretrained(partial)
            tokenizer = AutoTokenizer.from_pretrained(
                base.name, revision=base.revision
            )  # a new one: ours has truncation set
            tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
            tokenizer.save_pretrained(partial)
        write_more(partial)
        _let_others_read(partial)
        output.store(partial, training)
    except OSError as error:
        raise UsageError(f"The classifier cannot be saved as {output.name}: {error.strerror or error}.") from error


def remove_partial(output: ModelOutput, place: TrainPlace) -> None:
    """What a process left that was killed after the last step."""
    shutil.rmtree(output.partial(place.folder), ignore_errors=True)


def _let_others_read(folder: Path) -> None:
    """Make the files readable for others, within the umask.

    safetensors makes its files readable for their owner only, and a worker may run as another user.
    """
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)
