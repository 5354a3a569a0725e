"""A headless Chromium that loads a page of Flower, with its login, and lets its script ask for data."""

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium")
# For a browser that runs as root and looks for no updates.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
LOGIN = "me:a-password"

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


def page(port: int, path: str, profile: Path) -> str:
    """The page's HTML after five seconds of its own clock."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom"]
    shown = subprocess.run(
        [*command, f"http://{LOGIN}@127.0.0.1:{port}{path}"], capture_output=True, text=True, timeout=60, check=True
    )
    return shown.stdout
