"""Encode the scores of a shard's finished windows, so that a later attempt need not score these windows again.

Does not know where the bytes are stored; see `worker/service/checkpoint_store.py`.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardsift.worker.scoring import Scores
from shardsift.worker.scoring.parity_trial import Logits

logger = logging.getLogger(__name__)


class Checkpoint:
    """The windows that earlier attempts at a shard scored, and a function that stores the windows of this attempt.

    `found` maps the first row of a window to its encoded scores. `store(first_row, content)` must not raise.
    """

    def __init__(self, found: Mapping[int, bytes], store: Callable[[int, bytes], None]) -> None:
        self._found = found
        self._store = store

    def scores_of(self, first_row: int, rows: int, digests: Sequence[str]) -> Sequence[Scores | None]:
        """Return the stored scores of a window, one entry per scoring. Some rows may be missing.

        An entry is None if no scores are stored, or if the stored ones are of other texts.
        """
        content = self._found.get(first_row)
        return [None] * len(digests) if content is None else from_bytes(content, rows, digests)

    def store(self, first_row: int, scores: Sequence[Scores], digests: Sequence[str]) -> None:
        self._store(first_row, to_bytes(scores, digests))


def to_bytes(scores: Sequence[Scores], digests: Sequence[str]) -> bytes:
    """Encode scores: a line of JSON with an entry per scoring, then the logits as little-endian float32.

    The logits of missing rows are left out.
    """
    heads = [_head(one, digest) for one, digest in zip(scores, digests, strict=True)]
    body = b"".join(one.values[one.known].astype("<f4").tobytes() for one in scores)
    return json.dumps(heads).encode() + b"\n" + body


def _head(scores: Scores, digest: str) -> dict[str, object]:
    rows, outputs = scores.values.shape
    head: dict[str, object] = {"texts": digest, "rows": rows, "outputs": outputs, "errors": scores.errors}
    if not scores.has_all_rows:
        head["known"] = np.packbits(scores.known).tobytes().hex()
    return head | ({"in_float32": scores.in_float32} if scores.in_float32 else {})


def from_bytes(content: bytes, rows: int, digests: Sequence[str]) -> Sequence[Scores | None]:
    """Decode the scores of a window of `rows` rows, one entry per scoring.

    An entry is None if its scores are of other texts. All are None if the content is damaged.
    """
    found: list[Scores | None] = [None] * len(digests)
    try:
        line, _, body = content.partition(b"\n")
        heads, logits = json.loads(line), np.frombuffer(body, dtype="<f4")
        if len(heads) != len(digests):
            return found
        for place, (head, digest) in enumerate(zip(heads, digests, strict=True)):
            scores, logits = _read(head, logits)
            if (head["texts"], head["rows"]) == (digest, rows):
                found[place] = scores
    except (ValueError, KeyError, TypeError, AttributeError):
        return [None] * len(digests)
    return [None] * len(digests) if len(logits) else found


def _read(head: Any, logits: Logits) -> tuple[Scores, Logits]:
    """Decode the scores of a scoring from its JSON entry, `head`, and the logits of this and the next scorings.

    Also returns the logits of the next scorings.
    """
    known = np.ones(head["rows"], dtype=np.bool_)
    if "known" in head:
        bits = np.frombuffer(bytes.fromhex(head["known"]), dtype=np.uint8)
        known = np.unpackbits(bits, count=head["rows"]).astype(np.bool_)
    values = np.full((head["rows"], head["outputs"]), np.nan, dtype=np.float32)
    end = int(known.sum()) * head["outputs"]
    values[known] = logits[:end].reshape(int(known.sum()), head["outputs"])
    errors = {int(row): str(reason) for row, reason in head["errors"].items()}
    again = int(head.get("in_float32", 0))
    return Scores(values=values, errors=errors, missing=np.flatnonzero(~known), in_float32=again), logits[end:]
