"""The kinds of scorers that are installed.

A kind is a `ScorerKind`, and its name is what `--scorer` takes. Packages add theirs by entry points of the group
`shardsift.scorers`. A kind has two halves. `resolve` is light: producers call it, and it must import no torch. `loader` names a
function that only a worker's scoring process imports.

    [project.entry-points."shardsift.scorers"]
    word-count = "word_count:KIND"
"""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model

_GROUP = "shardsift.scorers"
STORED_SCORES = "stored-scores"
_OWN = {
    SEQUENCE_CLASSIFIER: "shardsift.fleet.scorers.sequence_classifier:KIND",
    STORED_SCORES: "shardsift.fleet.scorers.stored_scores:KIND",
}


@dataclass(frozen=True, kw_only=True)
class ScorerKind:
    """A way to find and load models.

    `resolve(name, revision)` returns the model of that name at one revision, with a label for each output; `revision` is None
    if the user named none. It raises UsageError if there is no such model. `loader` is `package.module:function`; the function
    is called with the model and the worker's Settings, and returns a `shardsift.scorers.Scorer`. `requires` are modules that
    it imports and that a light installation may lack; `install` is what pip installs them with. On one machine, `producer run`
    starts a worker on each GPU, or if the kind does not use GPUs, one on each CPU core.
    """

    resolve: Callable[[str, str | None], Model]
    loader: str
    requires: tuple[str, ...] = ()
    install: str = ""
    uses_gpu: bool = True

    def load(self, model: Model, settings: Any) -> Any:
        """Import the loader, and return the scorer that it loads. Raises what the loader raises."""
        module, _, function = self.loader.partition(":")
        return getattr(import_module(module), function)(model, settings)


def scorer_kind(scorer: str) -> ScorerKind:
    """Find the installed kind of that name. Raises UsageError if there is none, or it cannot be imported."""
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
    """The names of the kinds that other packages add."""
    return sorted(_added())


def _added() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP) if point.name not in _OWN}


def check_requirements(kinds: Iterable[ScorerKind]) -> None:
    """Raise UsageError if this machine lacks a module that a kind's loader imports."""
    for kind in kinds:
        if missing := [module for module in kind.requires if find_spec(module) is None]:
            raise UsageError(
                f"This machine has no {' and no '.join(missing)}. "
                f"Install it: pip install {shlex.quote(kind.install or ' '.join(missing))}."
            )


def resolve_model(scorer: str, name: str, revision: str | None) -> Model:
    """Find the model of that name for a kind of scorer, at one revision. Raises UsageError if there is none."""
    return replace(scorer_kind(scorer).resolve(name, revision), scorer=scorer)


def resolve_models(scorer: str, named: Iterable[tuple[str, str | None]]) -> tuple[Model, ...]:
    """Find several models, named with their revisions, as `resolve_model` does."""
    return tuple(resolve_model(scorer, name, revision) for name, revision in named)
