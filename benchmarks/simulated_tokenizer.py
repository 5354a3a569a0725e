"""A tokenizer whose Rust threads are simulated: ids come from a table, after the time that the threads would take.

All processes that name the same file share the simulated cores. One call at a time uses all of them, so more processes
speed up only the tokenizer's Python. Imports no torch, because tokenizer processes read it.
"""

import fcntl
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from shardsift.worker.scoring.tokenizing.contents import ContentEncoder
from shardsift.worker.scoring.tokenizing.processes import read_tokenizer


class Table:
    """A stand-in for a tokenizers.Tokenizer. Tokenizes a text on this machine's cores if it is not in the table yet."""

    def __init__(self, backend: Any, cores: Path, seconds_a_row: float) -> None:
        self._backend = backend
        self._cores = cores
        self._seconds_a_row = seconds_a_row
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode_batch_fast(self, heads: list[str], **options: Any) -> list[Any]:
        new = [head for head in heads if head not in self._known]
        self._known.update(zip(new, self._backend.encode_batch_fast(new, **options), strict=True))
        with self._cores.open("w") as cores:
            fcntl.flock(cores, fcntl.LOCK_EX)
            time.sleep(len(heads) * self._seconds_a_row)
        return [self._known[head] for head in heads]


def read_simulated(model: str, texts: list[str], *, room: int, cores: Path, seconds_a_row: float) -> Any:
    """Return a tokenizer of a model that has the ids of these texts in its table."""
    table = Table(read_tokenizer(model, None).backend_tokenizer, cores, seconds_a_row)
    ContentEncoder(table, room=room).encode(pa.array(texts, pa.large_string()))
    return SimpleNamespace(backend_tokenizer=table)
