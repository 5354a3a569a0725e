"""Translate the libraries' errors into ShardError, which fails the shard, and TransientError, which retries it."""

import errno
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from pathlib import Path
from traceback import walk_tb

import httpx2
import pyarrow as pa
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

from shardsift.fleet.errors import ShardError, ShardsiftError, TransientError, lack_of
from shardsift.fleet.process.redact import redacted
from shardsift.fleet.process.wording import is_url, local_path

_TRANSIENT_STATUS = {408, 409, 412, 425, 429, *range(500, 600)}
_NOT_ALLOWED = (401, 403)
_TOO_MANY_REQUESTS = 429
_PERMANENT_ERRNO = {
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EROFS,
    errno.ENAMETOOLONG,
}
_PERMISSION_ERRNO = {errno.EACCES, errno.EPERM, errno.EROFS}
_LONGEST_WAIT_SECONDS = 3600.0  # longest wait that a server may ask for
_EXPIRED = {"ExpiredToken", "RequestTimeTooSkewed"}  # codes of S3, for which s3fs raises PermissionError
# Packages that read and write buckets and the web for fsspec, and raise errors of their own that are no OSErrors.
_CLIENTS = {"botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "adlfs", "azure"}
_ABOUT_CREDENTIALS = re.compile("Credential|Token|Auth|SSO|Profile|Refresh")
_HUB_ERRORS = tuple(  # several of them are neither OSError nor HTTPError
    kind for kind in vars(hub_errors).values() if isinstance(kind, type) and issubclass(kind, Exception)
)
_LIBRARIES_ERRORS = (OSError, pa.ArrowException, httpx2.HTTPError, RuntimeError, JSONDecodeError, *_HUB_ERRORS)
_NOT_SHOWN = (hub_errors.RepositoryNotFoundError, hub_errors.BucketNotFoundError)
_NO_ANSWER = (
    *(httpx2.HTTPError, ConnectionError, TimeoutError),
    *(hub_errors.FileMetadataError, hub_errors.LocalEntryNotFoundError),
)
_OTHER_SHAPE = (LookupError, TypeError, AttributeError, ValueError)
_HUB_CLIENT, _OURS = "huggingface_hub", {"fleet", "producer", "worker", "shardsift"}
_XET_STATUS = re.compile(r"HTTP status \w+ error \((\d{3})")  # hf_xet reports the status only in its message


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Convert a library's error in a block to a ShardError or TransientError.

    Its message starts with `doing`, such as "Reading shard 00042".
    """
    try:
        yield
    except ShardsiftError:
        raise
    except Exception as error:
        ours = storage_error(error, redacted(doing))
        if ours is None:
            raise
        raise ours from error


def storage_error(error: Exception, doing: str) -> ShardError | TransientError | None:
    """Convert a library's error to a ShardError or TransientError. None for any other error, which is a bug of ours."""
    if lack := lack_of(error):
        return TransientError(f"{doing}: {lack}")
    if isinstance(error, _LIBRARIES_ERRORS):
        return _from_library(error, doing)
    if isinstance(error, UnicodeEncodeError) and error.encoding == "ascii":  # from a header; URLs are already encoded
        return ShardError(
            f"{doing}: the Hub's token has a character that no token has. Check HF_TOKEN.", of_machine=True
        )
    if _is_of_client(error):
        return _from_client(error, doing)
    if _is_about_an_answer(error):
        what = f"{type(error).__name__}: {_line(error)}"
        return TransientError(f"{doing}: the Hub's answer cannot be used, and may be a proxy's ({what}).")
    return None


def _from_library(error: Exception, doing: str) -> ShardError | TransientError:
    if isinstance(error.__cause__, _NOT_SHOWN):  # it caused the Hub file system's FileNotFoundError
        error = error.__cause__
    if isinstance(error, hub_errors.HfHubHTTPError):
        return _from_hub(error, doing)
    if isinstance(error, (ConnectionError, RuntimeError)) and (status := _XET_STATUS.search(str(error))):
        return _from_status(int(status[1]), error, doing)
    if isinstance(error, JSONDecodeError):
        first = _short(error.doc.strip().partition("\n")[0]) or "nothing"
        return TransientError(f"{doing}: the answer is not the service's, but perhaps a proxy's ({first}).")
    if isinstance(error, _NO_ANSWER):
        return TransientError(f"{doing}: the network failed ({_line(error)}).")
    if isinstance(error, PermissionError) and _s3_code(error) in _EXPIRED:
        return _lacks_credentials(error, doing)
    if isinstance(error, OSError) and error.errno in _PERMANENT_ERRNO:
        return _from_path(error, doing)
    # fsspec and hf_xet raise the next two without an errno.
    if isinstance(error, (FileNotFoundError, hub_errors.EntryNotFoundError)):
        return ShardError(f"{doing}: the file does not exist ({_line(error)}).")
    if isinstance(error, (PermissionError, hub_errors.LocalTokenNotFoundError)):
        check = "the token or the file permissions"
        if isinstance(error, hub_errors.LocalTokenNotFoundError):
            check = "HF_TOKEN"
        elif _s3_code(error):
            check = "the key of this machine, such as AWS_ACCESS_KEY_ID, and its rights"
        return ShardError(f"{doing}: permission denied ({_line(error)}). Check {check}.", of_machine=True)
    if isinstance(error, pa.ArrowException):
        return ShardError(f"{doing}: not a readable Parquet file ({_line(error)}).")
    if isinstance(error, OSError) and error.errno is None:  # pyarrow's, for a broken page, or fsspec's, for any format
        return ShardError(f"{doing}: the file cannot be read and may be damaged ({_line(error)}).")
    if isinstance(error, ValueError):  # a name that the Hub's client rejects without asking the Hub
        return ShardError(f"{doing}: {_line(error)}.")
    # The rest are I/O errors of a disk or mount, and hf_xet's RuntimeErrors, which wrap network failures.
    return TransientError(f"{doing}: {_line(error)}.")


def _from_path(error: OSError, doing: str) -> ShardError:
    """Convert an error about a path.

    If the file's folder is missing too, this machine may not have mounted the disk, so the error is `of_machine`.
    """
    folder = Path(error.filename).parent if error.filename else None
    lacks_folder = error.errno == errno.ENOENT and folder is not None and not folder.exists()
    hint = f" This machine has no folder {folder}: mount its disk." if lacks_folder else ""
    return ShardError(
        f"{doing}: {error.strerror} ({error.filename or _line(error)}).{hint}",
        of_machine=lacks_folder or error.errno in _PERMISSION_ERRNO,
    )


def did_you_mean(path: str, *, having: str = "") -> str:
    """Return a sentence that suggests the existing local path most similar to a missing one. Empty if there is none.

    Prefers folders that hold a file called `having`.
    """
    if is_url(path):
        return ""
    missing = local_path(path)
    while not missing.parent.exists():
        missing = missing.parent
    with suppress(OSError):
        near = get_close_matches(missing.name, [path.name for path in missing.parent.iterdir()], n=9)
        near.sort(key=lambda name: not (missing.with_name(name) / having).is_file())
        if near and not missing.exists():
            return f" Did you mean {missing.with_name(near[0])}?"
    return ""


def _is_of_client(error: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] in _CLIENTS for kind in type(error).__mro__)


