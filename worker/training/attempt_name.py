"""How the folder of an attempt at a training of the fleet is called, so that attempts know whose checkpoints they may use.

attempt-<training>-<data>-<number>-<nonce>: digits of the training's id, of a digest of its data, and the fencing token.
"""

import hashlib
import re
from dataclasses import dataclass

_FORM = re.compile(r"attempt-([0-9a-f]{12})-([0-9a-f]{8})-(\d{8})-([0-9a-f]+)")


@dataclass(frozen=True, kw_only=True)
class AttemptName:
    """`number` grows with each attempt, unless Redis has lost the training."""

    training: str
    data: str
    number: int
    nonce: str

    @staticmethod
    def of(training_id: str, *, data_identity: str, token: str) -> "AttemptName":
        number, _, nonce = token.partition("-")
        data = hashlib.sha256(data_identity.encode()).hexdigest()[:8]
        return AttemptName(training=digits_of(training_id), data=data, number=int(number), nonce=nonce)

    @staticmethod
    def read(name: str) -> "AttemptName | None":
        """None if that is the name of anything else."""
        if found := _FORM.fullmatch(name):
            training, data, number, nonce = found.groups()
            return AttemptName(training=training, data=data, number=int(number), nonce=nonce)
        return None

    def __str__(self) -> str:
        return f"attempt-{self.training}-{self.data}-{self.number:08d}-{self.nonce}"

    def may_use(self, other: "AttemptName") -> bool:
        """Whether the other one is of the same training on the same data."""
        return (self.training, self.data) == (other.training, other.data)


def digits_of(training_id: str) -> str:
    return training_id.rpartition(".")[2]
