"""The options that `enqueue` and `run` share: one line each, from which both commands and `RunOptions` are made."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from fleet.defaults import DEFAULT_DATASET, DEFAULT_MODEL


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a user may say about a run. The annotations are the command line's."""

    crawl: Annotated[str | None, typer.Option(help="Common Crawl release to read, for example CC-MAIN-2024-10.")] = None
    dataset: Annotated[str, typer.Option(help="Dataset of the crawl, shaped data/<crawl>/*.parquet.")] = DEFAULT_DATASET
    input_uri: Annotated[
        str | None, typer.Option("--input", help="Instead of a crawl: a file, folder, glob or URL (hf://, s3://, …).")
    ] = None
    model: Annotated[str, typer.Option(help="Sequence classifier: a Hub name or a folder.")] = DEFAULT_MODEL
    model_revision: Annotated[
        str | None,
        typer.Option("--revision", help="Branch, tag or commit of the model. Default: its main branch, now."),
    ] = None
    dtype: Annotated[
        str, typer.Option(help="auto (16-bit where the device is fast at it), float32, bfloat16 or float16.")
    ] = "auto"
    text_column: Annotated[str, typer.Option(help="Column to score.")] = "text"
    score_column: Annotated[str, typer.Option(help="Name of the added column.")] = "score"
    int_score: Annotated[
        bool | None,
        typer.Option(
            "--int-score/--no-int-score", help="Add FineWeb-Edu's rounded score. Default: for its classifier."
        ),
    ] = None
    min_score: Annotated[float | None, typer.Option(help="Keep rows whose raw score is at least this. Default: 3.")] = (
        None
    )
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Keep rows for which this is true, for example 'int_score >= 3'.")
    ] = None
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Keep every row that could be scored.")] = False
    output_uri: Annotated[
        str, typer.Option("--output", help="A folder, a URL, or hf://datasets/<user>/<name>. Required.")
    ] = ""
    limit_shards: Annotated[int | None, typer.Option(min=1, help="Read the first shards only.")] = None
    limit_rows: Annotated[int | None, typer.Option(min=1, help="Read so many rows only, over all shards.")] = None


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all fields of RunOptions as options; it gets them as its first argument."""
    shared = list(inspect.signature(RunOptions).parameters.values())
    own = list(inspect.signature(command).parameters.values())[1:]

    @wraps(command)
    def collected(**given: Any) -> None:
        options = RunOptions(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        command(options, **given)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*shared, *own)]
    collected.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    collected.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return collected
