"""Write the command that reproduces the rows of a run, for its card. It pins revisions and names no local paths."""

import shlex
from collections.abc import Iterable, Iterator

from shardsift.fleet.process.keywords import keywords_of
from shardsift.fleet.process.wording import shown_bytes
from shardsift.fleet.run.scoring import LABELS_FILE, Scoring
from shardsift.fleet.run.spec import RunSpec, disclosed_inputs, disclosed_model
from shardsift.producer.planning.options import Choice, Condition, RefilterOptions, RunOptions

_BREAK = " \\\n  "  # between options
_REFILTER = "\nproducer refilter"
_ROWS = [*keywords_of(Condition), "by"]  # the options that choose rows, as far as `run` has them
# Options that are written from the spec, or that have no effect on the rows.
_NOT_AS_GIVEN = {"crawl", "input", "model", "target_file_size", "output", "public", "evidence"}


def command_again(options: RunOptions, spec: RunSpec) -> str:
    """Write the command of a run. A local path is reduced to its last part."""
    scored = [name for name in keywords_of(RunOptions) if name not in {*_ROWS, *_NOT_AS_GIVEN}]
    return _run([*map(_model, spec.scorings), *_given(options, scored)], options, spec)


def command_with_other_rows(command: str | None, options: RefilterOptions, spec: RunSpec) -> str | None:
    """Replace the choice of rows in an earlier run's command. None if that run was published without its command.

    If `producer run` lacks one of the options, writes two commands: a run for the scores, then a `producer refilter`.
    """
    if command is None:
        return None
    replaced = {_option(name) for name in (*_ROWS, *_NOT_AS_GIVEN - {"model"})}
    lines = command.partition(_REFILTER)[0].split(_BREAK)[1:]
    scored = [line for line in lines if line.split()[0] not in replaced]
    if not (options.buckets or options.score_columns or options.within):
        return _run(scored, options, spec)
    all_scores = _joined(
        "producer run", *_inputs(spec), *scored, _line("where", "false"), _line("output", "./again-scores")
    )
    chosen = _given(options, keywords_of(Choice))
    return all_scores + _joined(
        f"{_REFILTER} ./again-scores", *_inputs(spec), *_merged(spec), *chosen, _line("output", "./again")
    )


def _run(scored: list[str], options: Condition, spec: RunSpec) -> str:
    chosen = [_line("where", "false")] if spec.publishes_only_scores else _given(options, _ROWS)
    return _joined("producer run", *_inputs(spec), *scored, *_merged(spec), *chosen, _line("output", "./again"))


def _joined(*lines: str) -> str:
    return _BREAK.join(lines)


def _inputs(spec: RunSpec) -> list[str]:
    return [_line("input", uri) for uri in disclosed_inputs(spec)]


def _merged(spec: RunSpec) -> list[str]:
    size = spec.target_file_bytes
    return [_line("target_file_size", shown_bytes(size))] if size else []


def _given(options: Condition, keywords: Iterable[str]) -> Iterator[str]:
    fields = keywords_of(type(options))
    for keyword in keywords:
        field, _ = fields[keyword]
        value = getattr(options, field)
        if value == getattr(type(options), field):
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
