"""The stand-in scorer as a kind, `--scorer stand-in`. It is found like a user's own, by `stand_in-1.0.dist-info` here."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardsift.fleet.run.model import Model
from shardsift.fleet.scorers.kinds import ScorerKind
from shardsift.fleet.scorers.sequence_classifier import resolve_classifier


def load_stand_in(model: Model, settings: Any) -> Any:
    """Load the stand-in with this process's options. See `support.injected_faults.InjectedFaults.use_stand_in`."""
    from injected import stand_in_orders
    from stand_in import StandInScorer

    from shardsift.worker.scoring import ModelError

    options, on_load = stand_in_orders()
    time.sleep(options["load_seconds"])
    here = Path(options["device"]).read_text()
    if settings.device not in ("auto", here):
        raise ModelError(f"There is no device {settings.device}, by order")
    first = settings.first_dtypes.get(model.name)
    scorer = StandInScorer(here, Path(options["work_log"]), options["rows_a_batch"], options["seconds_a_batch"])
    scorer.info = replace(scorer.info, dtype=number_format(first))
    on_load()
    return scorer


def number_format(first: str | None) -> str:
    """Return `first` if the variable STAND_IN_FORMATS lists it, otherwise the first format listed there."""
    able = os.environ.get("STAND_IN_FORMATS", "float32").split(",")
    return first if first in able else able[0]


KIND = ScorerKind(resolve=resolve_classifier, loader="stand_in_kind:load_stand_in")
