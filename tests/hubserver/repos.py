"""Repositories in memory: files, commits, branches. Knows no HTTP. A file refers to its content by sha256."""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Literal

from hubserver.errors import (
    HubError,
    bad_request,
    entry_not_found,
    repo_not_found,
    revision_not_found,
    stale_parent,
)

RepoType = Literal["model", "dataset", "bucket"]
Tree = Mapping[str, "File"]

MAIN = "main"
PULL_REQUEST = "refs/pr/"  # prefix of the branch of a pull request


class BlobStore:
    """File contents by sha256. Does not know which repositories refer to them."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self.by_xet_hash: dict[str, str] = {}  # xet's own hash → sha256

    def write(self, content: bytes) -> str:
        """Store the content. Returns its sha256."""
        sha256 = hashlib.sha256(content).hexdigest()
        self._contents[sha256] = content
        return sha256

    def read(self, sha256: str) -> bytes:
        return self._contents[sha256]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of a commit. For an LFS file, `git_oid` is the hash of the pointer, not of the content."""

    sha256: str
    size: int
    git_oid: str
    lfs: bool

    @classmethod
    def regular(cls, content: bytes) -> "File":
        sha256 = hashlib.sha256(content).hexdigest()
        return cls(sha256=sha256, size=len(content), git_oid=git_blob_oid(content), lfs=False)

    @classmethod
    def large(cls, sha256: str, size: int) -> "File":
        return cls(sha256=sha256, size=size, git_oid=git_blob_oid(lfs_pointer(sha256, size)), lfs=True)

    @property
    def content_oid(self) -> str:
        """The id that the client compares with its local file. Downloads send it as the ETag."""
        return self.sha256 if self.lfs else self.git_oid

    @property
    def pointer_size(self) -> int:
        return len(lfs_pointer(self.sha256, self.size))


@dataclass(frozen=True, kw_only=True)
class Operation:
    path: str
    added: File | None  # None deletes the file


@dataclass(frozen=True, kw_only=True)
class Commit:
    oid: str
    parent: str | None
    title: str
    author: str  # the name of the token
    date: datetime
    operations: tuple[Operation, ...]
    tree: Tree = field(repr=False)


class Repo:
    def __init__(self, repo_type: RepoType, repo_id: str, *, private: bool = False) -> None:
        self.repo_type = repo_type
        self.repo_id = repo_id
        self.private = private
        self.created = datetime.now(UTC)
        self.uploaded: set[str] = set()  # sha256 of each large file that a commit may refer to
        self.branches: dict[str, str] = {}
        self.commits: dict[str, Commit] = {}
        self._commit_lock = threading.Lock()
        self._serial = count()

    def branch_commit(self, branch: str) -> Commit:
        if branch not in self.branches:
            raise revision_not_found(branch)
        return self.commits[self.branches[branch]]

    def commit_at(self, revision: str) -> Commit:
        """Return the commit that a branch name or a full commit id refers to."""
        if revision in self.commits:
            return self.commits[revision]
        return self.branch_commit(revision.removeprefix("refs/heads/"))

    def history(self, revision: str) -> Iterator[Commit]:
        commit: Commit | None = self.commit_at(revision)
        while commit is not None:
            yield commit
            commit = self.commits[commit.parent] if commit.parent else None

    def commit(
        self,
        branch: str,
        operations: Iterable[Operation],
        *,
        title: str,
        author: str,
        expected_parent: str = "",
    ) -> Commit:
        """Commit all operations or none. The first commit creates the branch."""
        with self._commit_lock:
            head = self.branch_commit(branch) if self.branches else None
            if head is not None and not head.oid.startswith(expected_parent):
                raise stale_parent()
            operations = tuple(operations)
            commit = Commit(
                oid=self._new_oid(),
                parent=head.oid if head else None,
                title=title,
                author=author,
                date=datetime.now(UTC),
                operations=operations,
                tree=self._apply(head.tree if head else {}, operations),
            )
            self.commits[commit.oid] = commit
            self.branches[branch] = commit.oid
            return commit

    def create_branch(self, branch: str, starting_point: str) -> None:
        with self._commit_lock:
            if branch in self.branches:
                raise HubError(409, f"Reference already exists: {branch}")
            self.branches[branch] = self.commit_at(starting_point).oid

    def delete_branch(self, branch: str) -> None:
        with self._commit_lock:
            if branch == MAIN:
                raise bad_request("Cannot delete the main branch")
            self.branch_commit(branch)
            del self.branches[branch]

    def forget_unreferenced(self) -> None:
        """Drop uploads to which no commit on any branch refers, like the Hub's garbage collection."""
        with self._commit_lock:
            reachable = {commit.oid: commit for branch in self.branches for commit in self.history(branch)}
            self.uploaded &= {file.sha256 for commit in reachable.values() for file in commit.tree.values()}

    def _apply(self, tree: Tree, operations: Iterable[Operation]) -> Tree:
        files = dict(tree)
        for operation in operations:
            if operation.added:
                self._check_uploaded(operation.path, operation.added)
                files[operation.path] = operation.added
            elif files.pop(operation.path, None) is None:
                raise entry_not_found(f"A file with this name doesn't exist: {operation.path}")
        return files

    def _check_uploaded(self, path: str, file: File) -> None:
        if file.lfs and file.sha256 not in self.uploaded:
            raise bad_request(f"LFS pointer pointed to a file that does not exist: {path} ({file.sha256})")

    def _new_oid(self) -> str:
        return hashlib.sha1(f"{self.repo_type} {self.repo_id} {self.created} {next(self._serial)}".encode()).hexdigest()


class Repos:
    def __init__(self) -> None:
        self._repos: dict[tuple[RepoType, str], Repo] = {}

    def create(self, repo_type: RepoType, repo_id: str, *, private: bool = False) -> Repo:
        if (repo_type, repo_id) in self._repos:
            raise HubError(409, "You already created this repo")
        repo = self._repos[repo_type, repo_id] = Repo(repo_type, repo_id, private=private)
        return repo

    def delete(self, repo_type: RepoType, repo_id: str) -> None:
        if self._repos.pop((repo_type, repo_id), None) is None:
            raise repo_not_found()

    def get(self, repo_type: RepoType, repo_id: str) -> Repo:
        repo = self._repos.get((repo_type, repo_id))
        if repo is None:
            raise repo_not_found()
        return repo

    def all(self) -> list[Repo]:
        return list(self._repos.values())


def subtree(tree: Tree, path: str) -> dict[str, File]:
    """Return the file at this path, or all files in the folder at this path."""
    return {name: file for name, file in tree.items() if name == path or name.startswith(f"{path}/")}


def folders_of(paths: Iterable[str]) -> set[str]:
    parts = (path.split("/")[:-1] for path in paths)
    return {"/".join(names[:depth]) for names in parts for depth in range(1, len(names) + 1)}


def lfs_pointer(sha256: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def git_blob_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
