"""Write the command that reproduces the rows of a run, for its card. It pins revisions and names no local paths."""

import shlex
from collections.abc import Iterator

from shardsift.fleet.process.keywords import keywords_of
from shardsift.fleet.process.wording import shown_bytes
from shardsift.fleet.run.scoring import LABELS_FILE, Scoring
from shardsift.fleet.run.spec import RunSpec, disclosed_inputs, disclosed_model, disclosed_spec
from shardsift.producer.planning.choice import NO_LISTS
from shardsift.producer.planning.options import RefilterOptions, RunOptions

_BREAK = " \\\n  "  # between options
_REFILTER = "\nproducer refilter"
# Options that are written from the spec, or that have no effect on the rows.
_NOT_AS_GIVEN = {"crawl", "input", "model", "target_file_size", "output", "replace", "public", "evidence", "drop_list"}


def command_again(options: RunOptions, spec: RunSpec) -> str:
    """Write the `producer run` command that reproduces a run. Reduces a local path to its last part."""
    return _joined(
        "producer run",
        *_inputs(spec),
        *map(_model, spec.scorings),
        *_given(options),
        *_lists(spec),
        *([_merged(spec)] if spec.target_file_bytes else []),
        _line("output", "./again"),
    )


def command_with_other_rows(command: str | None, options: RefilterOptions, spec: RunSpec) -> str | None:
    """Append a `producer refilter` command with these options to `command`, which reproduces the scored run.

    Replaces an earlier `producer refilter` in `command`. Returns None if `command` is None, because then the scored run was
    published without its command.
    """
    if command is None:
        return None
    lists = _lists(spec) or [_line("drop_list", NO_LISTS)] * ("--drop-list" in command)
    chosen = [*_given(options), *lists, _merged(spec), _line("output", "./again-2")]
    return command.partition(_REFILTER)[0] + _joined(f"{_REFILTER} ./again", *_inputs(spec), *chosen)


def _joined(*lines: str) -> str:
    return _BREAK.join(lines)


def _inputs(spec: RunSpec) -> list[str]:
    return [_line("input", uri) for uri in disclosed_inputs(spec)]


def _lists(spec: RunSpec) -> list[str]:
    return [_line("drop_list", one.option) for one in disclosed_spec(spec).drop_lists]


def _merged(spec: RunSpec) -> str:
    return _line("target_file_size", shown_bytes(spec.target_file_bytes) if spec.target_file_bytes else "none")


def _given(options: RunOptions | RefilterOptions) -> Iterator[str]:
    for keyword, (field, _) in keywords_of(type(options)).items():
        value = getattr(options, field)
        if keyword in _NOT_AS_GIVEN or value == getattr(type(options), field):
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
