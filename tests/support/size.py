"""Count what a reader must carry: lines of Python without blanks, comments, docstrings and imports; options; words of docs."""

import ast
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from typer.main import get_command

from shardsift.producer.cli import cli as producer
from shardsift.worker.cli import cli as worker

_PARTS = {
    "product": ("producer/", "worker/", "shardsift/"),
    "tests": ("tests/",),
    "chaos, benchmarks": ("chaos/", "benchmarks/"),
}
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class Size:
    files: int
    code: int  # lines
    imports: int  # lines

    def __str__(self) -> str:
        return f"{self.files} files, {self.code:,} lines of code, imports {self.imports / max(self.code, 1):.0%} of it"


def size_of(files: list[Path]) -> Size:
    code = imports = 0
    for file in files:
        tree = ast.parse(file.read_text())
        imported = _lines(node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
        docstrings = _lines(filter(None, map(_docstring, ast.walk(tree))))
        with tokenize.open(file) as text:
            tokens = [token for token in tokenize.generate_tokens(text.readline) if token.type not in _LAYOUT]
        lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
        code += len(lines - docstrings - imported)
        imports += len(imported)
    return Size(files=len(files), code=code, imports=imports)


def _docstring(node: ast.AST) -> ast.stmt | None:
    if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
        return node.body[0]
    return None


def _lines(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _options() -> dict[str, int]:
    """The number of options of each command, without --help."""
    return {
        f"{program} {name}": sum(parameter.param_type_name == "option" for parameter in command.params)
        for program, cli in (("producer", producer), ("worker", worker))
        for name, command in get_command(cli).commands.items()  # type: ignore[attr-defined]
    }


def _report() -> Iterator[str]:
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    for part, folders in _PARTS.items():
        files = [Path(name) for name in tracked if name.endswith(".py") and name.startswith(folders)]
        yield f"{part}: {size_of(files)}"
    options = _options()
    most = max(options, key=lambda command: options[command])
    yield f"options: {sum(options.values())}, most of them on {most}: {options[most]}"
    words = sum(len(Path(name).read_text().split()) for name in tracked if name.endswith(".md"))
    yield f"Markdown: {words:,} words"


if __name__ == "__main__":
    sys.stdout.write("\n".join(_report()) + "\n")
