"""The test Hub: start and stop it, fill its repositories, inspect them, inject faults.

Connects the parts. The `*_routes.py` files implement the requests.
"""

import os
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hubserver.access import Hub, Tokens
from hubserver.bucket_routes import BucketRoutes
from hubserver.commit_routes import CommitRoutes, is_large
from hubserver.file_routes import FileRoutes
from hubserver.lfs_routes import LfsRoutes
from hubserver.repo_routes import RepoRoutes, add_initial_commit
from hubserver.repos import MAIN, PULL_REQUEST, BlobStore, Commit, File, Operation, Repo, Repos, RepoType
from hubserver.traffic import Request, WireFault, WireFaults
from hubserver.wire import Router, WireServer
from hubserver.xet import XetRoutes

SERVER_AUTHOR = "hubserver"  # the author of commits that a test makes without HTTP


class HubServer:
    """A Hub on loopback. It keeps its state in memory, and loses it when it stops."""

    def __init__(self, xet: bool = True) -> None:
        self.xet = xet

    def __enter__(self) -> Self:
        self._repos = Repos()
        self._tokens = Tokens()
        self._faults = WireFaults()
        self._blobs = BlobStore()
        self._wire = WireServer(tokens=self._tokens, faults=self._faults)
        self.endpoint = f"http://127.0.0.1:{self._wire.port}"
        self._wire.open(self._router())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.close()

    def token(self, name: str = "worker", write: bool = True, *, scopes: tuple[str, ...] | None = None) -> str:
        """Create a token. `Request.token_name` and `Commit.author` contain its name.

        With `scopes`, the token is fine-grained: whoami lists the users and organisations that it may write to. For
        all other requests, only `write` decides.
        """
        return self._tokens.issue(name, write=write, scopes=scopes)

    def client_env(self, home: Path, token: str | None = None) -> dict[str, str]:
        """Return an environment for a client process: this process's own, with settings for this Hub.

        Give each server a new `home`, because hf_xet caches in it which chunks it has uploaded to an endpoint. With
        the cache of an earlier server, it refers to chunks that this server does not have.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        settings = {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_XET_TELEMETRY_ENABLED": "0",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        if token is not None:
            settings["HF_TOKEN"] = token
        if not self.xet:
            settings["HF_HUB_DISABLE_XET"] = "1"
        return own | settings

    def create_repo(self, repo_id: str, repo_type: RepoType = "dataset") -> None:
        repo = self._repos.create(repo_type, repo_id)
        add_initial_commit(repo, self._blobs, author=SERVER_AUTHOR)

    def open_pull_request(self, repo_id: str, number: int) -> None:
        repo = self._repos.get("dataset", repo_id)
        repo.create_branch(f"{PULL_REQUEST}{number}", MAIN)

    def is_private(self, repo_id: str, repo_type: RepoType = "dataset") -> bool:
        return self._repos.get(repo_type, repo_id).private

    def add_folder(
        self, repo_id: str, folder: Path, repo_type: RepoType = "dataset", message: str = "Add folder"
    ) -> str:
        """Commit the files of a folder to main, without HTTP. Returns the id of the commit."""
        repo = self._repos.get(repo_type, repo_id)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        names = {path.relative_to(folder).as_posix(): path for path in paths}
        operations = [Operation(path=name, added=self._added(repo, names[name].read_bytes(), name)) for name in names]
        return repo.commit(MAIN, operations, title=message, author=SERVER_AUTHOR).oid

    def write(self, repo_id: str, path: str, content: bytes | None) -> None:
        """Commit a file of a dataset to main, without HTTP. If `content` is None, removes the file."""
        repo = self._repos.get("dataset", repo_id)
        operation = Operation(path=path, added=None if content is None else self._added(repo, content, path))
        repo.commit(MAIN, [operation], title="Write a file", author=SERVER_AUTHOR)

    def files(self, repo_id: str, repo_type: RepoType = "dataset", revision: str = MAIN) -> dict[str, int]:
        """Return the size of each file by path. Includes `.gitattributes`, as on the Hub."""
        tree = self._repos.get(repo_type, repo_id).commit_at(revision).tree
        return {path: tree[path].size for path in sorted(tree)}

    def read(self, repo_id: str, path: str, repo_type: RepoType = "dataset", revision: str = MAIN) -> bytes:
        file = self._repos.get(repo_type, repo_id).commit_at(revision).tree[path]
        return self._blobs.read(file.sha256)

    def commits(self, repo_id: str, repo_type: RepoType = "dataset", revision: str = MAIN) -> list[Commit]:
        """Return the commits of a branch, newest first. The last one is the Hub's "initial commit"."""
        return list(self._repos.get(repo_type, repo_id).history(revision))

    def branches(self, repo_id: str, repo_type: RepoType = "dataset") -> dict[str, str]:
        """Return the commit id of each branch."""
        return dict(self._repos.get(repo_type, repo_id).branches)

    def forget_unreferenced_blobs(self) -> None:
        """Drop uploads to which no commit on any branch refers, like the Hub's garbage collection after about a day."""
        for repo in self._repos.all():
            repo.forget_unreferenced()

    @property
    def requests(self) -> list[Request]:
        return list(self._wire.log)

    def forget_requests(self) -> None:
        self._wire.log.clear()

    def fault(self, path_regex: str, times: int = 1, **fault: Any) -> None:
        """Inject a `WireFault` of these fields into the next `times` requests whose path, as sent, matches."""
        self._faults.add(WireFault(path=re.compile(path_regex), **fault), times)

    @property
    def faults_left(self) -> int:
        return self._faults.left()

    def forget_faults(self) -> None:
        """Remove the faults that no request has met, for tests whose requests may or may not come."""
        self._faults.forget()

    @property
    def handler_errors(self) -> list[str]:
        """Tracebacks of bugs in this server. Tests assert that there are none."""
        return self._wire.handler_errors

    def _added(self, repo: Repo, content: bytes, path: str) -> File:
        sha256 = self._blobs.write(content)
        if not is_large(path, len(content)):
            return File.regular(content)
        repo.uploaded.add(sha256)
        return File.large(sha256, len(content))

    def _router(self) -> Router:
        hub = Hub(endpoint=self.endpoint, repos=self._repos, blobs=self._blobs, tokens=self._tokens)
        kinds = (RepoRoutes, FileRoutes, CommitRoutes, LfsRoutes, *([XetRoutes, BucketRoutes] if self.xet else []))
        return Router([route for kind in kinds for route in kind(hub).routes()])
