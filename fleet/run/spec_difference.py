"""Describe the differences between two runs in terms of their options."""

from collections.abc import Callable, Iterator
from dataclasses import fields

from fleet.run.model import Model, is_folder_revision
from fleet.run.scoring import Scoring, ZeroShot
from fleet.run.spec import RunSpec

_OPTIONS = {
    "input_uris": "--input",
    "crawl": "--crawl",
    "output_uri": "--output",
    "row_columns": "--row-columns",
    "only_columns": "--columns",
    "limit_rows": "--limit-rows",
    "max_bad_rows": "--max-bad-rows",
    "window_rows": "the rows of a window",
    "window_bytes": "the bytes of a window",
}
_SCORING_OPTIONS = {
    "dtype": "--dtype",
    "text_columns": "--text-column",
    "text_pair_column": "--text-pair-column",
    "text_template": "--text-column, a template",
    "score_column": "the score's column",
    "function_to_apply": "--function-to-apply",
    "int_score": "int_score",
    "max_tokens": "--max-tokens",
    "passages": "--passages",
    "pool": "the pool of --passages",
}
_ZERO_SHOT_OPTIONS = {
    "labels": "--labels",
    "hypothesis_template": "--hypothesis-template",
    "multi_label": "--multi-label",
}


def differences(there: RunSpec, here: RunSpec) -> list[str]:
    """A clause for each option that differs, such as `--min-score or --where: score >= 3 there, score >= 4 here`."""
    clauses = (
        clause
        for field in fields(RunSpec)
        if getattr(there, field.name) != getattr(here, field.name)
        for clause in _CLAUSES.get(field.name, _option)(field.name, there, here)
    )
    return list(dict.fromkeys(clauses))  # several models often differ in the same way


def _option(name: str, there: RunSpec, here: RunSpec) -> Iterator[str]:
    yield _clause(_OPTIONS.get(name, name), _shown(getattr(there, name)), _shown(getattr(here, name)))


def _revision(_name: str, there: RunSpec, here: RunSpec) -> Iterator[str]:
    """Reported only if the inputs are the same; otherwise the revisions always differ."""
    if there.input_uris != here.input_uris:
        return
    if is_folder_revision(there.input_revision) and is_folder_revision(here.input_revision):
        yield "the input: files were changed, added or removed since"
    else:
        yield _clause("the input's revision", there.input_revision, here.input_revision)


def _columns(_name: str, there: RunSpec, here: RunSpec) -> Iterator[str]:
    before, now = dict(there.columns), dict(here.columns)
    names = [name for name in (before | now) if before.get(name) != now.get(name)]
    for name in names:
        yield _clause(f'the column "{name}"', before.get(name, "missing"), now.get(name, "missing"))
    if not names:
        yield "the order of the columns"


def _scorings(_name: str, there: RunSpec, here: RunSpec) -> Iterator[str]:
    if len(there.scorings) != len(here.scorings):
        yield _clause("the number of scorings", str(len(there.scorings)), str(len(here.scorings)))
        return
    for before, now in zip(there.scorings, here.scorings, strict=True):
        yield from _models(before.model, now.model)
        yield from _zero_shot(before.zero_shot, now.zero_shot)
        if before.scores_from != now.scores_from:
            yield _clause("the scores", _origin(before), _origin(now))
        for name, option in _SCORING_OPTIONS.items():
            if getattr(before, name) != getattr(now, name):
                yield _clause(option, _shown(getattr(before, name)), _shown(getattr(now, name)))


def _models(there: Model, here: Model) -> Iterator[str]:
    if there.scorer != here.scorer:
        yield _clause("--scorer", there.scorer, here.scorer)
    if there.name != here.name:
        yield _clause("--model", there.name, here.name)
    elif there.revision != here.revision:
        yield _clause("the model's revision", there.revision, here.revision)
    elif there.labels != here.labels:
        yield _clause("the model's labels", ", ".join(there.labels), ", ".join(here.labels))


def _zero_shot(there: ZeroShot | None, here: ZeroShot | None) -> Iterator[str]:
    if there is None or here is None:
        if there != here:
            yield _clause("--labels", *(_shown(one and one.labels) for one in (there, here)))
        return
    for name, option in _ZERO_SHOT_OPTIONS.items():
        if getattr(there, name) != getattr(here, name):
            yield _clause(option, _shown(getattr(there, name)), _shown(getattr(here, name)))


def _origin(scoring: Scoring) -> str:
    return f"from {scoring.scores_from.name}" if scoring.scores_from else "from the model"


def _filter(_name: str, there: RunSpec, here: RunSpec) -> Iterator[str]:
    yield _clause("--min-score or --where", there.where or "every row is kept", here.where or "every row is kept")


_CLAUSES: dict[str, Callable[[str, RunSpec, RunSpec], Iterator[str]]] = {
    "input_revision": _revision,
    "columns": _columns,
    "scorings": _scorings,
    "where": _filter,
}


def _clause(what: str, there: str, here: str) -> str:
    return f"{what}: {there} there, {here} here"


def _shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
