"""What the ledger records of a training that is done."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from fleet.receipt import Provenance
from fleet.training.model import TrainedModel


@dataclass(frozen=True, kw_only=True)
class TrainReceipt:
    output_uri: str
    size_bytes: int
    model: TrainedModel
    provenance: Provenance

    def to_json(self) -> bytes:
        """With the totals that `lua/prelude.lua` adds up for every entry of the ledger. Equal receipts give equal bytes."""
        tallies: dict[str, Any] = {
            "rows_in": self.model.rows,
            "rows_kept": self.model.rows,
            "rows_dropped": 0,
            "rows_errored": 0,
            "errors": {},
            "scorings": [],
            "data": {"size_bytes": self.size_bytes},
            "scores": {"size_bytes": 0},
        }
        return json.dumps(_RECEIPT.dump_python(self, mode="json") | tallies).encode()

    @staticmethod
    def from_json(content: str | bytes) -> "TrainReceipt":
        """Raises pydantic's ValidationError for anything else."""
        return _RECEIPT.validate_json(content, strict=False)


_RECEIPT = TypeAdapter(TrainReceipt)
