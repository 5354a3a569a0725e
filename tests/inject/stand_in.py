"""A scorer without a model: the score of a text comes from its checksum, and each batch takes a fixed time.

It is for runs with thousands of injected faults. For a worker it behaves like the real scorer: it scores in batches,
can stop between two batches, and continues where it stopped. It also logs each batch, so that repeated work can be
counted.
"""

import os
import time
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
from injected import ACTIONS

from shardsift.worker.scoring import DeviceUse, EncodedRows, GoOn, ScorerInfo, Scores, always
from shardsift.worker.scoring.tokenizing.tokenize import AnyTexts, plain_texts
from shardsift.worker.scoring.tokenizing.tokens import Tokens

POISON = "POISON:"  # a text with this prefix runs an action of `injected`


class StandInScorer:
    def __init__(self, device: str, work_log: Path, rows_a_batch: int, seconds_a_batch: float) -> None:
        self.info = ScorerInfo(device="none", device_type=device, backend="stand-in")
        self._log = os.open(work_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._rows_a_batch = rows_a_batch
        self._seconds_a_batch = seconds_a_batch
        self.seconds_at_peak = 0.0

    def encode(self, texts: AnyTexts) -> EncodedRows:
        """Use the bytes of a text as its tokens."""
        column = plain_texts(texts)
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        contents = [text.encode() for text in column.drop_null().to_pylist()]
        tokens = Tokens(
            ids=np.frombuffer(b"".join(contents), dtype=np.uint8).astype(np.int32),
            offsets=np.concatenate([[0], np.cumsum([len(content) for content in contents])]).astype(np.int64),
        )
        errors = dict.fromkeys(np.setdiff1d(np.arange(len(column)), present).tolist(), "null text")
        return EncodedRows(
            rows=len(column), sequences=tokens, offsets=np.arange(len(tokens) + 1), row_of_text=present, errors=errors
        )

    def score_encoded(self, encoded: EncodedRows, go_on: GoOn = always, earlier: Scores | None = None) -> Scores:
        rows = encoded.row_of_text
        known = np.zeros(len(rows), dtype=np.bool_) if earlier is None else earlier.known[rows]
        tokens = encoded.sequences.take(np.arange(len(rows)))
        values = np.full((encoded.rows, 1), np.nan, dtype=np.float32)
        done = np.zeros(len(rows), dtype=np.bool_)
        for first in range(0, len(rows), self._rows_a_batch):
            batch = np.arange(first, min(first + self._rows_a_batch, len(rows)))
            if known[batch].all():
                continue
            values[rows[batch], 0] = [self._score(tokens, text) for text in batch]
            done[batch] = True
            time.sleep(self._seconds_a_batch)
            self.seconds_at_peak += self._seconds_a_batch / 2
            os.write(self._log, self._line(tokens, batch))
            if not go_on(int(batch[-1]) + 1):
                break
        scores = Scores(values=values, errors=dict(encoded.errors), missing=rows[~done])
        return scores if earlier is None else scores.filled_from(earlier)

    def metered(self) -> "StandInScorer":
        return self

    def device_use(self) -> DeviceUse:
        return DeviceUse(memory_share=0.25, busy_share=0.75)

    def _line(self, tokens: Tokens, batch: npt.NDArray[np.int64]) -> bytes:
        """Format a line of the log: time, process, number of rows, and the checksum of each text.

        The checksums show which texts were scored twice.
        """
        checksums = ",".join(f"{zlib.crc32(_content(tokens, text)):x}" for text in batch)
        return f"{time.time():.4f} {os.getpid()} {len(batch)} {checksums}\n".encode()

    def _score(self, tokens: Tokens, text: int) -> float:
        content = _content(tokens, text)
        if content.startswith(POISON.encode()):
            ACTIONS[content.decode().removeprefix(POISON).split("|")[0]]()
        return (zlib.crc32(content) % 600) / 100


def _content(tokens: Tokens, text: int) -> bytes:
    return bytes(tokens[text].astype(np.uint8))