def _is_about_an_answer(error: Exception) -> bool:
    """Return whether the Hub's client raised an error such as KeyError because it could not use an answer.

    The same error from our code is a bug. A ValueError of the client's file system does not count: it means that the
    client cannot use a URL.
    """
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    last = next((name for name in reversed(modules) if name.partition(".")[0] in {_HUB_CLIENT, *_OURS}), "")
    is_about_a_url = isinstance(error, ValueError) and last == f"{_HUB_CLIENT}.hf_file_system"
    return isinstance(error, _OTHER_SHAPE) and last.startswith(_HUB_CLIENT) and not is_about_a_url


def _from_client(error: Exception, doing: str) -> ShardError | TransientError:
    """Convert an error of a storage client.

    Most come without an answer of the storage: the network failed, or this machine has no credentials.
    """
    name, status = type(error).__name__, _status_of(error)
    if _ABOUT_CREDENTIALS.search(name):
        return _lacks_credentials(error, doing)
    if "Validation" in name or (400 <= status < 500 and status not in _TRANSIENT_STATUS):
        return ShardError(f"{doing}: the storage refuses it ({_line(error)}).", of_machine=status in _NOT_ALLOWED)
    return TransientError(f"{doing}: the network failed ({_line(error)}).")


def _status_of(error: Exception) -> int:
    given = (getattr(error, name, None) for name in ("status", "status_code", "code"))
    return next((status for status in given if isinstance(status, int)), 0)


