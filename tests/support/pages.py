"""The commands of our pages: the `sh` and `python` blocks, as one bash script that runs them in order.

A block that a test cannot run has the reason above it: `<!-- not run: it needs Docker -->`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?```(?P<language>sh|python)\n(?P<text>.*?)```", re.DOTALL
)
_SERVICE = re.compile(r"^(?:producer finalizer|producer flower|worker start)\b[^&]*$")  # not sent to the background


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code in a page. `reason` says why no test runs it; None if one does."""

    language: str
    text: str
    reason: str | None


def blocks_of(page: str | Path) -> list[Block]:
    found = _BLOCK.finditer((ROOT / page).read_text())
    return [Block(language=block["language"], text=block["text"], reason=block["reason"]) for block in found]


def texts_of(page: str | Path, language: str) -> list[str]:
    """Return all blocks of a language, including those that no test runs."""
    return [block.text for block in blocks_of(page) if block.language == language]


def script_of(page: str, *, instead: Mapping[str, str]) -> str:
    """Make a bash script of all blocks that can be run. Services run in the background, and end with the script.

    `instead` maps texts of the page to the test's own: an address, a name, a wait. Each must occur in the page.
    """
    script = "\n".join(_bash(block) for block in blocks_of(page) if block.reason is None)
    for text, other in instead.items():
        assert text in script, f"{page} does not say {text!r} any more"
        script = script.replace(text, other)
    return f"set -eux\nPS4='+ \\t '  # with the time\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{script}"


def _bash(block: Block) -> str:
    if block.language == "python":
        return f"python - <<'END_OF_PYTHON'\n{block.text}END_OF_PYTHON"
    return "\n".join(_in_background(line) for line in block.text.splitlines())


def _in_background(line: str) -> str:
    command = line.partition("  #")[0].rstrip()
    return f"{command} &" if _SERVICE.match(command) else line
