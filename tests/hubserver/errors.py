"""What the Hub answers when it refuses: the status, the `X-Error-Code` the client reads, and the Hub's own words.

    HubError          any refusal, with its status

The client tells a missing repository from a missing file by the header alone, since the status is 404 for both.
"""


class HubError(Exception):
    """A refusal, raised anywhere below the HTTP layer, which turns it into an answer."""

    def __init__(self, status: int, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


def bad_request(message: str) -> HubError:
    return HubError(400, message)


def invalid_token() -> HubError:
    """The client tells this 401 from "no such repository" by these words."""
    return HubError(401, "Invalid credentials in Authorization header")


def token_required() -> HubError:
    """Over https the client takes a 401 without a code as a missing repository; over loopback it needs the code."""
    return HubError(401, "Invalid username or password.", code="RepoNotFound")


def write_token_required() -> HubError:
    return HubError(403, "Forbidden: you must use a write token to upload to a repository.")


def repo_not_found() -> HubError:
    return HubError(404, "Repository not found", code="RepoNotFound")


def revision_not_found(revision: str) -> HubError:
    return HubError(404, f"Invalid rev id: {revision}", code="RevisionNotFound")


def entry_not_found(message: str = "Entry not found") -> HubError:
    return HubError(404, message, code="EntryNotFound")


def gated_repo(repo_id: str) -> HubError:
    return HubError(403, f"Access to {repo_id} is restricted and you are not in the authorized list.", code="GatedRepo")


def stale_parent() -> HubError:
    return HubError(412, "A commit has happened since. Please refresh and try again.")


def commit_in_progress() -> HubError:
    message = "Another commit operation is in progress for this repository. Please try again later."
    return HubError(409, message)
