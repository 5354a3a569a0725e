"""Write demo texts as Parquet: shards with the columns and types of FineWeb, and a labelled file for training.

The texts are cut from the paragraphs in `demo_texts.parquet`. These are from Python 3.11: its language reference, and
the docstrings and code of its standard library (PSF License, https://docs.python.org/3/license.html). Changelogs,
keyword spam and menus were made up from the words of these. A seed always gives the same texts.

Knows nothing of runs, queues or models.
"""

import math
import random
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PARAGRAPHS = Path(__file__).with_name("demo_texts.parquet")  # columns: part, source, text; all paragraphs are different
SHORTEST, TYPICAL, LONGEST = 100, 1_050, 20_000  # characters
LENGTH_SPREAD = 1.1  # standard deviation of the logarithm of the length
SENTENCE_END = re.compile(r"\n\s*\n|\n(?=\s*[-*|#]|    )|(?<=[.!?:])\s+(?=[A-Z\"'(])")
CRAWL = "CC-MAIN-2024-10"
CRAWLED_FROM = datetime(2024, 2, 20, 21, tzinfo=UTC)
CRAWLED_FOR = timedelta(days=14)

FINEWEB = pa.schema(
    {
        "text": pa.string(),
        "id": pa.string(),
        "dump": pa.string(),
        "url": pa.string(),
        "date": pa.string(),
        "file_path": pa.string(),
        "language": pa.string(),
        "language_score": pa.float64(),
        "token_count": pa.int64(),
    }
)
LABELLED = pa.schema({"text": pa.string(), "label": pa.float64()})


class Part(StrEnum):
    """Two disjoint sets of paragraphs, so that a model is not tested on the texts it was trained on."""

    TRAINING = "training"  # to fit a classification head
    SHARDS = "shards"  # to be scored


@dataclass(frozen=True, kw_only=True)
class Document:
    text: str
    grade: float  # 0 to 5, like the grades of FineWeb-Edu's annotators: an educational text has 3 or more
    source: str  # such as "reference" or "code"


# The sources of texts, each with its typical grade and its share of all texts.
_SOURCES = (
    ("reference", 4.6, 0.42),
    ("docstrings", 4.3, 0.08),
    ("code", 1.5, 0.20),
    ("changelogs", 1.4, 0.11),
    ("spam", 0.6, 0.11),
    ("navigation", 0.7, 0.08),
)


def documents(seed: int, *, part: Part = Part.SHARDS) -> Iterator[Document]:
    """Yield texts without end, about half of them educational. A text consists of sentences from adjacent paragraphs.

    Lengths are log-normal, as on the web: 1 in 8 is under 400 characters, 3 in 10 are over 2,000, a few are near 20,000.
    """
    rng = random.Random(seed)
    while True:
        ((source, typical_grade, _),) = rng.choices(_SOURCES, [share for *_, share in _SOURCES])
        text = _cut(*_joined(source, part), rng)
        yield Document(text=text, grade=_grade(typical_grade, text, rng), source=source)


def write_shards(folder: Path, *, shards: int, rows: int, seed: int) -> list[Path]:
    """Write `000_00000.parquet` and so on, each with `rows` rows. A larger `shards` does not change the first files."""
    paths = [folder / f"000_{number:05}.parquet" for number in range(shards)]
    stream = _fineweb_rows(seed)
    for path in paths:
        _write(path, FINEWEB, islice(stream, rows))
    return paths


def write_labelled(path: Path, *, rows: int, seed: int) -> None:
    """Write texts with their grades. No shard uses the same paragraphs."""
    graded = islice(documents(seed, part=Part.TRAINING), rows)
    labelled = ({"text": one.text, "label": one.grade} for one in graded)
    _write(path, LABELLED, labelled)


@cache
def _joined(source: str, part: Part) -> tuple[str, tuple[int, ...]]:
    """Join all paragraphs of a source. Returns the text, and the offsets at which a demo text may begin or end."""
    table = pq.read_table(PARAGRAPHS)
    wanted = pc.and_(pc.equal(table["source"], source), pc.equal(table["part"], part.value))
    text = "\n\n".join(table.filter(wanted)["text"].to_pylist())
    return text, (0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text))


def _cut(text: str, cuts: tuple[int, ...], rng: random.Random) -> str:
    """Cut one or two random sequences of sentences out of `text`, at the offsets in `cuts`.

    Combining two makes the number of different texts practically unlimited.
    """
    length = min(max(rng.lognormvariate(math.log(TYPICAL), LENGTH_SPREAD), SHORTEST), LONGEST)
    parts = rng.randint(1, 2)
    return "\n\n".join(_sentences(text, cuts, length / parts, rng) for _ in range(parts))


def _sentences(text: str, cuts: tuple[int, ...], length: float, rng: random.Random) -> str:
    starts_with_room = max(bisect_left(cuts, len(text) - length), 1)
    start = cuts[rng.randrange(starts_with_room)]
    end = cuts[min(bisect_left(cuts, start + length), len(cuts) - 1)]
    return text[start:end].strip()


def _grade(typical_grade: float, text: str, rng: random.Random) -> float:
    """Grade a text: the typical grade of its source, lower for short texts, plus noise. The grade stays on the same side of 3."""
    snippet = 0.4 if len(text) < 300 else 0.0
    low, high = (3.0, 5.0) if typical_grade >= 3 else (0.0, 2.9)
    return round(min(max(rng.gauss(typical_grade - snippet, 0.3), low), high), 2)


def _fineweb_rows(seed: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(f"{seed} of the columns beside the text")
    for number, document in enumerate(documents(seed)):
        yield _fineweb_row(document, number, rng)


def _fineweb_row(document: Document, number: int, rng: random.Random) -> dict[str, Any]:
    crawled = CRAWLED_FROM + CRAWLED_FOR * rng.random()
    return {
        "text": document.text,
        "id": f"<urn:uuid:{UUID(int=rng.getrandbits(128), version=4)}>",
        "dump": CRAWL,
        "url": f"https://{document.source}.example/{number}",
        "date": f"{crawled:%Y-%m-%dT%H:%M:%SZ}",
        "file_path": f"s3://commoncrawl/crawl-data/{CRAWL}/segments/demo/{document.source}.warc.gz",
        "language": "en",
        "language_score": round(rng.uniform(0.65, 1.0), 4),
        "token_count": len(document.text) // 4,
    }


def _write(path: Path, schema: pa.Schema, rows: Iterable[dict[str, Any]]) -> None:
    """Write to a temporary name and rename, so that a file at this path is always complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    table = pa.Table.from_pylist(list(rows), schema)
    pq.write_table(table, partial, row_group_size=1000, use_dictionary=False)
    partial.replace(path)
