"""Find the output of a run that is named by its id, in the fleet's ledger."""

from dataclasses import replace

from fleet.errors import UsageError
from fleet.target import is_place
from worker.training.spec import TrainSpec


def with_run_found(spec: TrainSpec) -> TrainSpec:
    """The spec with the output of the run whose labels it learns, if that is named by its id.

    Raises UsageError if the ledger has no such run, or it is not published yet.
    """
    if spec.label_with is None or is_place(spec.label_with):
        return spec
    return replace(spec, label_with=_output_of(spec.label_with))


def _output_of(target: str) -> str:
    from fleet.ledger import Ledger
    from fleet.settings import read_settings

    settings = read_settings()
    if settings.redis_url is None:
        raise UsageError(
            f"There is no folder {target!r} here, and run ids are known to the fleet's Redis: set REDIS_URL, or name the "
            "output of the run."
        )
    ledger = Ledger.connect(settings)
    try:
        spec = ledger.spec(target)
        if ledger.publication(target) is None:
            raise UsageError(f"Run {target} is not published yet: producer status {target}")
        return spec.output_uri
    finally:
        ledger.redis.close()
