"""Text files that say what is expected. `make golden` writes them again: read their diff before you commit it."""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def check_golden(folder: str, name: str, text: str) -> None:
    file = FOLDER / folder / f"{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}.txt"
    if "SHARDSIFT_WRITE_GOLDEN" in os.environ:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{file} says otherwise. If the new text is right: make golden"
