"""Write demo texts as Parquet: shards with the columns and types of FineWeb, and a labelled file for training.

Knows nothing of runs, queues or models. On one machine, a seed always gives the same bytes.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import math
import random
import re
import sysconfig
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

# English texts for the demo, graded like FineWeb-Edu. They come from Python and its installed packages, not the network.
#
# Knows nothing of Parquet, rows or models. The educational texts are Python's language reference, numpy's documentation and
# long docstrings of the standard library. The low-value texts are licences, package descriptions, code, code comments, and
# three synthetic kinds made of the same words: changelogs, keyword spam and site navigation. On one machine, a seed always
# gives the same texts. Another Python version or other installed packages give other texts.

SHORTEST, TYPICAL, LONGEST = 100, 1_050, 20_000  # characters
LENGTH_SPREAD = 1.1  # standard deviation of the logarithm of the length
SYNTHETIC_CHARACTERS = 400_000  # of each synthetic source, so that two texts rarely overlap
SENTENCE_END = re.compile(r"\n\s*\n|\n(?=\s*[-*|#]|    )|(?<=[.!?:])\s+(?=[A-Z\"'(])")
LIST_MARK = re.compile(r"^([*-]|\d+\.) ")
NOT_PROSE = re.compile(r"\||::=|>>>|---| : |in version|copyright|warrant|licen[cs]e|all rights", re.IGNORECASE)
COMMENT_BLOCK = re.compile(r"(?:^[ \t]*#.*\n){2,}", re.MULTILINE)


class Kind(StrEnum):
    EDUCATIONAL = "educational"  # graded 3 or more
    LOW_VALUE = "low-value"  # graded below 3


class Part(StrEnum):
    """The source paragraphs that a text may use. The parts share no paragraph, so a test on one is fair to the other."""

    TRAINING = "training"  # half of the paragraphs, to fit a head
    SHARDS = "shards"  # the other half, to be scored


@dataclass(frozen=True, kw_only=True)
class Document:
    text: str
    grade: float  # 0 to 5, like the grades of FineWeb-Edu's annotators
    kind: Kind
    source: str  # such as "licences" or "code"


def documents(seed: int, *, part: Part = Part.SHARDS) -> Iterator[Document]:
    """An endless stream of texts, about half of each kind. A text is a sequence of sentences from adjacent paragraphs.

    Lengths are log-normal, as on the web: 1 in 8 is under 400 characters, 3 in 10 are over 2,000, a few are near 20,000.
    """
    rng = random.Random(seed)
    quarries = _quarries(part)
    shares = [quarry.share for quarry in quarries]
    while True:
        (quarry,) = rng.choices(quarries, shares)
        text = quarry.cut(rng)
        yield Document(text=text, grade=_grade(quarry, text, rng), kind=quarry.kind, source=quarry.source)


def part_of(paragraph: str) -> Part:
    """The part to which a source paragraph belongs. Line breaks and case do not matter."""
    digest = hashlib.sha256(" ".join(paragraph.split()).casefold().encode()).digest()
    return Part.TRAINING if digest[0] % 2 == 0 else Part.SHARDS


def source_paragraphs(part: Part) -> Iterator[str]:
    """All source paragraphs of a part."""
    for quarry in _quarries(part):
        yield from quarry.text.split("\n\n")


@dataclass(frozen=True, kw_only=True)
class _Quarry:
    """All paragraphs of one source and one part, joined, with the offsets at which a text may begin or end."""

    source: str
    kind: Kind
    typical_grade: float
    share: float  # of all documents
    text: str
    cuts: tuple[int, ...]

    def cut(self, rng: random.Random) -> str:
        """One or two sequences of sentences. With two, the number of different texts is practically unlimited."""
        length = min(max(rng.lognormvariate(math.log(TYPICAL), LENGTH_SPREAD), SHORTEST), LONGEST)
        runs = rng.randint(1, 2)
        return "\n\n".join(self._run(length / runs, rng) for _ in range(runs))

    def _run(self, length: float, rng: random.Random) -> str:
        starts_with_room = max(bisect_left(self.cuts, len(self.text) - length), 1)
        start = self.cuts[rng.randrange(starts_with_room)]
        end = self.cuts[min(bisect_left(self.cuts, start + length), len(self.cuts) - 1)]
        return self.text[start:end].strip()


def _grade(quarry: _Quarry, text: str, rng: random.Random) -> float:
    """The typical grade of the source plus noise, lower for short texts, and always on its kind's side of 3."""
    snippet = 0.4 if len(text) < 300 else 0.0
    low, high = (3.0, 5.0) if quarry.kind is Kind.EDUCATIONAL else (0.0, 2.9)
    return round(min(max(rng.gauss(quarry.typical_grade - snippet, 0.3), low), high), 2)


