"""docs/troubleshooting.md and docs/reliability.md quote messages that the code really says."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE, flags=re.MULTILINE)
SEEN = re.findall(r"^\| .+? \| (.+?) \| .+ \| .+ \|$", (ROOT / "docs/reliability.md").read_text(), flags=re.MULTILINE)
SENTENCES = [said for cell in SEEN for said in re.findall(r"`([^`]+)`", cell) if " " in said]


@pytest.mark.parametrize("message", [*QUOTED, *SENTENCES])
def test_every_message_of_the_pages_is_in_the_code(message: str) -> None:
    fixed_parts = [part.strip(" ") for part in message.split("…")]
    wanted = re.compile(".*".join(map(re.escape, fixed_parts)), flags=re.DOTALL)

    assert any(wanted.search(text) for text in messages_of_the_code())


def test_every_line_of_its_tables_quotes_one() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| message")]

    assert len(QUOTED) == len(lines) > 10


@cache
def messages_of_the_code() -> frozenset[str]:
    """The texts of the product, with `…` for each value that is filled in."""
    files = [file for folder in ("shardsift/fleet", "producer", "worker") for file in (ROOT / folder).rglob("*.py")]
    return frozenset(text for file in files for text in _texts(ast.parse(file.read_text())))


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
