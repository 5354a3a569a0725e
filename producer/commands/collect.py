"""Collect rows to score from a service."""

from pathlib import Path
from typing import Annotated

import typer

from fleet.command_line import Commands, print_json, say
from producer.commands.arguments import AsJson
from producer.sources.reddit.collection import Sort, TimeFilter, collection_of

EXAMPLE = "Example: producer collect reddit --subreddits technology,climate --limit 100 --output posts.parquet"

commands = Commands(no_args_is_help=True)


@commands.command(epilog=EXAMPLE)
def reddit(
    subreddits: Annotated[
        str, typer.Option(metavar="NAME,…", help="Subreddits, with commas between them. Those given twice count once.")
    ],
    output: Annotated[
        Path,
        typer.Option(metavar="FILE.parquet", help="A new file. It appears when all posts are there, and then whole."),
    ],
    limit: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Posts of each subreddit. Reddit's listings end at about 1,000."),
    ] = 100,
    sort: Annotated[Sort, typer.Option(help="Which posts of a subreddit come first.")] = "new",
    time_filter: Annotated[
        TimeFilter | None,
        typer.Option(help="How far back --sort top looks. Default: all."),
    ] = None,
    retry_seconds: Annotated[
        float,
        typer.Option(
            min=0, metavar="S", help="Give up when Reddit has refused a request or not answered for this long."
        ),
    ] = 900,
    as_json: AsJson = False,
) -> None:
    """Collect posts of subreddits into a Parquet file that `producer run` scores.

    Columns: id, title, selftext, subreddit, score, url, date, permalink. The file has a score of Reddit's, so name that of a
    run otherwise: --score-column topic_score.

    Reads the credentials of your Reddit app from praw_client_id and praw_client_secret, or from praw.ini, as PRAW does, and
    stores them nowhere. Keeps to Reddit's rate limit. Subreddits that are missing, private, banned or quarantined are left
    out with a warning.

    After a stop, a crash or an outage, the same command goes on with the next page. Exits with 1 if there was no post at all,
    and with 3 if Reddit did not answer long enough: what was collected is kept.
    """
    from importlib.util import find_spec

    from fleet.errors import TransientError, UsageError
    from producer.status import ExitCode

    collection = collection_of(subreddits, sort=sort, time_filter=time_filter, limit=limit)
    if not find_spec("praw"):
        raise UsageError("Collecting from Reddit needs PRAW. Install it with: pip install 'shardsift[reddit]'.")
    from producer.sources.reddit.collect import collect

    try:
        done = collect(collection, output, retry_seconds=retry_seconds, say=say)
    except TransientError as error:
        say(f"producer: {error} What was collected is kept. Run the same command again to go on.")
        raise typer.Exit(ExitCode.RUNNING) from error
    except KeyboardInterrupt as stop:
        say("Stopped. Run the same command again to go on.")
        raise typer.Exit(ExitCode.INTERRUPTED) from stop
    if as_json:
        print_json({"output": str(output), "posts": done.posts, "left_out": done.left_out})
    elif done.posts:
        typer.echo(output)
    if not done.posts:
        say("producer: No post was collected, so there is no file.")
        raise typer.Exit(ExitCode.FAILED)
