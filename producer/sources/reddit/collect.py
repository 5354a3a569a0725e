"""Collect posts into a file: page by page, each kept at once, and the file written whole at the end.

The same command after a crash, a stop or an outage goes on with the next page. After the end it changes nothing.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleet.counted import counted
from fleet.errors import UsageError
from producer.sources.reddit.access import open_reddit
from producer.sources.reddit.collection import Collection
from producer.sources.reddit.journal import Journal, Page, opened_journal
from producer.sources.reddit.listings import Listings, Unavailable
from producer.sources.reddit.posts import Post, rows_of, write_posts


@dataclass(frozen=True, kw_only=True)
class Collected:
    """How a collection ended. Without a post there is no file."""

    posts: int
    left_out: dict[str, str]  # subreddit → the reason


def collect(collection: Collection, output: Path, *, retry_seconds: float, say: Callable[[str], None]) -> Collected:
    """Write the posts to `output`, and `say` what happens. Raises UsageError, and TransientError if Reddit is away too long."""
    _check_output(output)
    _written(output, collection)
    with opened_journal(output, collection) as journal:
        if (posts := _written(output, collection)) is not None:
            journal.clear()
            say(f"{output} is complete: {counted(posts, 'post')}. Delete it to collect again.")
            return Collected(posts=posts, left_out={})
        if journal.pages:
            say(f"Resuming: {counted(len(_posts(journal)), 'post')} of an earlier command are kept.")
        listings = Listings(reddit=open_reddit(), collection=collection, retry_seconds=retry_seconds, say=say)
        left_out = _fetch(collection, listings, journal, say=say)
        found = _posts(journal)
        if found:
            write_posts(output, found, collection)
            say(f"{counted(len(found), 'post')} in {output}.")
        journal.clear()
        return Collected(posts=len(found), left_out=left_out)


def _check_output(output: Path) -> None:
    """Raises UsageError before anything is asked if the file cannot be written."""
    if ":/" in str(output):
        raise UsageError(f"--output {output} is not a file on this machine. Write one here, and copy it there.")
    if output.suffix != ".parquet":
        raise UsageError(f"--output {output} must end in .parquet, because a run reads the format from it.")
    folder = output.absolute().parent
    if not os.access(folder, os.W_OK) or output.is_dir():
        raise UsageError(
            f"--output {output} cannot be written. Name a file in a folder that exists and can be written."
        )


def _written(output: Path, collection: Collection) -> int | None:
    """The rows that this collection has written, or None if it has not. Raises UsageError if something else is there."""
    if not output.exists():
        return None
    rows = rows_of(output, collection)
    if rows is None:
        raise UsageError(f"{output} is there already, and not by this command. Choose another --output, or delete it.")
    return rows


def _fetch(
    collection: Collection, listings: Listings, journal: Journal, *, say: Callable[[str], None]
) -> dict[str, str]:
    """Add what is missing to the journal. Returns the subreddits that are left out, with the reason."""
    left_out = {}
    for subreddit in collection.subreddits:
        reason = _fetch_subreddit(subreddit, collection.limit, listings, journal)
        found = sum(len(page.posts) for page in journal.pages if page.subreddit == subreddit)
        if reason and not found:
            left_out[subreddit] = reason
            say(f"Warning: r/{subreddit} is left out: {reason}.")
        elif reason:
            say(f"Warning: r/{subreddit} ends after {counted(found, 'post')}: {reason}.")
        else:
            ended = "" if found >= collection.limit else ", all that its listing has"
            say(f"r/{subreddit}: {counted(found, 'post')}{ended}.")
    return left_out


def _fetch_subreddit(subreddit: str, limit: int, listings: Listings, journal: Journal) -> str | None:
    """Pages of one subreddit until the limit or the end of its listing. Returns why there is none, or no further one."""
    known = {post.id for post in _posts(journal)}
    pages = [page for page in journal.pages if page.subreddit == subreddit]
    missing = limit - sum(len(page.posts) for page in pages)
    after = pages[-1].after if pages else None
    if pages and after is None:
        return None
    while missing > 0:
        page = listings.page(subreddit, after=after, most=missing)
        if isinstance(page, Unavailable):
            return page.reason
        new = tuple(post for post in page.posts if post.id not in known)  # posts move while pages are fetched
        journal.add(Page(subreddit=subreddit, posts=new, after=page.after))
        known.update(post.id for post in new)
        missing, after = missing - len(new), page.after
        if after is None:
            return None
    return None


def _posts(journal: Journal) -> list[Post]:
    return [post for page in journal.pages for post in page.posts]
