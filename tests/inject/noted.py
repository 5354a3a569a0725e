"""Record what a process does to the ledger and to outputs: a line of JSON for each effect, in a file that all share.

A line is written right after its effect. A process that is killed in between leaves an effect without a line, but never a
line without an effect.
"""

import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LEDGER = "shardsift.fleet.ledger.ledger:Ledger"
_OUTPUTS = ("shardsift.fleet.storage.folder:FolderOutput", "shardsift.fleet.storage.hub:HubOutput")

Note = Callable[..., None]


def note_events(log: Path) -> Note:
    """Record claims, completions, releases, sweeps and publications from now on.

    Returns a function that records other events.
    """
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, **fields: Any) -> None:
        line = {"at": round(time.time(), 4), "what": what, "pid": os.getpid(), "parent": os.getppid(), **fields}
        os.write(file, f"{json.dumps(line)}\n".encode())

    _after(
        _LEDGER,
        "claim",
        lambda result, _self, run_id, shard, **_: _note_claim(note, result, run_id, shard),
    )
    _after(_LEDGER, "complete", lambda _result, _self, claim, *_: _note_end(note, "complete", claim))
    _after(_LEDGER, "release", lambda _result, _self, claim, *_: _note_end(note, "release", claim))
    _after(_LEDGER, "take_due", lambda _result, _self, run_id, **_: note("due", run=run_id))
    for output in _OUTPUTS:
        _before(output, "publish", lambda self, *_, **__: note("publishing", run=self.run_id))
        _after(output, "publish", lambda _result, self, *_, **__: note("publish", run=self.run_id))
    return note


def _before(at: str, method: str, look: Callable[..., None]) -> None:
    """Call `look` with the arguments before each call of the method."""

    def with_findings(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return real(*args, **kwargs)

    _put_around(at, method, with_findings)


def _after(at: str, method: str, look: Callable[..., None]) -> None:
    """Call `look` with the result and the arguments after each call of the method that returns."""

    def with_findings(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        look(result, *args, **kwargs)
        return result

    _put_around(at, method, with_findings)


def _put_around(at: str, method: str, wrapper: Callable[..., Any]) -> None:
    module, _, name = at.partition(":")
    holder = getattr(importlib.import_module(module), name)
    real = getattr(holder, method)
    setattr(holder, method, lambda *args, **kwargs: wrapper(real, *args, **kwargs))


def _note_claim(note: Note, claim: Any, run_id: str, shard: str) -> None:
    if hasattr(claim, "token"):  # a Refusal has no token
        note("claim", run=run_id, shard=shard, token=claim.token)


def _note_end(note: Note, what: str, claim: Any) -> None:
    note(what, run=claim.run_id, shard=claim.shard.name, token=claim.token)
