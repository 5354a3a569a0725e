"""A server on loopback that answers PRAW as Reddit does: tokens, listings with pages, refusals.

What it sends follows https://www.reddit.com/dev/api and https://github.com/reddit-archive/reddit/wiki/OAuth2.
"""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

CLIENT_ID, CLIENT_SECRET = "an-app-of-a-test", "the-secret-of-a-test"
_TOKEN = "the-token-of-a-test"
_PAGE_POSTS = 100
_LIMITS = {"x-ratelimit-remaining": "99.0", "x-ratelimit-used": "1", "x-ratelimit-reset": "300"}


class RedditServer(ThreadingHTTPServer):
    """Has public subreddits with posts, the newest first, and private ones without."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.subreddits: dict[str, list[dict[str, Any]]] = {}
        self.private: set[str] = set()
        self.pages_asked: list[str] = []

    def add(self, name: str, posts: int, **fields: Any) -> None:
        self.subreddits[name] = [_post(name, number, **fields) for number in range(posts, 0, -1)]

    def environment(self, folder: Path) -> dict[str, str]:
        """What PRAW needs to take this server for Reddit: the address in praw.ini, the credentials in variables."""
        folder.mkdir(exist_ok=True)
        address = f"http://127.0.0.1:{self.server_port}"
        (folder / "praw.ini").write_text(f"[DEFAULT]\noauth_url={address}\nreddit_url={address}\n")
        return {
            "XDG_CONFIG_HOME": str(folder),
            "NO_PROXY": "127.0.0.1",
            "praw_client_id": CLIENT_ID,
            "praw_client_secret": CLIENT_SECRET,
        }


@contextmanager
def serving_reddit() -> Iterator[RedditServer]:
    server = RedditServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: RedditServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        app = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if self.headers.get("authorization") != f"Basic {app}":
            return self._answer(401, {})
        return self._answer(200, {"access_token": _TOKEN, "token_type": "bearer", "expires_in": 86400, "scope": "*"})

    def do_GET(self) -> None:
        assert self.headers.get("authorization") == f"bearer {_TOKEN}"
        asked = urlsplit(self.path)
        _, name, _ = asked.path.strip("/").split("/")
        self.server.pages_asked.append(name)
        if name in self.server.private:
            return self._answer(403, {"message": "Refused", "error": 403, "reason": "private"})
        if name not in self.server.subreddits:
            to_search = f"https://www.reddit.com/subreddits/search.json?q={name}"
            return self._answer(302, {}, location=to_search)
        query = {key: values[0] for key, values in parse_qs(asked.query).items()}
        return self._answer(200, _page(self.server.subreddits[name], query), **_LIMITS)

    def _answer(self, status: int, content: dict[str, Any], **headers: str) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

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
    name, is_link = f"{subreddit}{number}", number % 3 == 0
    permalink = f"/r/{subreddit}/comments/{name}/post_{number}/"
    return {
        "id": name,
        "name": f"t3_{name}",
        "title": f"Post {number} of {subreddit}",
        "selftext": "" if is_link else f"What I think of *{subreddit}*, number {number}.",
        "subreddit": subreddit,
        "score": 10 * number,
        "url": f"https://example.org/{number}" if is_link else f"https://www.reddit.com{permalink}",
        "permalink": permalink,
        "created_utc": 1_767_225_600.0 + 3600 * number,  # 2026-01-01 and later
        **fields,
    }
