"""A headless Chromium that a test drives by its DevTools protocol: window, colour scheme, scripts in a page.

The protocol: https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import itertools
import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websocket import WebSocket, create_connection

from shardsift.fleet.process.children import running
from support.waiting import wait_until

CHROMIUM = shutil.which("chromium")
# For a browser that runs as root and looks for no updates.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

_ANSWER_SECONDS = 60


class Navigating(Exception):
    """The tab is between two pages."""


class Tab:
    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    def log_in(self, login: str) -> None:
        """Send `user:password` with each later request of the page, including those of scripts."""
        header = "Basic " + base64.b64encode(login.encode()).decode()
        self._call("Network.enable")
        self._call("Network.setExtraHTTPHeaders", headers={"Authorization": header})

    def open(self, url: str, *, until: str) -> None:
        """Load a page, and wait until the JavaScript expression `until` is true in it."""
        for address, is_there in (("about:blank", "true"), (url, until)):  # so that the previous page is gone
            self._call("Page.navigate", url=address)
            self.wait_for(f"location.href === {address!r} && Boolean({is_there})")

    def value(self, script: str) -> Any:
        """Evaluate a JavaScript expression in the page, and return its value or the result of its promise.

        The page's content security policy does not apply to the expression.
        """
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until the JavaScript expression is true in the page."""

        def is_true() -> bool:
            with suppress(Navigating):
                return bool(self.value(script))
            return False

        wait_until(is_true, description=script, seconds=_ANSWER_SECONDS)

    def _call(self, method: str, **parameters: object) -> Any:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:  # events arrive between the answers
            said = json.loads(self._socket.recv())
            if said.get("id") != number:
                continue
            if "execution context" in said.get("error", {}).get("message", "").lower():
                raise Navigating
            assert "error" not in said, said["error"]
            return said["result"]


@contextmanager
def open_browser(folder: Path) -> Iterator[Tab]:
    """Run a browser with an empty profile in `folder` during the block."""
    profile = folder / "profile"
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    with running(command, log=folder / "chromium.log", stop_seconds=10):
        port_file = profile / "DevToolsActivePort"
        port, _ = wait_until(lambda: _two_lines(port_file), description="the browser has a port")
        address = wait_until(lambda: _address_of_tab(port), description="the browser has a tab")
        with closing(create_connection(address, timeout=_ANSWER_SECONDS, suppress_origin=True)) as socket:
            yield Tab(socket)


def _two_lines(file: Path) -> list[str] | None:
    """Return the lines of the file, or None while it is incomplete."""
    lines = file.read_text().splitlines() if file.exists() else []
    return lines if len(lines) == 2 else None


def _address_of_tab(port: str) -> str | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=_ANSWER_SECONDS) as answer:
        return next((one["webSocketDebuggerUrl"] for one in json.load(answer) if one["type"] == "page"), None)