def _lacks_credentials(error: Exception, doing: str) -> TransientError:
    """Convert an error for lack of credentials. The result is transient, because another machine may have credentials."""
    return TransientError(
        f"{doing}: this machine has no valid credentials for the storage ({_line(error)}). Set them in the environment of "
        "the process, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or let it have a role.",
        of_machine=True,
    )


def _s3_code(error: Exception) -> str | None:
    response = getattr(error.__cause__, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _from_hub(error: hub_errors.HfHubHTTPError, doing: str) -> ShardError | TransientError:
    if isinstance(error, hub_errors.GatedRepoError):
        return ShardError(
            f"{doing}: this repository is gated. Accept its terms on the Hub and set HF_TOKEN.", of_machine=True
        )
    if isinstance(error, hub_errors.BucketBatchError):  # for one file of several, with status 200
        return TransientError(f"{doing}: the Hub did not change every file ({_line(error)}).")
    if isinstance(error, _NOT_SHOWN):
        return ShardError(
            f"{doing}: the Hub shows no such repository or bucket to this token. Check the name and HF_TOKEN. "
            "An output that was deleted is made again by the command that started the run.",
            of_machine=True,
        )
    if isinstance(error, (hub_errors.RevisionNotFoundError, hub_errors.EntryNotFoundError)):
        return ShardError(f"{doing}: no longer on the Hub ({_line(error)}).")
    return _from_status(error.response.status_code if error.response is not None else 0, error, doing)


def _from_status(status: int, error: Exception, doing: str) -> ShardError | TransientError:
    if status in _TRANSIENT_STATUS:
        asked = _asked_to_wait(error)
        wait = None if asked is None else min(asked, _LONGEST_WAIT_SECONDS)
        return TransientError(f"{doing}: the Hub answered {status} ({_line(error)}).", retry_after_seconds=wait)
    if status in _NOT_ALLOWED:
        reason = _short(str(getattr(error, "server_message", error) or "no reason given"))
        return ShardError(
            f"{doing}: the Hub refuses this ({status}: {reason.rstrip('.')}). "
            "If it is about the token, give HF_TOKEN the rights for this repository.",
            of_machine=True,
        )
    return ShardError(f"{doing}: the Hub answered {status} ({_line(error)}).")


def _asked_to_wait(error: Exception) -> float | None:
    """Return how many seconds the Hub asked to wait. None if it did not ask.

    Reads the header Retry-After (seconds or a date), otherwise the Hub's header RateLimit.
    """
    if not isinstance(error, hub_errors.HfHubHTTPError) or error.response is None:
        return None
    headers = error.response.headers
    if after := headers.get("Retry-After", "").strip():
        with suppress(ValueError, TypeError):
            return float(after) if after.isdigit() else max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    limit = parse_ratelimit_headers(headers) if error.response.status_code == _TOO_MANY_REQUESTS else None
    return float(limit.reset_in_seconds) if limit else None


def _line(error: Exception) -> str:
    return _short(str(error)) or type(error).__name__


def _short(text: str) -> str:
    return redacted(" ".join(text.split()))[:300]
