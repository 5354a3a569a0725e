"""Processes tokenize as one thread does. They end with the process that started them, and one that ends is an error."""

import gc
import os
import pickle
import signal
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch
from transformers import DebertaV2Tokenizer

from shardsift.worker.scoring import DeviceFault
from shardsift.worker.scoring.load import load_classifier, with_tokenizer_processes
from shardsift.worker.scoring.tokenizing.processes import TokenizerProcesses, read_tokenizer
from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer
from shardsift.worker.scoring.tokenizing.tokens import Tokens
from support.leftovers import is_alive
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
    folder = saved("RoBERTa, BART")
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


def test_a_word_that_can_be_split_in_equally_good_ways_is_split_as_in_one_thread(tmp_path: Path) -> None:
    """A pickled tokenizer splits some of these words otherwise."""
    texts = pa.array(save_tokenizer_of_ties(tmp_path), pa.large_string())
    tokenizer = read_tokenizer(str(tmp_path), None)
    alone, pickled = (TextTokenizer(one, max_tokens=16) for one in (tokenizer, pickle.loads(pickle.dumps(tokenizer))))
    processes = started(tmp_path, 1)

    assert same(alone.in_processes(processes).encode(texts), alone.encode(texts))
    assert not same(pickled.encode(texts), alone.encode(texts))
    processes.close()


def save_tokenizer_of_ties(folder: Path) -> list[str]:
    """Save a Unigram tokenizer. Returns words whose splits 1 + 2 and 2 + 1 have equal scores, but for rounding."""
    random, pieces, words = Random(0), [("▁", -1.0)], []
    for number in range(200):
        first, second, third = (chr(0x4E00 + 3 * number + place) for place in range(3))
        of_two, of_third, of_first = (-15 * random.random() for _ in range(3))
        pieces += [(first + second, of_two), (third, of_third), (first, of_first)]
        pieces += [(second + third, of_two + of_third - of_first)]
        words.append(first + second + third)
    vocab = [*((token, 0.0) for token in ("[PAD]", "[CLS]", "[SEP]", "[UNK]")), *pieces, ("[MASK]", 0.0)]
    DebertaV2Tokenizer(vocab=vocab).save_pretrained(folder)
    return words


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
def test_a_model_that_is_faster_than_one_thread_gets_processes_which_end_with_it(
    tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = children()
    scorer = replace(load_classifier(str(tiny_model), "float32", device="cpu", parity_rows=0), backend=Instant())
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
