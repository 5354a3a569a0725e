"""Tokens and what they permit. As on the Hub, a missing repository is a 404, but a 401 for a request without a token."""

import secrets
from dataclasses import dataclass

from hubserver.errors import HubError, repo_not_found, token_required, write_token_required
from hubserver.repos import BlobStore, Repo, Repos, RepoType

TYPES: dict[str, RepoType] = {"models": "model", "datasets": "dataset", "buckets": "bucket"}


def type_of_prefix(prefix: str) -> RepoType:
    """Return the repository type for the prefix of a URL.

    URLs for downloads and LFS begin with `datasets/org/name` for a dataset, and with `org/name` for a model.
    """
    return "dataset" if prefix else "model"


def url_prefix(repo_type: RepoType) -> str:
    return "datasets/" if repo_type == "dataset" else ""


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The permissions of a token or ticket. A ticket is for one repository, like a presigned URL."""

    name: str | None  # None if the request has no token
    write: bool
    repo: Repo | None = None
    scopes: tuple[str, ...] | None = None  # of a fine-grained token: the users and organisations it may write to


ANONYMOUS = Grant(name=None, write=False)
UNKNOWN = Grant(name=None, write=False)  # of a secret that was never issued


class Tokens:
    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def issue(self, name: str, *, write: bool, scopes: tuple[str, ...] | None = None) -> str:
        return self._remember("hf_", Grant(name=name, write=write, scopes=scopes))

    def ticket(self, grant: Grant, repo: Repo) -> str:
        """Issue a secret for uploads to a URL or to the xet store. It has the name of the Hub token in `grant`."""
        return self._remember("ticket_", Grant(name=grant.name, write=True, repo=repo))

    def grant_of(self, secret: str) -> Grant:
        return self._grants.get(secret, UNKNOWN)

    def _remember(self, prefix: str, grant: Grant) -> str:
        secret = prefix + secrets.token_hex(16)
        self._grants[secret] = grant
        return secret


@dataclass(frozen=True, kw_only=True)
class Hub:
    """The state that all routes share.

    Its methods find a repository, and raise HubError if the grant does not permit access.
    """

    endpoint: str
    repos: Repos
    blobs: BlobStore
    tokens: Tokens

    def readable(self, grant: Grant, repo_type: RepoType, repo_id: str) -> Repo:
        try:
            repo = self.repos.get(repo_type, repo_id)
        except HubError:
            raise (repo_not_found() if grant.name else token_required()) from None
        if repo.private and grant.name is None:
            raise token_required()
        return repo

    def writable(self, grant: Grant, repo_type: RepoType, repo_id: str) -> Repo:
        repo = self.readable(grant, repo_type, repo_id)
        require_write(grant)
        return repo


def ticket_repo(grant: Grant) -> Repo:
    """Return the repository to which a signed URL or a xet token gives access."""
    if grant.repo is None:
        raise HubError(403, "Request has no valid signature")
    return grant.repo


def require_write(grant: Grant) -> None:
    if grant.name is None:
        raise token_required()
    if not grant.write:
        raise write_token_required()
