"""The scores of a shard's finished windows, as bytes: a later attempt at the shard does not score those windows again.

Where the bytes are stored is not known here; see `worker/service/checkpoint_store.py`.
"""

import json
from collections.abc import Callable, Mapping

import numpy as np

from worker.scoring import Scores
from worker.shard.side_scores import SideScores


class Checkpoint:
    """The windows that earlier attempts at a shard have scored, and a place for those of this one.

    `found` maps the first row of a window to its packed scores. `store(first_row, content)` stores one and must not raise.
    `side` has the scores of a shard that was complete once and whose output was lost in part.
    """

    def __init__(
        self, found: Mapping[int, bytes], store: Callable[[int, bytes], None], side: SideScores | None = None
    ) -> None:
        self._found = found
        self._store = store
        self._side = side

    def scores_of(self, first_row: int, rows: int, digest: str) -> Scores | None:
        """The stored scores of a window whose texts have this digest: all of them, those before a stop, or None."""
        if self._side and (scores := self._side.scores_of(first_row, rows)):
            return scores
        content = self._found.get(first_row)
        return None if content is None else unpacked(content, rows, digest)

    def store(self, first_row: int, scores: Scores, digest: str) -> None:
        """Store what is known of a window's scores. `digest` is that of its texts: a replaced file has others."""
        self._store(first_row, packed(scores, digest))


def packed(scores: Scores, digest: str) -> bytes:
    """A line of JSON, then the logits of the known rows as little-endian float32, 4 bytes each."""
    rows, outputs = scores.values.shape
    head: dict[str, object] = {"texts": digest, "rows": rows, "outputs": outputs, "errors": scores.errors}
    if not scores.complete:
        head["known"] = np.packbits(scores.known).tobytes().hex()
    return json.dumps(head).encode() + b"\n" + scores.values[scores.known].astype("<f4").tobytes()


def unpacked(content: bytes, rows: int, digest: str) -> Scores | None:
    """What `packed` made of the scores of so many texts with this digest; None for anything else."""
    try:
        head, _, body = content.partition(b"\n")
        fields = json.loads(head)
        if (fields["texts"], fields["rows"]) != (digest, rows):
            return None
        known = np.ones(rows, dtype=np.bool_)
        if "known" in fields:
            bits = np.frombuffer(bytes.fromhex(fields["known"]), dtype=np.uint8)
            known = np.unpackbits(bits, count=rows).astype(np.bool_)
        values = np.full((rows, fields["outputs"]), np.nan, dtype=np.float32)
        values[known] = np.frombuffer(body, dtype="<f4").reshape(int(known.sum()), fields["outputs"])
        errors = {int(row): str(reason) for row, reason in fields["errors"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Scores(values=values, errors=errors, missing=np.flatnonzero(~known))
