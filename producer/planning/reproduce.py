"""The command that makes the rows of a run again, for its card: with the revisions that were found, and without paths."""

import shlex
from collections.abc import Iterable, Iterator

from shardsift.fleet.process.keywords import keywords_of
from shardsift.fleet.process.wording import shown_bytes
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, disclosed_inputs, disclosed_model
from shardsift.producer.planning.options import Choice, RunOptions
from shardsift.producer.publishing.card_text import LABELS_FILE

_BREAK = " \\\n  "  # between options
_FIELDS = keywords_of(RunOptions)
_CHOICE = keywords_of(Choice).keys()
_BY_SPEC = {"crawl", "input", "model", "target_file_size", "output"}
_OF_NO_ROW = {"public"}


def command_again(options: RunOptions, spec: RunSpec) -> str:
    """Folders are named by their last part, as everywhere in what is published."""
    scored = [name for name in _FIELDS if name not in {*_CHOICE, *_BY_SPEC, *_OF_NO_ROW}]
    return _joined([*map(_model, spec.scorings), *_given(options, scored)], options, spec)


def command_with_other_rows(command: str | None, options: RunOptions, spec: RunSpec) -> str | None:
    """The command of an earlier run, with these options about rows to keep. None if an earlier release published the run."""
    if command is None:
        return None
    replaced = {_option(name) for name in (*_CHOICE, *_BY_SPEC - {"model"})}
    kept = [line for line in command.split(_BREAK)[1:] if line.split()[0] not in replaced]
    return _joined(kept, options, spec)


def _joined(scored: list[str], options: RunOptions, spec: RunSpec) -> str:
    inputs = [_line("input", uri) for uri in disclosed_inputs(spec)]
    size = spec.target_file_bytes
    merged = [_line("target_file_size", shown_bytes(size))] if size else []
    chosen = [_line("where", "false")] if spec.publishes_only_scores else _given(options, _CHOICE)
    return _BREAK.join(["producer run", *inputs, *scored, *merged, *chosen, _line("output", "./again")])


def _given(options: RunOptions, keywords: Iterable[str]) -> Iterator[str]:
    for keyword in keywords:
        field, _ = _FIELDS[keyword]
        value = getattr(options, field)
        if value == getattr(RunOptions, field):
            continue
        if field == "labels":
            is_in_file = any("," in label or label.startswith("@") for label in value)
            value = f"@{LABELS_FILE}" if is_in_file else ",".join(value)
        for one in value if isinstance(value, tuple) else [value]:
            yield _option(keyword) if one is True else _line(keyword, one)


def _model(scoring: Scoring) -> str:
    model, column = scoring.model, scoring.score_column
    name = disclosed_model(model)
    found = (name if "/" in name else f"./{name}") if model.is_folder else f"{name}@{model.revision}"
    return _line("model", found if column == "score" else f"{column.removesuffix('_score')}={found}")


def _line(keyword: str, value: object) -> str:
    return f"{_option(keyword)} {shlex.quote(str(value))}"


def _option(keyword: str) -> str:
    return f"--{keyword.replace('_', '-')}"
