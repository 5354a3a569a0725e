"""Tokenize in several processes, for a GPU that scores texts faster than one thread can tokenize them.

Nearly half of such a thread's time is spent in Python, which also delays the launches of batches. Each process reads
the tokenizer from its files, because pickling it would change the last bits of a Unigram model's numbers, and so some
token ids. The processes do not import torch.
"""

import math
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardsift.worker.scoring import DeviceFault
from shardsift.worker.scoring.quiet import quieten_imports
from shardsift.worker.scoring.tokenizing.contents import MAX_CHARS, ContentEncoder, calls
from shardsift.worker.scoring.tokenizing.tokens import Tokens, joined

_MOST = 8
_KEEPS_UP = 0.8  # most of the scoring time that tokenizing may take, so that slower windows do not delay the device
_PART_CHARS = 1 << 20  # small enough to keep all processes busy until the end of a window
_PROGRAM = (
    f"import sys; from {__name__} import Connection, serve_tokenizer; serve_tokenizer(Connection(int(sys.argv[1])))"
)


def processes_needed(encode_seconds: float, score_seconds: float, *, cores: int) -> int:
    """Compute how many processes are needed to tokenize as fast as the device scores.

    Returns 0 if one thread is enough, or if there are fewer than four cores.
    """
    speedup, most = encode_seconds / (_KEEPS_UP * score_seconds), min(_MOST, cores // 2)
    return min(math.ceil(speedup), most) if speedup > 1 and most > 1 else 0


def read_tokenizer(model: str, revision: str | None, *, by_files_alone: bool = False) -> Any:
    """Read a tokenizer with transformers. If `by_files_alone`, ignores the model type in config.json."""
    from transformers import AutoTokenizer, PreTrainedConfig

    config = {"config": PreTrainedConfig()} if by_files_alone else {}
    return AutoTokenizer.from_pretrained(model, revision=revision, trust_remote_code=False, **config)


class TokenizerProcesses:
    """Processes with the same tokenizer. Thread-safe. The processes are killed when this object is collected."""

    def __init__(self, read: Callable[[], Any], count: int) -> None:
        """Start `count` processes, and wait until each has read its tokenizer with `read`.

        Raises OSError if a process cannot be started, and DeviceFault if one ends.
        """
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="tokenizer process")
        processes, connections = zip(*(_start() for _ in range(count)), strict=True)
        self.close = weakref.finalize(self, _kill, processes)
        self._free: SimpleQueue[Connection] = SimpleQueue()
        list(self._threads.map(lambda connection: _answer(connection, read), connections))
        for connection in connections:
            self._free.put(connection)

    def encode(self, texts: pa.Array, room: int) -> Tokens:
        """Tokenize texts to the ids of a ContentEncoder with this `room`. Raises DeviceFault if a process has ended."""
        chars = pc.min_element_wise(pc.utf8_length(texts), MAX_CHARS).to_numpy()
        parts = [texts.slice(start, stop - start) for start, stop in calls(chars, _PART_CHARS)]
        return joined(list(self._threads.map(lambda part: self._encode_part(part, room), parts)))

    def _encode_part(self, texts: pa.Array, room: int) -> Tokens:
        heads = pc.utf8_slice_codeunits(texts, 0, MAX_CHARS)  # a copy, because a slice would be pickled with the window
        connection = self._free.get()
        try:
            encoded: Tokens = _answer(connection, (heads, room))
            return encoded
        finally:
            self._free.put(connection)


def _start() -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process. Returns it with our end of the connection.

    It may use as many Rust threads as the worker has cores, because at any time some of the processes run Python. It
    has its own session, so that Ctrl-C does not end it: the worker still needs it until it stops at the next batch.
    """
    ours, theirs = Pipe()
    with theirs:
        end = theirs.fileno()
        command = [sys.executable, "-P", "-c", _PROGRAM, str(end)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[end], start_new_session=True), ours


def _answer(connection: Connection, message: object) -> Any:
    try:
        connection.send(message)
        return connection.recv()
    except Exception as error:
        connection.close()  # because it may be in the middle of a message
        raise DeviceFault(
            "A tokenizer process has ended. If the log does not say why, memory was probably short."
        ) from error


def _kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def serve_tokenizer(connection: Connection) -> None:
    """Tokenize the texts that the worker sends through the connection, until the worker closes it or ends."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # transformers would import it: 3 s and 200 MB
    quieten_imports()
    with suppress(EOFError, ConnectionError):
        backend = connection.recv()().backend_tokenizer
        encoder = cache(lambda room: ContentEncoder(backend, room=room))
        connection.send("ready")
        while True:
            texts, room = connection.recv()
            connection.send(encoder(room).encode(texts))
