"""Processes tokenize as one thread does. They end with the process that started them, and one that ends is an error."""

import gc
import os
import signal
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch

from shardsift.worker.scoring import DeviceFault
from shardsift.worker.scoring.load import with_tokenizer_processes
from shardsift.worker.scoring.tokenizing.processes import TokenizerProcesses, read_tokenizer
from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer
from shardsift.worker.scoring.tokenizing.tokens import Tokens
from support.leftovers import is_alive
from support.models import plain_scorer
from support.odd_texts import SPECIAL, real_texts
from support.waiting import wait_until

RULERS = [sign * length for sign in string.punctuation for length in range(1, 40)]  # see test_tokenize_ids.py
TEXTS = pa.array([*real_texts(20), "", " " * 60_000 + "far", "long " * 9_000, *SPECIAL, *RULERS], pa.large_string())
START_AND_WAIT = """
import sys, time
from functools import partial
from shardsift.worker.scoring.tokenizing.processes import TokenizerProcesses, read_tokenizer
processes = TokenizerProcesses(partial(read_tokenizer, sys.argv[1], None), 1)
print("ready", flush=True)
time.sleep(60)
"""


def started(folder: Path, count: int) -> TokenizerProcesses:
    return TokenizerProcesses(partial(read_tokenizer, str(folder), None), count)


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def test_processes_give_the_ids_of_one_thread(saved: Callable[[str], Path]) -> None:
    folder = saved("XLM-RoBERTa")  # a pickled Unigram tokenizer splits some rulers in another way
    alone = TextTokenizer(read_tokenizer(str(folder), None), max_tokens=128)
    processes = started(folder, 2)
    shared = alone.in_processes(processes)

    assert same(shared.encode(TEXTS), alone.encode(TEXTS))
    assert same(shared.limited_to(16).encode(TEXTS), alone.limited_to(16).encode(TEXTS))
    for passages in ("stride:100", "finepdfs"):
        (ours, our_offsets), (theirs, their_offsets) = (
            one.sequences(passages).encode(TEXTS.slice(0, 22)) for one in (shared, alone)
        )
        assert np.array_equal(our_offsets, their_offsets)
        assert same(*(one.take(np.arange(len(one))) for one in (ours, theirs)))
    assert len(shared.encode(TEXTS.slice(0, 0))) == 0
    processes.close()


def same(ours: Tokens, theirs: Tokens) -> bool:
    return np.array_equal(ours.ids, theirs.ids) and np.array_equal(ours.offsets, theirs.offsets)


class Instant:
    """A backend that takes no time."""

    name = "instant"

    def logits(self, batch: Tokens) -> torch.Tensor:
        return torch.zeros(len(batch), 1)


@pytest.fixture
def four_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("four_threads")
def test_a_fast_model_gets_processes_that_end_with_it(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = children()
    scorer = replace(plain_scorer(tiny_model), backend=Instant())
    texts = [None, "", "a text", None, *real_texts(5)]

    with caplog.at_level("INFO"):
        fast = with_tokenizer_processes(scorer, partial(read_tokenizer, str(tiny_model), None))

    assert "so 2 processes tokenize" in caplog.text
    ours, theirs = fast.encode(texts), scorer.encode(texts)
    assert same(*(one.sequences.take(np.arange(len(one.sequences))) for one in (ours, theirs)))
    assert ours.errors == theirs.errors
    assert len(children() - before) == 2
    del fast
    gc.collect()
    assert children() == before


def test_a_process_that_is_killed_is_an_error_that_replaces_the_worker_process(bert: Path) -> None:
    before = children()
    processes = started(bert, 1)
    (one,) = children() - before

    one.kill()

    for _ in range(2):
        with pytest.raises(DeviceFault, match="A tokenizer process has ended"):
            processes.encode(TEXTS, room=16)
    processes.close()


def test_processes_end_with_a_process_that_is_killed(bert: Path) -> None:
    command = [sys.executable, "-c", START_AND_WAIT, str(bert)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == b"ready\n"
        (process,) = psutil.Process(parent.pid).children()

        os.kill(parent.pid, signal.SIGKILL)

    wait_until(lambda: not is_alive(process), description="the end of the tokenizer process")
