"""Load several models onto one device, one beside the other. Knows no queue."""

from collections.abc import Iterator, Sequence
from typing import Any

from fleet.process.settings import Settings
from fleet.run.model import Model
from fleet.run.scorers import load_scorer
from worker.scoring import NoRoom, Scorer


def loaded_beside(models: Sequence[Model], settings: Settings) -> Iterator[Scorer[Any]]:
    """The scorer of each model, as soon as it is loaded. Raises NoRoom if one does not fit beside those before it."""
    for number, model in enumerate(models):
        try:
            yield load_scorer(model, settings.for_model(model))
        except NoRoom as error:
            raise _no_room_beside(models[:number], error) from error


def _no_room_beside(models: Sequence[Model], error: NoRoom) -> NoRoom:
    if not models:
        return error
    names = " and ".join(model.name for model in models)
    return NoRoom(f"{error} {names} is loaded there already: use a larger device, or a run for each model.")
