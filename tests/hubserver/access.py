"""Permissions on repositories. As on the Hub, a missing repository is a 404, but a 401 for a request without a token."""

from hubserver.errors import HubError, repo_not_found, token_required, write_token_required
from hubserver.repos import Repo, Repos, RepoType
from hubserver.tokens import Grant

TYPES: dict[str, RepoType] = {"models": "model", "datasets": "dataset"}


def type_of_prefix(prefix: str) -> RepoType:
    """URLs for downloads and LFS begin with `datasets/org/name` for a dataset and with `org/name` for a model."""
    return "dataset" if prefix else "model"


def url_prefix(repo_type: RepoType) -> str:
    return "datasets/" if repo_type == "dataset" else ""


class Access:
    """Finds a repository and checks the grant. Each method raises `HubError` if the grant is not enough."""

    def __init__(self, repos: Repos) -> None:
        self._repos = repos

    def readable(self, grant: Grant, repo_type: RepoType, repo_id: str) -> Repo:
        try:
            repo = self._repos.get(repo_type, repo_id)
        except HubError:
            raise (repo_not_found() if grant.name else token_required()) from None
        if repo.private and grant.name is None:
            raise token_required()
        return repo

    def writable(self, grant: Grant, repo_type: RepoType, repo_id: str) -> Repo:
        repo = self.readable(grant, repo_type, repo_id)
        require_write(grant)
        return repo


def ticket_repo(grant: Grant, *, write: bool = False) -> Repo:
    """The repository to which a signed URL or a xet token gives access."""
    if grant.repo is None or grant.write < write:
        raise HubError(403, "Request has no valid signature")
    return grant.repo


def require_write(grant: Grant) -> None:
    if grant.name is None:
        raise token_required()
    if not grant.write:
        raise write_token_required()
