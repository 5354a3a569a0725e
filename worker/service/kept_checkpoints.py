"""Which checkpoints of trainings stay on this machine's own disk, in the scratch folder, and which are deleted."""

from pathlib import Path

from fleet.ledger import Ledger
from fleet.training.task import WHOLE, FleetTraining
from worker.training.attempt_checkpoints import drop_local
from worker.training.attempt_name import digits_of

_KEPT_SECONDS = 14 * 86_400.0  # docs/training.md says so


def drop_unneeded(ledger: Ledger[FleetTraining], scratch: Path | None) -> None:
    """Delete those that no attempt will go on from. Another machine may have finished the training.

    Those of a failed or cancelled training, and of one that the ledger does not have, are kept for a while: it may be retried.
    """
    ids = {digits_of(training_id): training_id for training_id in ledger.run_ids()}

    def is_needed(digits: str, unused_seconds: float) -> bool:
        training_id = ids.get(digits)
        if training_id and ledger.recorded(training_id, WHOLE):
            return False
        goes_on = training_id and not ledger.is_cancelled(training_id) and not ledger.failures(training_id)
        return bool(goes_on) or unused_seconds < _KEPT_SECONDS

    drop_local(scratch, is_needed)
