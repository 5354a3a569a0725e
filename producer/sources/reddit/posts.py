"""A post, and the Parquet file of posts that a run can score."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from producer.sources.reddit.collection import Collection

_REDDIT = "https://www.reddit.com"
_COLLECTION = b"shardsift.collection"  # in the file's metadata
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),  # as in https://redd.it/<id>
        pa.field("title", pa.string(), nullable=False),
        pa.field("selftext", pa.string(), nullable=False),  # Markdown; empty if the post is a link
        pa.field("subreddit", pa.string(), nullable=False),
        pa.field("score", pa.int64(), nullable=False),  # Reddit's: votes up less votes down, when it was collected
        pa.field("url", pa.string(), nullable=False),  # what the post links to, or its own address
        pa.field("date", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("permalink", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Post:
    id: str
    title: str
    selftext: str
    subreddit: str
    score: int
    url: str
    date_ms: int  # when it was written, since 1970
    permalink: str


def post_of(submission: Any) -> Post:
    """The post that a submission of PRAW is."""
    return Post(
        id=submission.id,
        title=_valid(submission.title),
        selftext=_valid(submission.selftext or ""),
        subreddit=submission.subreddit.display_name,
        score=int(submission.score),
        url=_valid(submission.url),
        date_ms=round(submission.created_utc * 1000),
        permalink=f"{_REDDIT}{_valid(submission.permalink)}",
    )


def write_posts(output: Path, posts: Sequence[Post], collection: Collection) -> None:
    """Write to a temporary name and rename, so that a file at this path is always whole."""
    columns = [_column(field, posts) for field in _SCHEMA]
    schema = _SCHEMA.with_metadata({_COLLECTION: collection.as_json()})
    partial = output.with_name(f".{output.name}.partial")
    with partial.open("wb") as file:
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(output)


def rows_of(output: Path, collection: Collection) -> int | None:
    """How many posts an earlier collection wrote there, or None if the file is not of this collection."""
    try:
        footer = pq.read_metadata(output)
    except pa.ArrowInvalid:
        return None
    written = (footer.metadata or {}).get(_COLLECTION)
    return int(footer.num_rows) if written == collection.as_json().encode() else None


def _column(field: pa.Field, posts: Iterable[Post]) -> pa.Array:
    name = "date_ms" if field.name == "date" else field.name
    return pa.array([getattr(post, name) for post in posts], field.type)


def _valid(text: str) -> str:
    """JSON can hold half of a surrogate pair, which UTF-8 cannot: it becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
