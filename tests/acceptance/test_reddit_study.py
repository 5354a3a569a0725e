"""The study of Reddit: the real PRAW collects from a recorded listing, and a small model labels the posts."""

import json
import runpy
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import shardsift
from support.nli import nli_classifier
from support.outputs import published_rows
from support.pages import ROOT
from support.ports import served_in_background
from support.processes import call_script

EXAMPLE = ROOT / "examples/reddit/study.py"
TOKEN = {"access_token": "a-token", "token_type": "bearer", "expires_in": 86400, "scope": "*"}
LABELS = {"climate change", "technology", "health", "politics"}

pytestmark = pytest.mark.usefixtures("one_thread")


def post(number: int, **fields: Any) -> dict[str, Any]:
    about = {"id": f"p{number}", "name": f"t3_p{number}", "title": f"Post {number}", "selftext": "What I think."}
    return {**about, "subreddit": "technology", "score": number, "url": "https://example.org", **fields}


POSTS = [post(3), post(2, title="half a \ud83d pair"), post(1, selftext="")]
LISTING = {"kind": "Listing", "data": {"after": None, "children": [{"kind": "t3", "data": one} for one in POSTS]}}


class Reddit(BaseHTTPRequestHandler):
    """Has r/technology; another subreddit is private. It answers as https://www.reddit.com/dev/api says."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(200, TOKEN)

    def do_GET(self) -> None:
        if self.path.startswith("/r/technology/"):
            return self._answer(200, LISTING)
        return self._answer(403, {"message": "Refused", "error": 403, "reason": "private"})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def reddit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PRAW takes the address from praw.ini and the credentials from variables."""
    with served_in_background(ThreadingHTTPServer(("127.0.0.1", 0), Reddit)) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        (tmp_path / "praw.ini").write_text(f"[DEFAULT]\noauth_url={address}\nreddit_url={address}\n")
        settings = {"XDG_CONFIG_HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"}
        settings |= {"praw_client_id": "an-app", "praw_client_secret": "its-secret"}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("praw.config.Config.CONFIG", None)  # praw.ini is read once a process
        yield


def test_posts_are_collected_except_of_refused_subreddits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))["collect"](["technology", "secret"], tmp_path / "posts.jsonl")

    posts = [json.loads(line) for line in (tmp_path / "posts.jsonl").read_text().splitlines()]
    assert [(one["id"], one["title"], one["votes"]) for one in posts] == [
        ("p3", "Post 3", 3),
        ("p2", "half a ? pair", 2),
        ("p1", "Post 1", 1),
    ]
    assert capsys.readouterr().err.startswith("r/secret is left out: ")


@pytest.mark.slow
@pytest.mark.usefixtures("on_machine")
def test_the_study_labels_what_reddit_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, study = nli_classifier(tmp_path / "nli", "BERT"), tmp_path / "study"

    assert call_script(EXAMPLE, "technology", study, model) == 0
    kept = published_rows(study / "labelled")
    assert kept["id"].to_pylist() == ["p3", "p2", "p1"]
    assert set(kept["label"].to_pylist()) <= LABELS
    assert shardsift.verify(study / "labelled", input=study / "posts.jsonl").is_sound
    assert "published" in capsys.readouterr().out
