"""The command `worker`."""

from fleet.process.command_line import new_command_line, run_command_line
from worker.commands import start, train, tune

cli = new_command_line(
    "worker", help="The data side of shardsift: the workers of a machine, one per GPU, score shards on it."
)
for subcommands in (start, tune, train):
    cli.add_typer(subcommands.commands)


def main() -> None:
    run_command_line("worker", cli)


if __name__ == "__main__":
    main()
