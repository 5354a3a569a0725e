"""Ask the Hub whether it answers, and what the token here may do. Short requests, without the client's long retries."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fsspec
import httpx2
from fsspec.core import url_to_fs
from huggingface_hub import HfApi, HfFileSystem, get_session, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile, RepoFolder
from huggingface_hub.hf_file_system import HfFileSystemFile

from fleet.errors import TransientError, UsageError
from fleet.storage.errors import translated

_ANSWER_SECONDS = 5.0
_UNUSABLE = "the Hub's answer cannot be used, and may be a proxy's"
_NO_NETWORK = (httpx2.ConnectError, ConnectionError)


@dataclass(frozen=True, kw_only=True)
class HubToken:
    """Whose token it is, and the Hub's word for what it may do: `read`, `write` or `fineGrained`."""

    user: str
    role: str


def check_hub_answers() -> None:
    """Raises UsageError if the Hub cannot be reached, TransientError if it does not answer within a few seconds."""
    endpoint = HfApi().endpoint
    with translated(f"Asking the Hub at {endpoint}"):
        try:
            get_session().head(endpoint, timeout=_ANSWER_SECONDS)
        except _NO_NETWORK as error:
            raise UsageError(f"The Hub does not answer at {endpoint} ({error}).") from error


def hub_token() -> HubToken | None:
    """Ask the Hub about the token here; None if there is no token. The Hub limits such requests, so ask once.

    Raises UsageError if the Hub refuses the token or cannot be reached, TransientError if it has trouble.
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
        raise TransientError(f"{asking}: {_UNUSABLE}.")
    access = said.get("auth", {}).get("accessToken", {})
    return HubToken(user=str(said["name"]), role=str(access.get("role", "unknown")))


# Read files on the Hub through fsspec. An answer that is not the file's bytes, such as a proxy's page, is an error.


def filesystem_of(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of a URI and the path there, as fsspec has it. Raises what fsspec raises."""
    return (HubFiles(), HubFiles._strip_protocol(uri)) if uri.startswith("hf://") else url_to_fs(uri)


class HubApi(HfApi):
    def list_repo_tree(
        self, repo_id: str, path_in_repo: str | None = None, **options: Any
    ) -> Iterator[RepoFile | RepoFolder]:
        """Raises TransientError for the answer `{}`, which the client takes for an empty folder: Git has none."""
        is_empty = True
        for entry in super().list_repo_tree(repo_id, path_in_repo, **options):
            is_empty = False
            yield entry
        kind, revision = options["repo_type"], options.get("revision")
        if is_empty and getattr(self.repo_info(repo_id, repo_type=kind, revision=revision), "siblings", None):
            raise TransientError(f"Listing hf://{kind}s/{repo_id}/{path_in_repo or ''}: {_UNUSABLE}.")


class HubFiles(HfFileSystem):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._api = HubApi()

    def _open(  # type: ignore[override]
        self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any
    ) -> HfFileSystemFile:
        return _WholeAnswers(self, path, mode=mode, block_size=block_size or self.block_size, **options)


class _WholeAnswers(HfFileSystemFile):
    """The client takes any answer with status 200 for the bytes that it asked for."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = super()._fetch_range(start, end)
        if len(content) != min(end, self.size) - start:
            raise ConnectionError(f"an answer of {len(content):,} bytes is not the file's, but perhaps a proxy's")
        return content

    def read(self, length: int | None = -1) -> bytes:
        """Also of a whole file, which the client reads in another way."""
        return bytes(super().read(self.size - self.loc if length in (None, -1) else length))  # type: ignore[no-untyped-call]
