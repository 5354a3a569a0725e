"""Find the kinds of scorers that are installed.

A kind is a `ScorerKind`; users name it with `--scorer`. Packages add kinds by entry points of the group
`shardsift.scorers`. A kind has two halves. `resolve` is light: producers call it, and it must not import torch.
`loader` names a function that only a worker's scoring process imports.

    [project.entry-points."shardsift.scorers"]
    word-count = "word_count:KIND"
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from shardsift.fleet.errors import UsageError, require
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model

_GROUP = "shardsift.scorers"
STORED_SCORES = "stored-scores"
_OWN = {
    SEQUENCE_CLASSIFIER: "shardsift.fleet.scorers.sequence_classifier:KIND",
    STORED_SCORES: "shardsift.fleet.scorers.stored_scores:KIND",
}


@dataclass(frozen=True, kw_only=True)
class ScorerKind:
    """A kind of scorer: how to find a model, and how to load it.

    `resolve(name, revision)` returns the model at one revision, with a label for each output. `revision` is None if the
    user named none. `resolve` raises UsageError if there is no such model.

    `loader` is `package.module:function`. The function takes the model and the worker's Settings, and returns a
    `shardsift.scorers.Scorer`. `requires` lists modules that the function imports and that a light installation may
    lack. `install` is what to pip install for them.

    `uses_gpu` says whether the scorer uses a GPU. If any scorer of a run does, `producer run` starts one worker per GPU, or
    one on the CPU if there is no GPU. Otherwise it starts one per CPU core, but no more than there are shards.
    """

    resolve: Callable[[str, str | None], Model]
    loader: str
    requires: tuple[str, ...] = ()
    install: str = ""
    uses_gpu: bool = True

    def load(self, model: Model, settings: Any) -> Any:
        module, _, function = self.loader.partition(":")
        return getattr(import_module(module), function)(model, settings)


def scorer_kind(scorer: str) -> ScorerKind:
    """Return the installed kind of scorer with this name. Raises UsageError if there is none, or if its import fails."""
    found = {**_added(), **{name: EntryPoint(name, value, _GROUP) for name, value in _OWN.items()}}
    if scorer not in found:
        raise UsageError(
            f"There is no scorer {scorer!r} here. Installed: {', '.join(sorted(found)) or 'none'}. "
            "Install its package for the producer and for the workers."
        )
    try:
        kind = found[scorer].load()
    except Exception as error:  # another package's module may fail in any way
        raise UsageError(f"The scorer {scorer!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(kind, ScorerKind):
        raise UsageError(f"The scorer {scorer!r} is {found[scorer].value}, which is not a ScorerKind.")
    return kind


def added_kinds() -> list[str]:
    return sorted(_added())


def _added() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP) if point.name not in _OWN}


def check_requirements(kinds: Iterable[ScorerKind]) -> None:
    """Raise UsageError if this machine lacks a module that one of these kinds requires."""
    for kind in kinds:
        require(kind.requires, kind.install, "The scorer")


def resolve_model(scorer: str, name: str, revision: str | None) -> Model:
    """Find a model for the scorer kind `scorer`, and pin its revision. Raises UsageError if there is no such kind or model."""
    return replace(scorer_kind(scorer).resolve(name, revision), scorer=scorer)


def resolve_models(scorer: str, named: Iterable[tuple[str, str | None]]) -> tuple[Model, ...]:
    return tuple(resolve_model(scorer, name, revision) for name, revision in named)
