"""The model card: what was trained on what, with which figures and which command."""

import re
import shlex
from pathlib import Path, PurePosixPath

from huggingface_hub import ModelCardData

from fleet.defaults import DEFAULT_TEXT_COLUMN
from fleet.model import with_revision
from fleet.redact import redacted
from worker.training.demo_encoder import DEMO_ENCODER, HUB_NAME
from worker.training.pictures import CALIBRATION, CONFUSION
from worker.training.report import TrainReport, report_lines
from worker.training.spec import train_command

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
