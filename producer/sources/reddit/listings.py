"""Listings of subreddits, a page for each request. PRAW keeps to Reddit's rate limit; refused requests are repeated here."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from praw import Reddit
from prawcore.exceptions import (
    BadJSON,
    Forbidden,
    NotFound,
    OAuthException,
    PrawcoreException,
    Redirect,
    RequestException,
    ResponseException,
    UnavailableForLegalReasons,
)
from prawcore.sessions import Session

from fleet.errors import ShardsiftError, TransientError, UsageError
from producer.sources.reddit.collection import Collection
from producer.sources.reddit.journal import Page
from producer.sources.reddit.posts import post_of

PAGE_POSTS = 100  # the most that Reddit gives for one request
_LONGEST_WAIT_SECONDS = 60
_TOO_MANY_REQUESTS = 429
_REASONS = {  # as Reddit names them → what to tell the user
    "private": "it is private",
    "banned": "it is banned",
    "quarantined": "it is quarantined",
    "gated": "it is gated: Reddit shows it only to users who have agreed to see it",
}
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """Reddit does not give the posts of this subreddit, and will not if it is asked again."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Listings:
    """The listings that a collection reads."""

    reddit: Reddit
    collection: Collection
    retry_seconds: float
    say: Callable[[str], None]

    def page(self, subreddit: str, *, after: str | None, most: int) -> Page | Unavailable:
        """The posts that follow `after`. Raises UsageError if Reddit refuses the credentials, TransientError if it is away."""
        params: dict[str, str | int] = {"limit": min(most, PAGE_POSTS)}
        if after:
            params["after"] = after
        if self.collection.time_filter:
            params["t"] = self.collection.time_filter
        try:
            listing = patiently(
                lambda: self._ask(f"r/{subreddit}/{self.collection.sort}", params),
                retry_seconds=self.retry_seconds,
                say=self.say,
            )
        except (Forbidden, NotFound, Redirect, UnavailableForLegalReasons) as error:
            return Unavailable(reason=_reason(error))
        posts = tuple(map(post_of, listing))
        ends = not posts or listing.after == after
        return Page(subreddit=subreddit, posts=posts, after=None if ends else listing.after)

    def _ask(self, path: str, params: dict[str, str | int]) -> Any:
        self._say_if_used_up()
        try:
            return self.reddit.get(path, params=params)
        except (Forbidden, NotFound, Redirect, UnavailableForLegalReasons):
            raise
        except PrawcoreException as error:
            raise _as_ours(error) from error

    def _say_if_used_up(self) -> None:
        """PRAW then waits for Reddit's next window without a word."""
        remaining = self.reddit.auth.limits["remaining"]
        if isinstance(remaining, int) and remaining <= 0:
            self.say("Reddit's rate limit is used up. Waiting until it allows the next request, at most ten minutes.")


def patiently(ask: Callable[[], _Answer], *, retry_seconds: float, say: Callable[[str], None]) -> _Answer:
    """Ask again after each TransientError, with waits of 1, 2, 4 … 60 s or as long as it says.

    Raises it if the next attempt would begin more than `retry_seconds` after the first.
    """
    began = time.monotonic()
    for attempt in count():
        try:
            return ask()
        except TransientError as error:
            wait_seconds = max(error.retry_after_seconds or 0, min(2**attempt, _LONGEST_WAIT_SECONDS))
            if time.monotonic() + wait_seconds > began + retry_seconds:
                raise
            say(f"{error} Trying again in {wait_seconds:.0f} s.")
        time.sleep(wait_seconds)
    raise AssertionError


def _reason(error: ResponseException) -> str:
    """Why a subreddit cannot be read, for a sentence that names it."""
    if isinstance(error, Redirect):  # Reddit leads to its search for names like this one
        return "there is no such subreddit" if "/search" in error.path else f"Reddit leads to {error.path} instead"
    try:
        named = error.response.json().get("reason")
    except (ValueError, AttributeError):
        named = None
    if named in _REASONS:
        return _REASONS[named]
    if isinstance(error, NotFound) and not named:
        return "there is no such subreddit"
    return f"Reddit refuses it ({error.response.status_code}{f', {named}' if named else ''})"


def _as_ours(error: PrawcoreException) -> ShardsiftError:
    """Whether to try again, or what the user has to change."""
    if isinstance(error, RequestException):
        kind = type(error.original_exception).__name__
        if isinstance(error.original_exception, Session.RETRY_EXCEPTIONS):
            return TransientError(f"Reddit does not answer ({kind}).")
        return UsageError(f"Reddit cannot be asked ({kind}). Check reddit_url and oauth_url in praw.ini.")
    if isinstance(error, OAuthException):
        return UsageError(f"Reddit refuses the user name, password or refresh token ({error.error}). Correct them.")
    if not isinstance(error, ResponseException):
        return UsageError(f"PRAW cannot ask Reddit: {error}.")
    status = error.response.status_code
    if status == _TOO_MANY_REQUESTS:
        wait_seconds = max(_seconds(error, "retry-after"), _seconds(error, "x-ratelimit-reset"))
        return TransientError("Reddit answers: too many requests (429).", retry_after_seconds=wait_seconds)
    if status >= 500 or isinstance(error, BadJSON):
        return TransientError(f"Reddit has trouble ({status}).")
    return UsageError(
        f"Reddit refuses the credentials ({status}). Check praw_client_id and praw_client_secret, and that the app exists."
    )


def _seconds(error: ResponseException, header: str) -> float:
    try:
        return float(error.response.headers.get(header) or 0)
    except ValueError:
        return 0
