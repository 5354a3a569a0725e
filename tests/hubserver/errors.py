"""The Hub's error responses: status, message and the `X-Error-Code` header that the client reads.

    HubError          every error response, with its status

The messages are the Hub's. A missing repository and a missing file are both a 404: the client tells them apart by the
header.
"""


class HubError(Exception):
    """An error response, which any handler may raise. The HTTP layer sends it."""

    def __init__(self, status: int, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


def bad_request(message: str) -> HubError:
    return HubError(400, message)


def invalid_token() -> HubError:
    """Make the response for an invalid token. By its message, the client distinguishes it from a missing repository."""
    return HubError(401, "Invalid credentials in Authorization header")


def token_required() -> HubError:
    """Make the response for a request without a token.

    The code makes the client raise RepositoryNotFoundError. Over HTTPS, a 401 without a code does the same; over
    loopback HTTP, it does not.
    """
    return HubError(401, "Invalid username or password.", code="RepoNotFound")


def write_token_required() -> HubError:
    return HubError(403, "Forbidden: you must use a write token to upload to a repository.")


def repo_not_found() -> HubError:
    return HubError(404, "Repository not found", code="RepoNotFound")


def revision_not_found(revision: str) -> HubError:
    return HubError(404, f"Invalid rev id: {revision}", code="RevisionNotFound")


def entry_not_found(message: str = "Entry not found") -> HubError:
    return HubError(404, message, code="EntryNotFound")


def stale_parent() -> HubError:
    return HubError(412, "A commit has happened since. Please refresh and try again.")
