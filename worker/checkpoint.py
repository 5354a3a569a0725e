"""The scores of a shard's windows, kept while it is worked on, so that whoever resumes it scores no window again.

They go to the ledger, and where that has no room to the output's storage, in a thread of its own: what is slow or away
there does not hold the scoring up.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import redis

from fleet.errors import LeaseLost, ShardsiftError
from fleet.ledger import Claim, Ledger
from fleet.storage.output import Output
from worker.patience import patiently
from worker.scoring import Scores
from worker.side_scores import SideScores, open_side_scores

logger = logging.getLogger(__name__)


class Checkpoint:
    """`found` is what earlier attempts left, by the first row of its window; `save` keeps a window's, and must not raise.

    Scores are known by the digest of their texts too: the file may have been replaced since. `side` has those of a shard
    that was done before, and whose stored files were lost in part.
    """

    def __init__(
        self, found: Mapping[int, bytes], save: Callable[[int, bytes], None], side: SideScores | None = None
    ) -> None:
        self._found = found
        self._save = save
        self._side = side

    def scores_of(self, first_row: int, rows: int, digest: str) -> Scores | None:
        """What is known of the scores of a window's texts: all, the batches that were done before a stop, or nothing."""
        if self._side and (scores := self._side.scores_of(first_row, rows)):
            return scores
        content = self._found.get(first_row)
        return None if content is None else unpacked(content, rows, digest)

    def keep(self, first_row: int, scores: Scores, digest: str) -> None:
        self._save(first_row, packed(scores, digest))


@contextmanager
def open_checkpoint(claim: Claim, ledger: Ledger, output: Output, stopping: threading.Event) -> Iterator[Checkpoint]:
    """The checkpoint of a claimed shard; at the end of the block all that was kept is stored, if the stores answer.

    Waits for Redis. Raises TransientError where what earlier attempts left in the output's storage cannot be read, Stopped
    if the worker is to leave meanwhile.
    """
    found = patiently(lambda: ledger.saved_scores(claim), stopping)
    if claim.spilled:
        found |= {int(name): content for name, content in output.checkpoints(claim.shard.name).items()}
    store = _Store(claim, ledger, output)
    with open_side_scores(claim, output) as side, ThreadPoolExecutor(1, thread_name_prefix="checkpoint") as thread:
        yield Checkpoint(found, lambda first_row, content: store.add(first_row, content, thread), side)


class _Store:
    """Windows on their way to the ledger; those that it did not take for want of an answer go with the next one."""

    def __init__(self, claim: Claim, ledger: Ledger, output: Output) -> None:
        self._claim, self._ledger, self._output = claim, ledger, output
        self._pending: dict[int, bytes] = {}

    def add(self, first_row: int, content: bytes, thread: ThreadPoolExecutor) -> None:
        self._pending[first_row] = content
        thread.submit(self._save_all)

    def _save_all(self) -> None:
        for first_row, content in list(self._pending.items()):
            try:
                self._save(first_row, content)
            except redis.RedisError as error:
                logger.warning("Redis does not answer; scores of %s are kept for later (%s)", self._shard, error)
                return
            except LeaseLost:
                return  # whoever renews the lease will say so
            except ShardsiftError as error:
                logger.warning("A checkpoint of %s could not be stored: %s", self._shard, error)
            del self._pending[first_row]

    def _save(self, first_row: int, content: bytes) -> None:
        if not self._ledger.save_scores(self._claim, first_row, content):
            self._output.keep_checkpoint(self._shard, str(first_row), content)

    @property
    def _shard(self) -> str:
        return self._claim.shard.name


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
