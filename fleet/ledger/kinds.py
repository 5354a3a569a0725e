"""What the ledger has entries of: runs, and trainings. They differ in their specs and their keys, and share every script.

A training is an entry with a single shard, which stands for the whole work.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol

from typing_extensions import TypeVar  # with a default, which Python 3.11 has not

from fleet.spec import RunSpec
from fleet.training.task import FleetTraining


class Spec(Protocol):
    """What an entry of the ledger is about. Equal specs have equal ids."""

    @property
    def run_id(self) -> str: ...

    @property
    def queue(self) -> str:
        """Of the workers that can do it."""

    def to_json(self) -> bytes: ...


S = TypeVar("S", bound=Spec, default=RunSpec)


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[S]):
    """`noun` is what people and keys call an entry; `from_json` reads what the spec's `to_json` has written."""

    noun: str
    from_json: Callable[[bytes | str], S]
    enqueued_by: str  # the command that writes an entry again after Redis has lost it


RUN = Kind(noun="run", from_json=RunSpec.from_json, enqueued_by="producer enqueue")
TRAINING = Kind(noun="training", from_json=FleetTraining.from_json, enqueued_by="producer train")


def shown_work(noun: str, run_id: str, shard: str) -> str:
    """What a person reads of a shard, or of a training, whose one shard has no name of its own."""
    return f"Shard {shard} of {run_id}" if noun == RUN.noun else f"Training {run_id}"
