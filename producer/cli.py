"""The command `producer`."""

from fleet.process.command_line import new_command_line, run_command_line
from producer.commands import inspect, services, start, steer

cli = new_command_line(
    "producer",
    help="The control side of shardsift: score and filter Parquet datasets with transformer classifiers.\n\n"
    "Exit codes: 0 done; 1 some shards failed, the run cannot be published, or its output is damaged; "
    "2 wrong options or no Redis; 3 not finished yet, or the Hub or a storage has trouble: run the same command again; "
    "4 cancelled; 130 interrupted.",
)
for subcommands in (start, inspect, steer, services):
    cli.add_typer(subcommands.commands)


def main() -> None:
    run_command_line("producer", cli)
