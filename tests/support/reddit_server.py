"""A server on loopback that answers PRAW as Reddit does: tokens, listings with pages, refusals, rate limits, accidents.

What it sends follows https://www.reddit.com/dev/api and https://github.com/reddit-archive/reddit/wiki/OAuth2.
"""

import base64
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import parse_qs, urlsplit

Collect = Callable[..., CompletedProcess[str]]  # `producer collect reddit --subreddits …` with further options

CLIENT_ID, CLIENT_SECRET = "an-app-of-a-test", "the-secret-of-a-test"
USER, PASSWORD = "ada", "the-password-of-a-test"
_TOKEN = "the-token-of-a-test"
SECRETS = (CLIENT_SECRET, PASSWORD, _TOKEN)
_PAGE_POSTS, _LISTING_POSTS = 100, 1000
_PLENTY = {"x-ratelimit-remaining": "99.0", "x-ratelimit-used": "1", "x-ratelimit-reset": "300"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request for a listing."""

    path: str
    query: dict[str, str]
    user_agent: str
    at: float  # by time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False  # the connection ends in the middle of the body


def refusal(status: int, reason: str | None = None, **headers: str) -> Reply:
    """As Reddit refuses: `reason` is private, quarantined, gated or banned."""
    named = {"reason": reason} if reason else {}
    return Reply(status=status, body={"message": "Refused", "error": status, **named}, headers=headers)


def to_search(name: str) -> Reply:
    """What Reddit answers for a subreddit that it does not know."""
    return Reply(status=302, headers={"location": f"https://www.reddit.com/subreddits/search.json?q={name}"})


class RedditServer(ThreadingHTTPServer):
    """`replies` come before any other answer to requests for listings, `token_replies` before tokens; None is the usual answer.

    Request number `hold_at` waits for `go_on`. With request number `dies_at` the server ends, as if the machine were gone.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.subreddits: dict[str, list[dict[str, Any]] | Reply] = {}
        self.replies: deque[Reply | None] = deque()
        self.token_replies: deque[Reply] = deque()
        self.asked: list[Asked] = []
        self.tokens = 0
        self.limits = dict(_PLENTY)
        self.hold_at: int | None = None
        self.dies_at: int | None = None
        self.go_on = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has been killed is no error of the test."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def add(self, name: str, posts: int, **fields: Any) -> None:
        """A subreddit with posts, the newest first."""
        self.subreddits[name.lower()] = [_post(name, number, **fields) for number in range(posts, 0, -1)]

    def environment(self, folder: Path) -> dict[str, str]:
        """What a command needs to take this server for Reddit: the address in praw.ini, the credentials in variables."""
        folder.mkdir(exist_ok=True)
        address = f"http://127.0.0.1:{self.server_port}"
        (folder / "praw.ini").write_text(f"[DEFAULT]\noauth_url={address}\nreddit_url={address}\n")
        return {
            "XDG_CONFIG_HOME": str(folder),
            "NO_PROXY": "127.0.0.1",
            "praw_client_id": CLIENT_ID,
            "praw_client_secret": CLIENT_SECRET,
        }

    def pages_asked(self) -> list[tuple[str, str | None]]:
        """The path and the `after` of each request for a listing."""
        return [(asked.path, asked.query.get("after")) for asked in self.asked]

    def listing(self, path: str, query: dict[str, str]) -> Reply:
        if self.replies and (reply := self.replies.popleft()):
            return reply
        _, name, _ = path.strip("/").split("/")
        posts = self.subreddits.get(name.lower(), to_search(name))
        if isinstance(posts, Reply):
            return posts
        return Reply(body=_page(posts[:_LISTING_POSTS], query), headers=self.limits)


@contextmanager
def serving_reddit(port: int = 0) -> Iterator[RedditServer]:
    server = RedditServer(port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: RedditServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self._answer(self._token(form) if urlsplit(self.path).path == "/api/v1/access_token" else refusal(404))

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if self.headers.get("authorization") != f"bearer {_TOKEN}":
            realm = 'Bearer realm="reddit", error="invalid_token"'
            return self._answer(refusal(401, **{"www-authenticate": realm}))
        agent = self.headers["user-agent"]
        self.server.asked.append(Asked(path=asked.path, query=query, user_agent=agent, at=time.monotonic()))
        if len(self.server.asked) == self.server.hold_at:
            self.server.go_on.wait()
        if len(self.server.asked) == self.server.dies_at:
            self.server.shutdown()
            self.server.server_close()
            self.close_connection = True
            return None
        return self._answer(self.server.listing(asked.path, query))

    def _token(self, form: dict[str, str]) -> Reply:
        if self.server.token_replies:
            return self.server.token_replies.popleft()
        app = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if self.headers.get("authorization") != f"Basic {app}":
            return refusal(401)
        if form["grant_type"] == "password" and (form["username"], form["password"]) != (USER, PASSWORD):
            return Reply(body={"error": "invalid_grant"})
        self.server.tokens += 1
        return Reply(body={"access_token": _TOKEN, "token_type": "bearer", "expires_in": 86400, "scope": "*"})

    def _answer(self, reply: Reply) -> None:
        body = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
        try:
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2 if reply.is_cut else None])
        except OSError:  # the client has been killed
            reply = Reply(is_cut=True)
        self.close_connection = reply.is_cut

    def log_message(self, *_: object) -> None:
        pass


def _page(posts: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
    names = [post["name"] for post in posts]
    begin = names.index(query["after"]) + 1 if "after" in query else 0
    page = posts[begin : begin + min(int(query["limit"]), _PAGE_POSTS)]
    more = begin + len(page) < len(posts)
    children = [{"kind": "t3", "data": post} for post in page]
    return {"kind": "Listing", "data": {"after": names[begin + len(page) - 1] if more else None, "children": children}}


def _post(subreddit: str, number: int, **fields: Any) -> dict[str, Any]:
    """Every third one is a link, whose selftext is empty."""
    name, is_link = f"{subreddit.lower()}{number}", number % 3 == 0
    permalink = f"/r/{subreddit}/comments/{name}/post_{number}/"
    return {
        "id": name,
        "name": f"t3_{name}",
        "title": f"Post {number} of {subreddit}",
        "selftext": "" if is_link else f"What I think of *{subreddit}*, number {number}.",
        "is_self": not is_link,
        "subreddit": subreddit,
        "subreddit_name_prefixed": f"r/{subreddit}",
        "author": "someone",
        "score": 10 * number,
        "ups": 10 * number,
        "num_comments": number,
        "url": f"https://example.org/{number}" if is_link else f"https://www.reddit.com{permalink}",
        "permalink": permalink,
        "created_utc": 1_767_225_600.0 + 3600 * number,  # 2026-01-01 and later
        "edited": False,
        **fields,
    }
