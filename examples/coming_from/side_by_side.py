"""Score the same texts in several ways, in turns; print the rows per second, and stop if the float32 scores differ."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

import shardsift

TOLERANCE = 1e-4  # absolute difference of two scores in float32


@dataclass(kw_only=True)
class Way:
    """A way to score texts. `score` returns an array with a row for each text."""

    name: str
    dtype: str
    score: Callable[[list[str]], np.ndarray]
    seconds: list[float] = field(default_factory=list)  # of each round
    scores: np.ndarray | None = None


def arguments(page: str, model: str) -> argparse.Namespace:
    """Parse the command line, and read the texts into `texts`. Leaves out missing texts, on which a pipeline fails."""
    parser = argparse.ArgumentParser(description=page, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=model, help="a folder, or a name on the Hub")
    parser.add_argument("--input", required=True, help="a Parquet file")
    parser.add_argument("--text-column", default="text")
    parser.add_argument("--rows", type=int, default=64, help="how many of its rows to score")
    parser.add_argument("--rounds", type=int, default=3, help="the fastest of which counts")
    parser.add_argument("--report", type=Path, help="a JSON file to write")
    given = parser.parse_args()
    texts = pd.read_parquet(given.input, columns=[given.text_column])[given.text_column].dropna()
    given.texts = texts[texts.str.strip() != ""].head(given.rows).tolist()
    return given


def ours(model: str, dtype: str = "auto", **options: object) -> Way:
    scorer = shardsift.load_scorer(model, dtype=dtype)
    dtype = scorer.info.dtype
    return Way(name="shardsift", dtype=dtype, score=lambda texts: scorer.score(texts, **options))


def compare(given: argparse.Namespace, *ways: Way) -> None:
    """Time each way, and print a line for it. The first way is the baseline of the ratios.

    Exits with an error if the scores of a float32 way differ from those of the first float32 way.
    """
    for way in ways:
        way.score(given.texts[:2])  # warm up: the first call is slower than later ones
    for _ in range(given.rounds):
        for way in ways:
            began = time.perf_counter()
            way.scores = np.asarray(way.score(given.texts), dtype=np.float32).reshape(len(given.texts), -1)
            way.seconds.append(time.perf_counter() - began)
    exact = next(way for way in ways if way.dtype == "float32")
    lines = [_line(way, ways[0], exact) for way in ways]
    print(f"{len(given.texts)} texts, {given.model}, the fastest of {given.rounds} rounds")
    for line in lines:
        print(
            "{way:<28} {dtype:<9} {rows_per_second:>9,.2f} rows/s  {ratio:>5.2f} x  scores within {error:.1g}".format(
                **line
            )
        )
    if given.report:
        given.report.write_text(json.dumps(lines))
    if wrong := [line["way"] for line in lines if line["dtype"] == "float32" and line["error"] > TOLERANCE]:
        sys.exit(f"The float32 scores of {wrong[0]} differ from those of {exact.name}.")


def _line(way: Way, first: Way, exact: Way) -> dict[str, object]:
    return {
        "way": way.name,
        "dtype": way.dtype,
        "rows_per_second": len(way.scores) / min(way.seconds),
        "ratio": min(first.seconds) / min(way.seconds),
        "error": float(np.abs(way.scores - exact.scores).max()),
        "seconds": way.seconds,
    }
