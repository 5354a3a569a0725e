"""Seeded English texts with given numbers of tokens. Needs only Python and a tokenizer."""

import ast
import math
import sysconfig
import warnings
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt


class Lengths(StrEnum):
    """The distribution of text lengths in tokens, without special tokens."""

    FINEWEB = "fineweb"  # log-normal: mean 698, sigma 1.0
    FULL = "full"  # 512 or a few more: every text reaches the model's limit
    SHORT = "short"  # log-normal: mean 25, sigma 0.5, similar to the sentences of SST-2


# FineWeb's sample-10BT has 14.9 million rows and about 10.4 billion tokens: 698 per row. Its quantiles are not
# published. A sigma of 1.0 is an assumption (0.9 to 1.1 fits what is known); with it, two rows in five are truncated.
_MEAN_AND_SIGMA = {
    Lengths.FINEWEB: (698, 1.0),
    Lengths.SHORT: (25, 0.5),
}
_FULL = 512


def make_texts(lengths: Lengths, rows: int, *, tokenizer: Any, seed: int = 0) -> list[str]:
    """Cut texts out of real prose at random places. Each has at least the drawn number of tokens, and ends after a word."""
    words, tokens_before = _prose(tokenizer)
    rng = np.random.default_rng(seed)
    targets = draw_lengths(lengths, rows, rng)
    starts = rng.integers(len(words), size=rows)
    twice = [*words, *words]  # a text that reaches the end of the prose continues at its beginning
    ends = np.searchsorted(tokens_before, tokens_before[starts] + np.minimum(targets, tokens_before[len(words)]))
    return [" ".join(twice[start:end]) for start, end in zip(starts, ends, strict=True)]


def draw_lengths(lengths: Lengths, rows: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw one length from each of `rows` equal slices of the distribution, so that even a few rows have its shape."""
    if lengths is Lengths.FULL:
        return np.full(rows, _FULL)
    mean, sigma = _MEAN_AND_SIGMA[lengths]
    median = math.log(mean) - sigma**2 / 2
    quantiles = (rng.permutation(rows) + rng.uniform(1e-6, 1, rows)) / (rows + 1e-6)
    drawn = np.exp([median + sigma * NormalDist().inv_cdf(quantile) for quantile in quantiles])
    return np.maximum(1, drawn.round()).astype(np.int64)


def _prose(tokenizer: Any) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the words of the prose, and the number of tokens before each word of the prose repeated twice."""
    words = _words()
    different = sorted(set(words))
    ids = tokenizer(different, add_special_tokens=False, return_attention_mask=False)["input_ids"]
    tokens_of = dict(zip(different, map(len, ids), strict=True))
    once = [tokens_of[word] for word in words]
    return words, np.concatenate([[0], np.cumsum([*once, *once])])


@cache
def _words() -> list[str]:
    """Read Python's own documentation: the language reference that help() shows, and long docstrings of its modules."""
    from pydoc_data.topics import topics

    reference = [topics[name] for name in sorted(topics)]
    return " ".join([*reference, *_docstrings()]).split()


def _docstrings() -> Iterator[str]:
    """Yield long docstrings. Parses the modules without importing them, because some have effects at import."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old escapes in strings, which do not concern the user
            tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node)
                if docstring and len(docstring) >= 300:
                    yield docstring
