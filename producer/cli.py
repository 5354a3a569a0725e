"""The command `producer`."""

import typer

from shardsift.fleet.process.command_line import new_command_line, run_command_line
from shardsift.producer.commands import evidence, inspect, services, start, steer

_EXIT_CODES = (
    "Exit codes: 0 done; 1 some shards failed, the run cannot be published, or its output is damaged; "
    "2 wrong options or no Redis; 3 not finished yet, or the Hub or a storage has trouble: run the same command again; "
    "4 cancelled; 5 an unexpected error, which is a bug; 130 interrupted."
)


def new_control_side(name: str, *, help: str) -> typer.Typer:
    """Create a Typer app with all commands of `producer`."""
    cli = new_command_line(name, help=f"{help}\n\n{_EXIT_CODES}")
    for subcommands in (start, inspect, evidence, steer, services):
        cli.add_typer(subcommands.commands)
    return cli


cli = new_control_side(
    "producer",
    help="The control side of shardsift: score and filter Parquet datasets with transformer classifiers.",
)


def main() -> None:
    run_command_line("producer", cli)
