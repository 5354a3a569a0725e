"""All trainings of a fleet, and which of them need a person."""

from collections.abc import Iterable, Iterator

from fleet.errors import NewerVersion
from fleet.ledger import Ledger
from fleet.training.task import FleetTraining
from producer.status import Present
from producer.training.report import needs_a_person, what_next
from producer.training.status import TrainingStatus, training_status


def training_statuses(ledger: Ledger[FleetTraining], present: Present | None = None) -> Iterator[TrainingStatus]:
    """Newest first, without those that another version enqueued and this one cannot read. Looks at no output."""
    for training_id in ledger.run_ids():
        try:
            yield training_status(ledger, training_id, present=present, looks=False)
        except NewerVersion:
            continue


def training_attention(statuses: Iterable[TrainingStatus]) -> Iterator[str]:
    for status in statuses:
        if needs_a_person(status):
            yield f"{status.training_id} is {status.word}: {next(iter(what_next(status)))}"