@cache
def _quarries(part: Part) -> tuple[_Quarry, ...]:
    sentences = _sentences(part)
    return (
        _quarry("reference", Kind.EDUCATIONAL, 4.6, 0.25, part, _explanations(_reference())),
        _quarry("numpy", Kind.EDUCATIONAL, 4.5, 0.23, part, _explanations(_numpy())),
        _quarry("docstrings", Kind.EDUCATIONAL, 4.3, 0.02, part, _explanations(_stdlib().docstrings)),
        _quarry("licences", Kind.LOW_VALUE, 1.1, 0.17, part, _licences()),
        _quarry("descriptions", Kind.LOW_VALUE, 1.7, 0.06, part, _package_descriptions()),
        _quarry("code", Kind.LOW_VALUE, 1.5, 0.10, part, _stdlib().code),
        _quarry("comments", Kind.LOW_VALUE, 1.9, 0.02, part, _stdlib().comments),
        _quarry("changelogs", Kind.LOW_VALUE, 1.4, 0.05, part, _changelogs(sentences)),
        _quarry("spam", Kind.LOW_VALUE, 0.6, 0.06, part, _spam(sentences)),
        _quarry("navigation", Kind.LOW_VALUE, 0.7, 0.04, part, _navigation(sentences)),
    )


def _explanations(articles: Iterable[str]) -> Iterator[str]:
    """Paragraphs of whole sentences, without signatures, tables, grammar, examples and licence terms."""
    for block in chain.from_iterable(map(_blocks, articles)):
        paragraph = LIST_MARK.sub("", " ".join(block.split()))
        letters = sum(char.isalpha() or char == " " for char in paragraph)
        if (
            len(paragraph) >= 100
            and paragraph[0].isupper()
            and paragraph[-1] in ".:"
            and letters > 0.88 * len(paragraph)
            and not NOT_PROSE.search(paragraph)
        ):
            yield paragraph


def _quarry(
    source: str, kind: Kind, typical_grade: float, share: float, part: Part, articles: Iterable[str]
) -> _Quarry:
    paragraphs = dict.fromkeys(p for p in chain.from_iterable(map(_paragraphs, articles)) if part_of(p) is part)
    text = "\n\n".join(paragraphs)
    cuts = (0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text))
    return _Quarry(source=source, kind=kind, typical_grade=typical_grade, share=share, text=text, cuts=cuts)


def _blocks(article: str) -> Iterator[str]:
    return (block for block in re.split(r"\n\s*\n", article) if block.strip() and _is_english(block))


def _paragraphs(article: str) -> Iterator[str]:
    return (_unwrapped(block.rstrip()) for block in _blocks(article))


def _is_english(block: str) -> bool:
    """Mostly ASCII, and without surrogates, which package metadata may hold and UTF-8 cannot encode."""
    return block.isascii() or (
        sum(map(str.isascii, block)) > 0.95 * len(block) and not re.search("[\ud800-\udfff]", block)
    )


def _unwrapped(block: str) -> str:
    """Join the lines of prose, as on a web page. Indented text and lists keep their line breaks."""
    lines = block.splitlines()
    is_prose = all(line[:1].isalnum() or line[:1] in "\"'`(" for line in lines)
    return " ".join(lines) if is_prose else block


def _sentences(part: Part) -> list[str]:
    """Sentences of the educational prose of one part, from which the synthetic texts are made."""
    prose = _explanations(chain(_reference(), _numpy(), _stdlib().docstrings))
    sentences = chain.from_iterable(SENTENCE_END.split(p) for p in prose if part_of(p) is part)
    return sorted({s for s in sentences if 40 <= len(s) <= 200 and "\n" not in s and s[0].isalpha()})


