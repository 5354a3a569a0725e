"""Tokens, and tickets, which replace a token in signed URLs and in requests to the xet store."""

import secrets
from dataclasses import dataclass

from hubserver.repos import Repo


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a token or ticket permits. A ticket is for one repository, like a presigned URL."""

    name: str | None  # None if the request has no token
    write: bool
    repo: Repo | None = None
    scopes: tuple[str, ...] | None = None  # of a fine-grained token: the users and organisations it may write to


ANONYMOUS = Grant(name=None, write=False)


class Tokens:
    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def issue(self, name: str, *, write: bool, scopes: tuple[str, ...] | None = None) -> str:
        return self._remember("hf_", Grant(name=name, write=write, scopes=scopes))

    def ticket(self, grant: Grant, repo: Repo, *, write: bool) -> str:
        """Issue a secret for upload URLs, download URLs and the xet store, with the name of the Hub token."""
        return self._remember("ticket_", Grant(name=grant.name, write=write, repo=repo))

    def grant_of(self, secret: str) -> Grant | None:
        return self._grants.get(secret)

    def _remember(self, prefix: str, grant: Grant) -> str:
        secret = prefix + secrets.token_hex(16)
        self._grants[secret] = grant
        return secret
