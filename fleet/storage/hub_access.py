"""Ask the Hub whether it answers, and what the token here may do. Short requests, without the client's long retries."""

from dataclasses import dataclass
from typing import Any

import httpx2
from huggingface_hub import HfApi, get_session, get_token
from huggingface_hub.errors import HfHubHTTPError

from fleet.errors import UsageError

_ANSWER_SECONDS = 5.0
_MAY_WRITE = "repo.write"  # among the permissions of a fine-grained token
_MAY_NOT_WRITE_IN_ORG = "read"
FINE_GRAINED = "fineGrained"


@dataclass(frozen=True, kw_only=True)
class HubToken:
    """Whose token it is, and what it may do. `role` is the Hub's word: `read`, `write` or `fineGrained`.

    `writable` are the names of users, organisations and, if the token is fine-grained, repositories.
    """

    user: str
    role: str
    writable: frozenset[str]

    def may_write(self, repo_id: str) -> bool:
        return bool(self.writable & {repo_id, repo_id.partition("/")[0]})


def check_hub_answers() -> None:
    """Raises UsageError if the Hub does not answer within a few seconds."""
    endpoint = HfApi().endpoint
    try:
        get_session().head(endpoint, timeout=_ANSWER_SECONDS)
    except (httpx2.HTTPError, OSError) as error:
        raise UsageError(f"The Hub does not answer at {endpoint} ({error}).") from error


def hub_token() -> HubToken | None:
    """What the Hub says of the token here; None if there is no token. Raises UsageError if the Hub does not say.

    The Hub limits such requests, so ask once.
    """
    token = get_token()
    if token is None:
        return None
    try:
        return _as_token(HfApi().whoami(token=token))
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in (401, 403):
            raise UsageError("The Hub refuses this HF_TOKEN.") from error
        raise UsageError(f"The Hub answered {status} when asked whose HF_TOKEN this is.") from error
    except (httpx2.HTTPError, OSError) as error:
        raise UsageError(f"The Hub does not say whose HF_TOKEN this is ({error}).") from error


def _as_token(said: dict[str, Any]) -> HubToken:
    user, access = str(said["name"]), said.get("auth", {}).get("accessToken", {})
    role = str(access.get("role", "unknown"))
    if role == FINE_GRAINED:
        scopes = access.get("fineGrained", {}).get("scoped", [])
        writable = {str(scope["entity"]["name"]) for scope in scopes if _MAY_WRITE in scope.get("permissions", [])}
    elif role == "read":
        writable = set()
    else:
        orgs = (org for org in said.get("orgs", []) if org.get("roleInOrg") != _MAY_NOT_WRITE_IN_ORG)
        writable = {user, *(str(org["name"]) for org in orgs)}
    return HubToken(user=user, role=role, writable=frozenset(writable))
