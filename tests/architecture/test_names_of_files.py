"""What comments, docstrings and docs say of the repository's files is true."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LISTED = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=False).stdout.split(
    "\n"
)
FILES = [name for name in _LISTED if name and (ROOT / name).is_file()]
_NAMED = re.compile(r"(?<![\w/.:~<{$*-])((?:[\w.-]+/)*[\w-]+\.(?:py|lua|md|toml|yaml|yml|sh|conf))(?![\w/*])")
_OF_OTHERS = {
    "flowerconfig.py",  # of Flower
    "script.py",  # that a test writes
    "tf_batching.py",  # of finepdfs
    "modeling.py",  # of Alibaba-NLP's new-impl
    "modeling_custom.py",
    "docs/source/en/model_doc/gte.md",  # of transformers
    "nemo_curator/stages/text/classifiers/base.py",
}


def comments_and_docstrings(source: str) -> Iterator[str]:
    yield from (
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    )
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    yield from (ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, documented))


def told(file: str) -> str:
    """What a person reads in a file: the text of a page, and of code its comments and docstrings."""
    text = (ROOT / file).read_text()
    if file.endswith(".md"):
        return text
    if file.endswith(".py"):
        return "\n".join(comments_and_docstrings(text))
    return "\n".join(line for line in text.splitlines() if line.strip().startswith(("#", "--")))


@pytest.mark.skipif(not FILES, reason="not a clone")
def test_every_file_that_is_named_exists() -> None:
    ends = {"/" + file[place:] for file in FILES for place in (0, *(found.end() for found in re.finditer("/", file)))}
    read = [
        file for file in FILES if file.endswith((".md", ".py", ".lua", ".toml", ".yaml", ".yml", ".sh", "Makefile"))
    ]

    def unknown(text: str) -> list[str]:
        return [
            name
            for name in dict.fromkeys(_NAMED.findall(text))
            if "/" + re.sub(r"^(\.\./|\./)+|^shardsift/(?=producer/|worker/)", "", name) not in ends
            if name not in _OF_OTHERS
        ]

    missing = [
        f"{file}: {name}"
        for file in read
        if not file.startswith(("CHANGELOG", "chaos/results", "benchmarks/results"))
        if unknown((ROOT / file).read_text())  # to take comments and docstrings out of each file would take ten seconds
        for name in unknown(told(file))
    ]

    assert missing == []


def test_readme_and_the_page_that_it_links_count_the_same_faults() -> None:
    storms = [(ROOT / f"chaos/results/2026-11-22-seed-{seed}.txt").read_text() for seed in range(2041, 2045)]
    faults = [int(found) for storm in storms for found in re.findall(r"^(\d+) faults in all", storm, re.MULTILINE)]

    (readme,) = re.findall(r"([\d,]+) faults injected in four storms", (ROOT / "README.md").read_text())
    (page,) = re.findall(r"\*\*in all\*\* \| \*\*([\d,]+)\*\*", (ROOT / "docs/reliability.md").read_text())

    assert readme == page == f"{sum(faults):,}"