@cache
def _reference() -> tuple[str, ...]:
    """The articles of Python's language reference, which CPython contains for help()."""
    from pydoc_data.topics import topics  # half a megabyte, which only the demo needs

    return tuple(topics[name] for name in sorted(topics))


@cache
def _numpy() -> tuple[str, ...]:
    """The documentation of numpy's functions, which explains much mathematics."""
    found = importlib.util.find_spec("numpy")
    assert found is not None
    assert found.origin is not None  # numpy is a dependency, and a package with an __init__.py
    modules = Path(found.origin).parent.glob("[!.]*/*.py")
    return tuple(chain.from_iterable(_long_strings(tree) for _, tree in _parsed(modules)))


@dataclass(frozen=True, kw_only=True)
class _Stdlib:
    docstrings: tuple[str, ...]
    code: tuple[str, ...]
    comments: tuple[str, ...]


@cache
def _stdlib() -> _Stdlib:
    """The contents of the standard library's modules. They are parsed, not imported: some have effects at import."""
    docstrings: list[str] = []
    code: list[str] = []
    comments: list[str] = []
    for source, tree in _parsed(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        docstrings.extend(_long_strings(tree))
        code.extend(_code_without_docstrings(source, tree))
        comments.extend(_comment_blocks(source))
    return _Stdlib(docstrings=tuple(docstrings), code=tuple(code), comments=tuple(comments))


def _parsed(modules: Iterable[Path]) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(modules):
        try:
            source = path.read_text(encoding="utf-8")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about old escapes in strings, which do not concern the user
                tree = ast.parse(source)
        except (SyntaxError, ValueError, OSError):  # a template or another encoding; there are enough other files
            continue
        yield source, tree


def _long_strings(tree: ast.Module) -> Iterator[str]:
    """Docstrings, and strings that become docstrings at run time, as in numpy for its compiled functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= 300:
            yield node.value


def _code_without_docstrings(source: str, tree: ast.Module) -> Iterator[str]:
    """The functions without their docstrings, which may be educational texts of the other part."""
    lines = source.splitlines()
    for node in tree.body:
        for function in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                statements = function.body[1:] if ast.get_docstring(function, clean=False) else function.body
                if statements:
                    signature = f"    def {function.name}({ast.unparse(function.args)}):"
                    yield "\n".join([signature, *lines[statements[0].lineno - 1 : function.end_lineno]])


def _comment_blocks(source: str) -> Iterator[str]:
    for match in COMMENT_BLOCK.finditer(source):
        yield re.sub(r"^[ \t]*#+ ?", "", match.group(), flags=re.MULTILINE)


@cache
def _distributions() -> tuple[importlib.metadata.Distribution, ...]:
    named = {found.metadata["Name"]: found for found in importlib.metadata.distributions() if found.metadata["Name"]}
    return tuple(named[name] for name in sorted(named))


def _licences() -> Iterator[str]:
    for distribution in _distributions():
        for name in sorted(distribution.metadata.get_all("License-File") or ()):
            yield distribution.read_text(f"licenses/{name}") or distribution.read_text(name) or ""


def _package_descriptions() -> Iterator[str]:
    for distribution in _distributions():
        description = distribution.metadata.json.get("description", "")
        yield description if isinstance(description, str) else ""


def _synthetic(paragraph: Callable[[random.Random], str]) -> Iterator[str]:
    rng = random.Random(0)  # the source text is always the same; the seed of the stream selects parts of it
    made = 0
    while made < SYNTHETIC_CHARACTERS:
        made += len(text := paragraph(rng))
        yield text


def _changelogs(sentences: list[str]) -> Iterator[str]:
    """Release notes made of the words of the prose, so that words alone do not identify them."""

    def release(rng: random.Random) -> str:
        version = f"{rng.randint(0, 9)}.{rng.randint(0, 30)}.{rng.randint(0, 12)}"
        date = f"{rng.randint(2009, 2024)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        verbs = ("Fix", "Add", "Document", "Deprecate", "Change", "Refactor", "Test")
        entries = [
            f"- {rng.choice(verbs)} {' '.join(sentence.split()[: rng.randint(3, 8)])} (#{rng.randint(1, 9999)})"
            for sentence in rng.sample(sentences, rng.randint(2, 9))
        ]
        return "\n".join([f"{version} ({date})", *entries])

    return _synthetic(release)


def _spam(sentences: list[str]) -> Iterator[str]:
    """Real words in random order, with repetitions."""
    words = sorted({word for sentence in sentences for word in re.findall(r"[A-Za-z]{3,}", sentence)})

    def keywords(rng: random.Random) -> str:
        chosen = rng.sample(words, rng.randint(5, 120))
        phrases = (" ".join(rng.choices(chosen, k=rng.randint(4, 20))) for _ in range(rng.randint(1, 8)))
        return " ".join(f"{phrase.capitalize()}." for phrase in phrases)

    return _synthetic(keywords)


def _navigation(sentences: list[str]) -> Iterator[str]:
    """Menus: the first words of real sentences as titles, mixed with links that most sites have."""
    titles = sorted({" ".join(sentence.split()[:3]) for sentence in sentences})
    links = ("Home", "About us", "Contact", "Log in", "Sign up", "Next", "Previous", "Privacy policy", "Search", "Top")

    def menu(rng: random.Random) -> str:
        items = rng.sample(links, rng.randint(2, 6)) + rng.sample(titles, rng.randint(3, 15))
        rng.shuffle(items)
        return rng.choice((" | ", " > ", "\n* ", "\n- ")).join(items)

    return _synthetic(menu)


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
LABELLED = pa.schema({"text": pa.string(), "label": pa.float64(), "kind": pa.string()})


def write_shards(folder: Path, *, shards: int, rows: int, seed: int, row_group_rows: int = 1000) -> list[Path]:
    """Write `000_00000.parquet` and so on, each with `rows` rows. A larger number of shards does not change the first."""
    paths = [folder / f"000_{number:05}.parquet" for number in range(shards)]
    stream = _fineweb_rows(seed)
    for path in paths:
        _write(path, FINEWEB, _row_groups(islice(stream, rows), FINEWEB, row_group_rows))
    return paths


def write_shard_of_size(path: Path, *, megabytes: float, seed: int, row_group_rows: int = 1000) -> None:
    """Write row groups until the file has `megabytes` (10**6 bytes). Only one row group is in memory at a time."""
    endless = _row_groups(_fineweb_rows(seed), FINEWEB, row_group_rows)
    _write(path, FINEWEB, endless, enough_bytes=megabytes * 1e6)


def write_labelled(path: Path, *, rows: int, seed: int) -> None:
    """Write texts with their grades, from paragraphs that no shard uses."""
    graded = islice(documents(seed, part=Part.TRAINING), rows)
    labelled = ({"text": one.text, "label": one.grade, "kind": one.kind.value} for one in graded)
    _write(path, LABELLED, _row_groups(labelled, LABELLED, 1000))


def true_kind(file_path: str) -> Kind:
    """The true kind of a row of a demo shard, from its `file_path`, to compare with its score."""
    found = re.search("/segments/demo/([^/]+)/", file_path)
    if not found or found[1] not in set(Kind):
        raise ValueError(
            f'"{file_path}" is not the file_path of a demo row: it does not contain /segments/demo/<kind>/.'
        )
    return Kind(found[1])


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
        "file_path": f"s3://commoncrawl/crawl-data/{CRAWL}/segments/demo/{document.kind}/{document.source}.warc.gz",
        "language": "en",
        "language_score": round(rng.uniform(0.65, 1.0), 4),
        "token_count": len(document.text) // 4,
    }


def _row_groups(rows: Iterable[dict[str, Any]], schema: pa.Schema, row_group_rows: int) -> Iterator[pa.Table]:
    remaining = iter(rows)
    while group := list(islice(remaining, row_group_rows)):
        yield pa.Table.from_pylist(group, schema)


def _write(path: Path, schema: pa.Schema, row_groups: Iterable[pa.Table], *, enough_bytes: float = math.inf) -> None:
    """Write to a temporary name and rename, so that a file at this path is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file, pq.ParquetWriter(file, schema, use_dictionary=False) as writer:
        for row_group in row_groups:
            writer.write_table(row_group)
            if file.tell() >= enough_bytes:
                break
    partial.replace(path)
