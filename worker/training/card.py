"""Write the model card: what was trained on what, with which figures and which command."""

import re
import shlex
from pathlib import Path, PurePosixPath

from huggingface_hub import ModelCardData

from fleet.process.redact import redacted
from fleet.run.choices import DEFAULT_TEXT_COLUMN
from fleet.run.model import with_revision
from worker.training.options import DEMO_ENCODER, DEMO_ENCODER_ON_HUB
from worker.training.report import CONFUSION, TrainReport, draw_confusion, report_lines

_HUB = "hf://"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def write_card(folder: Path, report: TrainReport) -> None:
    draw_confusion(folder / CONFUSION, report.held_out)
    (folder / "README.md").write_text(model_card(report))


def model_card(report: TrainReport) -> str:
    """Markdown with a YAML head, as the Hub reads it. Names files and folders of this machine without their paths."""
    options = report.options
    way = "All weights were trained" if options.full else "The encoder is frozen and the last layer was fitted"
    learned = f"one of {len(report.classes)} classes" if report.classes else "a number"
    figures = "\n".join(f"| {name} | {value} |" for name, value in report_lines(report))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return f"""---
{_head(report)}
---

# {_last(options.output)}

Predicts {learned} for a text, {_learned_from(report)} ({report.rows:,} rows).
{way}; the base model is `{_without_path(_base_model(report))}`.

| | |
|---|---|
{figures}

The figures are of the held-out rows. docs/training.md of shardsift says which model was measured on them.

![Confusion matrix]({CONFUSION})

## How it was trained

```bash
{shlex.join(map(_without_path, options.command))}
```

With {versions}.

## How to use it

```bash
{_run_command(report, _without_path(options.output).removeprefix(_HUB).rstrip("/"))}
```
"""


def next_step(report: TrainReport) -> str:
    """Where the classifier is, and a command that scores files with it."""
    uri = report.options.output
    return f"The classifier is in {uri}. To score files with it:\n  {_run_command(report, uri.removeprefix(_HUB))}"


def _run_command(report: TrainReport, model: str) -> str:
    """The command that scores files with the classifier, reading as much of each text as was learned."""
    command = ["producer", "run", "--input", "./shards"]
    if report.source.text_column != DEFAULT_TEXT_COLUMN:
        command += ["--text-column", report.source.text_column]
    if report.options.max_tokens is not None:
        command += ["--max-tokens", str(report.options.max_tokens)]
    command += ["--model", model, "--output", "./kept"]
    command += ["--keep-all"] if report.classes else ["--min-score", f"{report.threshold:g}"]
    return shlex.join(command)


def _head(report: TrainReport) -> str:
    """Without a license: that of the base model is not known here."""
    base, _ = with_revision(_base_model(report))
    on_hub = base == DEMO_ENCODER_ON_HUB or (_HUB_NAME.fullmatch(base) is not None and not Path(base).exists())
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        base_model=base if on_hub else None,
        tags=["shardsift"],
    )
    return str(data.to_yaml())


def _base_model(report: TrainReport) -> str:
    """The name of the demo's encoder on the Hub; any other base model as it was given."""
    base = report.options.base_model
    return DEMO_ENCODER_ON_HUB if base == DEMO_ENCODER else base


def _learned_from(report: TrainReport) -> str:
    source = report.source
    labels = f"the column `{source.label_column}` of `{_without_path(source.shown)}`"
    return f"from {labels}, the labels of `{source.teacher}`" if source.teacher else f"from {labels}"


def _without_path(part: str) -> str:
    """A Hub URI or name unchanged; of a path the last part. Without secrets: the URL of a file may be signed."""
    if part.startswith(_HUB):
        return redacted(part)
    is_path = part.startswith(("/", "~", "./", "../")) or "://" in part
    return _last(redacted(part)) if is_path else part


def _last(uri: str) -> str:
    return PurePosixPath(uri).name
