"""Ask the Hub whether it answers, what the token here may do, and whether it accepts a card.

Requests fail fast, without the client's long retries.
"""

from dataclasses import dataclass

import httpx2
from huggingface_hub import DatasetCard, HfApi, get_session, get_token
from huggingface_hub.errors import HfHubHTTPError

from shardsift.fleet.errors import ShardsiftError, TransientError, UsageError
from shardsift.fleet.storage.errors import translated

_ANSWER_SECONDS = 5.0
UNUSABLE = "the Hub's answer cannot be used, and may be a proxy's"
_NO_NETWORK = (httpx2.ConnectError, ConnectionError)


@dataclass(frozen=True, kw_only=True)
class HubToken:
    user: str
    role: str  # read, write or fineGrained


def check_hub_answers() -> None:
    """Raise UsageError if the Hub cannot be reached, or TransientError if it does not answer within five seconds."""
    endpoint = HfApi().endpoint
    with translated(f"Asking the Hub at {endpoint}"):
        try:
            get_session().head(endpoint, timeout=_ANSWER_SECONDS)
        except _NO_NETWORK as error:
            raise UsageError(f"The Hub does not answer at {endpoint} ({error}).") from error


def hub_token() -> HubToken | None:
    """Ask the Hub about this machine's token. None if there is no token.

    Call this only once, because the Hub limits such requests. Raises UsageError if the Hub refuses the token or cannot be
    reached, and TransientError if the Hub fails for now.
    """
    token = get_token()
    if token is None:
        return None
    asking = "Asking the Hub whose HF_TOKEN this is"
    with translated(asking):
        try:
            said = HfApi().whoami(token=token)
        except _NO_NETWORK as error:
            raise UsageError(f"The Hub does not say whose HF_TOKEN this is ({error}).") from error
        except HfHubHTTPError as error:
            if error.response is not None and error.response.status_code in (401, 403):
                raise UsageError("The Hub refuses this HF_TOKEN.") from error
            raise
    if not isinstance(said, dict) or "name" not in said:
        raise TransientError(f"{asking}: {UNUSABLE}.")
    access = said.get("auth", {}).get("accessToken", {})
    return HubToken(user=str(said["name"]), role=str(access.get("role", "unknown")))


def is_card_accepted(card: bytes) -> bool:
    """Return whether the Hub accepts a card's metadata.

    True if the Hub does not answer: it checks the card again at each commit.
    """
    try:
        with translated("Asking the Hub whether it takes the card"):
            try:
                DatasetCard(card.decode()).validate()
            except ValueError:
                return False
    except ShardsiftError:
        pass
    return True
