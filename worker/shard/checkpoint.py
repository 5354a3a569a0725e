"""The scores of a shard's finished windows, as bytes, so that a later attempt need not score those windows again.

Does not know where the bytes are stored; see `worker/service/checkpoint_store.py`.
"""

import hashlib
import json
import logging
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import ShardsiftError
from fleet.ledger.records import Claim
from fleet.run.columns import ERROR
from fleet.run.receipt import OutputFile, Receipt
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec
from fleet.run.text_digests import digests_in
from fleet.storage.output import Staging
from worker.scoring import Scores
from worker.shard.writer import errors_of_each

Logits = npt.NDArray[np.float32]
logger = logging.getLogger(__name__)


class Checkpoint:
    """The windows that earlier attempts at a shard have scored, and a function that stores those of this attempt.

    `found` maps the first row of a window to its packed scores. `store(first_row, content)` must not raise. `side` has the
    scores of a shard that was done before, if its output was lost or damaged.
    """

    def __init__(
        self, found: Mapping[int, bytes], store: Callable[[int, bytes], None], side: "SideScores | None" = None
    ) -> None:
        self._found = found
        self._store = store
        self._side = side

    def scores_of(self, first_row: int, rows: int, digests: Sequence[str]) -> Sequence[Scores | None]:
        """The stored scores of a window, one entry per scoring: for all rows, for some rows, or None.

        Only scores of texts with these digests are used.
        """
        if self._side and (scores := self._side.scores_of(first_row, digests)):
            return scores
        content = self._found.get(first_row)
        return [None] * len(digests) if content is None else unpacked(content, rows, digests)

    def store(self, first_row: int, scores: Sequence[Scores], digests: Sequence[str]) -> None:
        """Store the scores of a window, which may be partial, with the digests of its texts."""
        self._store(first_row, packed(scores, digests))


def packed(scores: Sequence[Scores], digests: Sequence[str]) -> bytes:
    """A line of JSON with an entry for each scoring, then for each the logits of its known rows as little-endian float32."""
    heads = [_head(one, digest) for one, digest in zip(scores, digests, strict=True)]
    body = b"".join(one.values[one.known].astype("<f4").tobytes() for one in scores)
    return json.dumps(heads).encode() + b"\n" + body


def _head(scores: Scores, digest: str) -> dict[str, object]:
    rows, outputs = scores.values.shape
    head: dict[str, object] = {"texts": digest, "rows": rows, "outputs": outputs, "errors": scores.errors}
    if not scores.has_all_rows:
        head["known"] = np.packbits(scores.known).tobytes().hex()
    return head


def unpacked(content: bytes, rows: int, digests: Sequence[str]) -> Sequence[Scores | None]:
    """The scores of a window of `rows` rows, one entry per scoring. None for other texts, and for unreadable content."""
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
    """The scores that an entry describes, and the logits of the entries after it."""
    known = np.ones(head["rows"], dtype=np.bool_)
    if "known" in head:
        bits = np.frombuffer(bytes.fromhex(head["known"]), dtype=np.uint8)
        known = np.unpackbits(bits, count=head["rows"]).astype(np.bool_)
    values = np.full((head["rows"], head["outputs"]), np.nan, dtype=np.float32)
    end = int(known.sum()) * head["outputs"]
    values[known] = logits[:end].reshape(int(known.sum()), head["outputs"])
    errors = {int(row): str(reason) for row, reason in head["errors"].items()}
    return Scores(values=values, errors=errors, missing=np.flatnonzero(~known)), logits[end:]


class SideScores:
    """The scores in the side file of a shard whose other files were lost or damaged, by window.

    The file holds the raw logits and a digest of the texts, as a checkpoint does. Ask for windows in order: only one row group
    is in memory at a time.
    """

    def __init__(self, parquet: pq.ParquetFile, spec: RunSpec) -> None:
        self._parquet = parquet
        self._scorings = spec.scorings
        groups = (parquet.metadata.row_group(number).num_rows for number in range(parquet.metadata.num_row_groups))
        self._starts = [0, *accumulate(groups)]
        self._windows = {first: (end, digests) for (first, end), digests in digests_in(parquet).items()}
        self._group: tuple[int, pa.Table] | None = None

    def scores_of(self, first_row: int, digests: Sequence[str]) -> tuple[Scores, ...] | None:
        """The scores of a window, one entry per scoring. None unless they are the scores of texts with these digests.

        Stored scores reach rows by this and by `checkpoint.unpacked` only.
        """
        end, stored = self._windows.get(first_row, (first_row, None))
        if stored != list(digests):
            return None
        lines = self._lines(first_row, end)
        reasons = lines.column(ERROR.name).to_pylist()
        errors = {row: reason for row, reason in enumerate(reasons) if reason is not None}
        found = []
        for scoring, own in zip(self._scorings, errors_of_each(errors, self._scorings), strict=True):
            values = _values(lines.column(_column(scoring)), scoring.outputs)
            values[[row for row in errors if row not in own]] = 0  # another scoring's error: not stored, and not used
            found.append(Scores(values=values, errors=own))
        return tuple(found)

    def _lines(self, start: int, end: int) -> pa.Table:
        parts = []
        while start < end:
            number = bisect_right(self._starts, start) - 1
            offset, last = start - self._starts[number], min(end, self._starts[number + 1])
            parts.append(self._row_group(number).slice(offset, last - start))
            start = last
        return pa.concat_tables(parts)

    def _row_group(self, number: int) -> pa.Table:
        if self._group is None or self._group[0] != number:
            columns = [ERROR.name, *map(_column, self._scorings)]
            self._group = (number, self._parquet.read_row_group(number, columns=columns))
        return self._group[1]


def _column(scoring: Scoring) -> str:
    """The column of the raw logits."""
    return scoring.logits_column if scoring.has_logits_column else scoring.score_column


def _values(column: pa.ChunkedArray, outputs: int) -> npt.NDArray[np.float32]:
    """Logits of shape (rows, outputs), with NaN for null."""
    values = np.full((len(column), outputs), np.nan, dtype=np.float32)
    plain = column.drop_null().combine_chunks()
    flat = plain.flatten() if pa.types.is_list(plain.type) else plain
    values[column.is_valid().to_numpy()] = flat.to_numpy(zero_copy_only=False).reshape(-1, outputs)
    return values


@contextmanager
def open_side_scores(claim: Claim, output: Staging) -> Iterator[SideScores | None]:
    """The scores that an earlier attempt stored. None unless the input is the same and the file is undamaged."""
    previous = claim.previous
    if previous is None or not _is_of_same_input(claim, previous):
        yield None
        return
    with tempfile.TemporaryFile() as copy:
        try:
            with output.open_file(previous.scores) as stored:
                is_whole = copied_whole(stored, previous.scores, copy)
        except ShardsiftError as error:
            logger.warning(
                "Shard %s is scored again from the start: %s", claim.shard.name, error, extra=claim.log_fields
            )
            is_whole = False
        yield SideScores(pq.ParquetFile(copy), claim.spec) if is_whole else None


def _is_of_same_input(claim: Claim, previous: Receipt) -> bool:
    return previous.source_identity == claim.shard.identity


def copied_whole(stored: IO[bytes], file: OutputFile, copy: IO[bytes]) -> bool:
    """Copy a stored file. Returns whether the copy has the sha256 of the receipt."""
    shutil.copyfileobj(stored, copy)
    copy.seek(0)
    return hashlib.file_digest(copy, "sha256").hexdigest() == file.sha256  # type: ignore[arg-type]
