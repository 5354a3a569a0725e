"""In a terminal of 80 columns, `producer runs` shows every id so that it can be copied."""

import re

from fleet.ledger import Ledger
from support.processes import run_command
from support.records import a_shard, a_spec

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def test_no_id_is_wrapped_or_cut(ledger: Ledger, redis_url: str) -> None:
    spec = a_spec(output_uri="/data/kept")
    ledger.create_run(spec, [a_shard("a")], now=1.0)

    terminal = {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"}
    done = run_command("producer", "runs", environment={"REDIS_URL": redis_url, **terminal})

    assert done.returncode == 0, done.stderr
    lines = _COLOURS.sub("", done.stdout).splitlines()
    assert max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines} >= {"run", spec.run_id}
    (row,) = (line for line in lines if line.startswith(spec.run_id))
    assert row.split()[1] == "queued"
    assert "use a wider terminal or --json." in done.stderr
