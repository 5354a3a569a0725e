"""What the README says is so: its commands exist with their options, its files are there, and the demo runs."""

import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
import yaml

from shardsift.producer.cli import cli as producer_cli
from shardsift.worker.cli import cli as worker_cli
from support.pages import ROOT, texts_of
from support.processes import run_command

PAGES = (
    "README.md",
    "ops/README.md",
    "ops/systemd/README.md",
    "ops/kubernetes/README.md",
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/inputs.md",
    "docs/coming_from.md",
    "docs/own_scorer.md",
    "docs/python.md",
    "docs/several_gpus.md",
    "docs/tutorial.md",
    "docs/without_the_hub.md",
    "docs/security.md",
    "examples/fasttext_scorer/README.md",
    "examples/own_scorer/README.md",
)
COMMANDS = {"producer": typer.main.get_command(producer_cli), "worker": typer.main.get_command(worker_cli)}


def shell_lines(page: str) -> list[list[str]]:
    """The commands of a page's `sh` blocks."""
    lines = [line for text in texts_of(page, "sh") for line in text.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := words_of(line))]


def words_of(line: str) -> list[str]:
    """A command without leading VARIABLE=value, redirections and a trailing `&`."""
    words = shlex.split(line, comments=True)
    words = words[next((i for i, word in enumerate(words) if "=" not in word), 0) :]
    return words[
        : next((i for i, word in enumerate(words) if word in ("&", ">", "&&") and words[0] != "git"), len(words))
    ]


def wanted() -> list[list[str]]:
    """The commands of the tables of docs/cli.md."""
    rows = re.findall(r"^\| .* \| (`.+`) \|$", (ROOT / "docs/cli.md").read_text(), flags=re.MULTILINE)
    return [words_of(command) for row in rows for command in re.findall(r"`([^`]+)`", row)]


OUR_LINES = [
    line for line in [*(line for page in PAGES for line in shell_lines(page)), *wanted()] if line[0] in COMMANDS
]


@pytest.mark.parametrize("line", OUR_LINES, ids=" ".join)
def test_every_command_of_the_docs_is_accepted(line: list[str]) -> None:
    command, words = COMMANDS[line[0]], list(line)
    while hasattr(command, "commands"):  # `collect` has subcommands of its own
        command = command.commands[words[1]]
        words = words[1:]

    command.make_context(words[0], words[1:], resilient_parsing=False)


def test_every_make_target_of_the_docs_and_of_ci_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    runs = [step["run"].split() for job in jobs.values() for step in job["steps"] if "run" in step]
    lines = [*runs, *(line for page in PAGES for line in shell_lines(page))]
    targets = {line[1] for line in lines if line[0] == "make"}

    assert targets >= {"demo", "test", "test-light", "test-wheel"}
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)
    assert re.search(r"^demo: .*\n\t\$\(BIN\)/producer demo$", makefile, flags=re.MULTILINE)  # which a test below runs


DEMO_OF_FEW_ROWS = """
import sys
from pathlib import Path
from shardsift.fleet.process.settings import read_settings
from shardsift.producer.local.demo import show_demo
sys.exit(show_demo(Path(sys.argv[1]), read_settings(), rows=20))
"""


@pytest.mark.slow  # it loads torch five times
def test_the_demo_runs_and_says_where_everything_is(tmp_path: Path) -> None:
    folder = tmp_path / "demo"

    done = run_command("python", "-c", DEMO_OF_FEW_ROWS, folder, environment={"HF_HUB_OFFLINE": "1"})

    assert done.returncode == 0, done.stderr
    assert "160 rows in" in done.stdout
    assert "Identical, file by file." in done.stdout
    assert "120 texts. Nothing is printed meanwhile, on two CPU cores for about 12 s" in done.stderr
    killed = re.search(
        r"^Killed a worker with SIGKILL after \d of 8 shards\. Another takes over", done.stderr, re.MULTILINE
    )
    assert bool(killed) == ("A worker was killed with SIGKILL" in done.stdout)
    places = re.findall(r"^\w.*?  +(/\S+)$", done.stdout, flags=re.MULTILINE)
    assert len(places) == 6
    assert all(Path(place).exists() for place in places)
    assert pq.read_table(folder / "kept/data").num_rows > 20
