"""The command `worker`. Options become settings of the environment, which the spawned child reads too."""

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fleet.command_line import run_command_line

cli = typer.Typer(
    name="worker",
    help="The data side of shardsift: one process that owns one GPU and scores shards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@cli.command(
    epilog="Example: CUDA_VISIBLE_DEVICES=0 REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password worker start"
)
def start(
    model: Annotated[
        str | None, typer.Option(help="Hub name or folder. Default: SHARDSIFT_MODEL, else fineweb-edu-classifier.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the model.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="auto, float32, bfloat16, float16, int8 or fp8; serves runs of the same --dtype.")
    ] = None,
    name: Annotated[
        str, typer.Option(help="Name of this worker, before the @host. Give each on a machine its own.")
    ] = "worker",
    threads: Annotated[int | None, typer.Option(help="CPU threads of the model. 0: as many as torch takes.")] = None,
    max_batch_tokens: Annotated[int | None, typer.Option(help="Tokens that go through the model at once.")] = None,
    backend: Annotated[
        str | None, typer.Option(help="auto, padded or packed: whether texts of a batch are padded to one length.")
    ] = None,
    compile: Annotated[
        bool | None, typer.Option("--compile", help="Use torch.compile: a slow start, then more rows a second.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Load a model, then score shards until told to stop.

    SIGTERM or Ctrl-C stops it between two batches: its shard goes back to the queue, and it exits.
    """
    settings = {
        "SHARDSIFT_MODEL": model,
        "SHARDSIFT_MODEL_REVISION": revision,
        "SHARDSIFT_DTYPE": dtype,
        "SHARDSIFT_THREADS": threads,
        "SHARDSIFT_MAX_BATCH_TOKENS": max_batch_tokens,
        "SHARDSIFT_BACKEND": backend,
        "SHARDSIFT_COMPILE": compile,
    }
    os.environ.update({key: str(value) for key, value in settings.items() if value is not None})
    raise typer.Exit(_run_celery(["worker", "--hostname", f"{name}@%h", "--loglevel", log_level, *_QUIET]))


_QUIET = ("--without-mingle", "--without-gossip")  # chatter between workers that a fleet of hundreds does not need


def _run_celery(arguments: list[str]) -> int:
    from worker.app import app
    from worker.child_signal import EXIT_NO_MODEL, FAILURE_FILE

    with tempfile.TemporaryDirectory(prefix="shardsift-worker-") as folder:
        failure = Path(folder, "failure")
        os.environ[FAILURE_FILE] = str(failure)
        code = _exit_code_of(lambda: app.worker_main(arguments))
        if not failure.exists():
            return code
        typer.echo(f"worker: {failure.read_text()}", err=True)
        return EXIT_NO_MODEL


def _exit_code_of(action: Callable[[], None]) -> int:
    try:
        action()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0


@cli.command(epilog="Example: worker train labelled.parquet --encoder ./all-MiniLM-L6-v2 --output ./my-classifier")
def train(
    texts: Annotated[Path, typer.Argument(help="Parquet with the columns `text` and `label` (a number).")],
    encoder: Annotated[str, typer.Option(help="Hub name or folder of the encoder; `demo` is the demo's MiniLM.")],
    output: Annotated[Path, typer.Option(help="Folder for the classifier.")],
    max_tokens: Annotated[int, typer.Option(help="Tokens of a text that are looked at.")] = 512,
) -> None:
    """Fit a regression head on a frozen encoder, as fineweb-edu-classifier's was, and save the classifier.

    Prints a JSON report with the accuracy on the fifth of the rows that were held out.
    """
    import pyarrow.parquet as pq

    from worker.demo_encoder import DemoEncoderError, verified_demo_encoder
    from worker.training import HeadError, fit_head

    try:
        table = pq.read_table(texts, columns=["text", "label"])
        source = verified_demo_encoder() if encoder == "demo" else encoder
        report = fit_head(source, table["text"].to_pylist(), table["label"].to_numpy(), output, max_tokens=max_tokens)
    except (HeadError, DemoEncoderError, OSError, ValueError) as error:
        typer.echo(f"worker: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo(json.dumps(dataclasses.asdict(report)))


def main() -> None:
    run_command_line("worker", cli)


if __name__ == "__main__":
    main()
