"""Who is asking: Hub tokens, and the tickets that stand for one on the routes where the client sends no token."""

import secrets
from dataclasses import dataclass

from hubserver.repos import Repo


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a token lets its bearer do. A ticket's is tied to one repository, as a presigned URL is."""

    name: str | None  # None is a reader without a token
    write: bool
    repo: Repo | None = None


ANONYMOUS = Grant(name=None, write=False)


class Tokens:
    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def issue(self, name: str, *, write: bool) -> str:
        return self._remember("hf_", Grant(name=name, write=write))

    def ticket(self, grant: Grant, repo: Repo, *, write: bool) -> str:
        """A secret for upload URLs, download URLs and the xet store, that leads back to the Hub token's name."""
        return self._remember("ticket_", Grant(name=grant.name, write=write, repo=repo))

    def grant_of(self, secret: str) -> Grant | None:
        return self._grants.get(secret)

    def _remember(self, prefix: str, grant: Grant) -> str:
        secret = prefix + secrets.token_hex(16)
        self._grants[secret] = grant
        return secret
