"""Train a classifier on the fleet."""

from typing import Annotated

import typer

from fleet.command_line import Commands, print_json, say
from fleet.training.options import TrainOptions, with_train_options
from producer.commands.arguments import AsJson, Priority
from producer.commands.reports import report_training

commands = Commands()


@commands.command(
    rich_help_panel="Runs",
    epilog="Example: producer train --data hf://datasets/me/labelled --base-model BAAI/bge-small-en-v1.5 --output hf://me/my-model",
)
@with_train_options
def train(
    options: TrainOptions,
    wait: Annotated[bool, typer.Option("--wait", help="Show progress and return when the training ends.")] = False,
    priority: Priority = None,
    as_json: AsJson = False,
) -> None:
    """Train a classifier on the fleet, as `worker train` does on one machine. Running it twice adds nothing.

    A worker of `worker start` or `worker start --train` trains it on one GPU. All machines must reach data, output and
    checkpoints: in folders by the same path, or without a shared folder as hf://datasets/…, hf://USER/NAME and
    s3://BUCKET/FOLDER. If the worker dies or stops, another one goes on after the last checkpoint.

    Prints the id of the training, for `producer status`, `pause`, `resume`, `cancel` and `retry`.
    """
    from fleet.broker import make_app
    from fleet.errors import UsageError
    from fleet.ledger import Ledger
    from fleet.ledger.rights import PRODUCER
    from fleet.settings import read_settings
    from producer.steering import SteeringOptions
    from producer.training.enqueue import enqueue_training
    from producer.training.plan import plan_training
    from producer.training.status import training_status
    from producer.training.watch import watch_training

    settings = read_settings()
    if settings.ledger_url is None:
        raise UsageError(
            "No Redis is named, so there is no fleet. Set REDIS_URL, or train on this machine: worker train."
        )
    ledger = Ledger.connect(settings, role=PRODUCER).trainings
    plan = plan_training(options)
    training_id = enqueue_training(
        plan,
        ledger,
        make_app("producer", settings),
        resend_seconds=settings.resend_seconds,
        steering=SteeringOptions(priority=priority),
    )
    status = training_status(ledger, training_id)
    if plan.warning and not status.is_over:
        say(plan.warning)
    if wait:
        report_training(watch_training(ledger, training_id), as_json=as_json)
    say(f"Training {training_id}: {status.word}. Watch it: producer status {training_id}")
    if as_json:
        print_json({"training_id": training_id, "state": status.word, "output_uri": status.training.spec.output_uri})
    else:
        typer.echo(training_id)
