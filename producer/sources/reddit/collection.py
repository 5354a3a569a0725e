"""What to collect from Reddit: which subreddits, in which order, how many posts."""

import json
import re
from dataclasses import asdict, dataclass
from typing import Literal

from fleet.errors import UsageError

Sort = Literal["new", "hot", "top"]
TimeFilter = Literal["hour", "day", "week", "month", "year", "all"]

_NAME = re.compile(r"[A-Za-z0-9_]{2,24}")
_PREFIX = re.compile(r"^/?r/")


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Two collections that are equal give the same file, as long as Reddit answers the same."""

    subreddits: tuple[str, ...]  # in lower case, each once: Reddit ignores the case
    sort: Sort
    time_filter: TimeFilter | None  # only of "top"
    limit: int  # posts of each subreddit

    def as_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def __str__(self) -> str:
        of = f"{self.sort} of {self.time_filter}" if self.time_filter else self.sort
        return f"{','.join(self.subreddits)}; {of}; limit {self.limit}"


def collection_of(subreddits: str, *, sort: Sort, time_filter: TimeFilter | None, limit: int) -> Collection:
    """What the options say. Raises UsageError for names that no subreddit can have, and options that do not go together."""
    if time_filter and sort != "top":
        raise UsageError(f"--time-filter is for --sort top, not for --sort {sort}. Leave it out.")
    names = [_PREFIX.sub("", name.strip()).lower() for name in subreddits.split(",") if name.strip()]
    if not names:
        raise UsageError("--subreddits is empty. Name at least one, like --subreddits technology,climate.")
    if wrong := next((name for name in names if not _NAME.fullmatch(name)), None):
        raise UsageError(
            f"{wrong!r} is not the name of a subreddit: letters, digits and underscores, with commas between names."
        )
    return Collection(
        subreddits=tuple(dict.fromkeys(names)),
        sort=sort,
        time_filter=(time_filter or "all") if sort == "top" else None,
        limit=limit,
    )
