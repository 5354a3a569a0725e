"""Who may read and write which repository. A reader without a token hears 401 where others hear 404, as on the Hub."""

from hubserver.errors import HubError, gated_repo, repo_not_found, token_required, write_token_required
from hubserver.repos import Repo, Repos, RepoType
from hubserver.tokens import Grant

TYPES: dict[str, RepoType] = {"models": "model", "datasets": "dataset"}


def type_of_prefix(prefix: str) -> RepoType:
    """Downloads and LFS say `datasets/org/name`, and just `org/name` for a model."""
    return "dataset" if prefix else "model"


def url_prefix(repo_type: RepoType) -> str:
    return "datasets/" if repo_type == "dataset" else ""


class Access:
    def __init__(self, repos: Repos) -> None:
        self._repos = repos

    def reading(self, grant: Grant, repo_type: RepoType, repo_id: str) -> Repo:
        try:
            repo = self._repos.get(repo_type, repo_id)
        except HubError:
            raise (repo_not_found() if grant.name else token_required()) from None
        if repo.private and grant.name is None:
            raise token_required()
        return repo

    def downloading(self, grant: Grant, repo_type: RepoType, repo_id: str) -> Repo:
        """A gated repository shows itself to all, and its files to those who may write."""
        repo = self.reading(grant, repo_type, repo_id)
        if repo.gated and not grant.write:
            raise gated_repo(repo_id)
        return repo

    def writing(self, grant: Grant, repo_type: RepoType, repo_id: str) -> Repo:
        repo = self.reading(grant, repo_type, repo_id)
        require_write(grant)
        return repo


def ticket_repo(grant: Grant, *, write: bool = False) -> Repo:
    """The repository that a signed URL or a xet token is good for."""
    if grant.repo is None or grant.write < write:
        raise HubError(403, "Request has no valid signature")
    return grant.repo


def require_write(grant: Grant) -> None:
    if grant.name is None:
        raise token_required()
    if not grant.write:
        raise write_token_required()
