"""The command `shardsift`: all commands of `producer` and `worker` under one name."""

from shardsift.fleet.process.command_line import Commands, run_command_line
from shardsift.producer.cli import new_control_side
from shardsift.worker import cli as worker

cli = new_control_side("shardsift", help="Score and filter Parquet datasets with transformer classifiers.")
machine = Commands(panel="Machines and models")
machine.add_typer(worker.cli, name="worker", rich_help_panel="Machines and models")
machine.command(
    epilog="Example: shardsift train --data labelled.parquet --base-model ./all-MiniLM-L6-v2 --output ./my-classifier",
)(worker.train)
cli.add_typer(machine)


def main() -> None:
    run_command_line("shardsift", cli)
