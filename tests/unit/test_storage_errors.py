"""Every error of the storage libraries becomes one of two: give up the shard, or retry it later."""

import errno
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pyarrow as pa
import pytest
from huggingface_hub import errors as hub_errors
from huggingface_hub.errors import HfHubHTTPError

from fleet.errors import LeaseLost, ShardError, ShardsiftError, TransientError
from fleet.storage.errors import as_ours, translated

REQUEST = httpx2.Request("GET", "http://hub/api")
LONG = "first line\n\n  second line\n" * 200


def subclasses(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__.startswith(root.__module__.split(".")[0]):
            yield from subclasses(child)


def made(kind: type[Exception], status: int = 500) -> Exception:
    """An error of this class, with a message of several lines if it takes one."""
    given = {
        "message": LONG,
        "msg": LONG,
        "response": httpx2.Response(status, request=REQUEST),
        "request": REQUEST,
        "cache_dir": "/cache",
        "snapshot_path": "/cache",
        "uri": "hf://x",
        "field": "field",
        "validator": "validator",
        "cause": ValueError(LONG),
        "cmd": "ls",
        "result": None,
    }
    required = [
        parameter.name
        for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    return kind(**{name: given[name] for name in required}) if required else kind(LONG)


HUB_ERRORS = [
    kind
    for kind in vars(hub_errors).values()
    if inspect.isclass(kind)
    and issubclass(kind, Exception)
    and kind.__module__ == hub_errors.__name__
    and kind is not hub_errors.SandboxCommandError  # created from a result object; no storage raises it
]
HTTP_ERRORS = sorted(set(subclasses(httpx2.HTTPError)), key=str)
ARROW_ERRORS = sorted(set(subclasses(pa.ArrowException)), key=str)


def raised(error: Exception) -> ShardsiftError:
    with pytest.raises(ShardsiftError) as ours, translated("Reading shard a"):
        raise error
    assert ours.value.__cause__ is error
    return ours.value


def assert_readable(ours: ShardsiftError) -> None:
    message = str(ours)
    assert message.startswith("Reading shard a: ")
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 500


@pytest.mark.parametrize("kind", [*HUB_ERRORS, *HTTP_ERRORS, *ARROW_ERRORS, OSError, RuntimeError])
def test_every_error_of_a_library_becomes_ours_in_one_line(kind: type[Exception]) -> None:
    ours = raised(made(kind))

    assert isinstance(ours, (ShardError, TransientError))
    assert_readable(ours)


@pytest.mark.parametrize("kind", HTTP_ERRORS)
def test_trouble_of_the_network_passes(kind: type[Exception]) -> None:
    assert isinstance(raised(made(kind)), TransientError)


@pytest.mark.parametrize("status", [408, 409, 412, 425, 429, 500, 502, 503, 504, 599])
def test_trouble_of_the_hub_passes(status: int) -> None:
    ours = raised(made(HfHubHTTPError, status))

    assert isinstance(ours, TransientError)
    assert f"the Hub answered {status}" in str(ours)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
def test_a_refusal_of_the_hub_stays(status: int) -> None:
    ours = raised(made(HfHubHTTPError, status))

    assert isinstance(ours, ShardError)
    assert str(status) in str(ours)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_told_with_what_to_do(status: int) -> None:
    assert "Give HF_TOKEN the rights" in str(raised(made(HfHubHTTPError, status)))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (hub_errors.RepositoryNotFoundError, "Check the name and HF_TOKEN"),
        (hub_errors.GatedRepoError, "Check the name and HF_TOKEN"),
        (hub_errors.RevisionNotFoundError, "no longer on the Hub"),
        (hub_errors.RemoteEntryNotFoundError, "no longer on the Hub"),
        (hub_errors.EntryNotFoundError, "the file does not exist"),
        (hub_errors.LocalTokenNotFoundError, "Check the token"),
        (hub_errors.HFValidationError, "first line second line"),
        (pa.ArrowInvalid, "not a readable Parquet file"),
        (pa.ArrowNotImplementedError, "not a readable Parquet file"),
        (OSError, "not a readable Parquet file"),  # what pyarrow raises for a truncated file
        (FileNotFoundError, "the file does not exist"),  # fsspec's, without an errno
        (PermissionError, "permission denied"),
    ],
)
def test_what_no_later_attempt_mends_says_what_it_is(kind: type[Exception], says: str) -> None:
    ours = raised(made(kind, 404))

    assert isinstance(ours, ShardError)
    assert says in str(ours)
    assert_readable(ours)


@pytest.mark.parametrize(
    "kind",
    [
        hub_errors.LocalEntryNotFoundError,  # "not in the cache, and the network is away"
        hub_errors.OfflineModeIsEnabled,
        hub_errors.FileMetadataError,
        hub_errors.XetDownloadError,
        pa.ArrowMemoryError,
        ConnectionResetError,
        TimeoutError,
        RuntimeError,  # hf_xet's
    ],
)
def test_what_a_later_attempt_may_not_meet_is_transient(kind: type[Exception]) -> None:
    assert isinstance(raised(made(kind)), TransientError)


@pytest.mark.parametrize("code", ["ENOENT", "EACCES", "EPERM", "EISDIR", "ENOTDIR", "EROFS", "ENAMETOOLONG"])
def test_a_path_that_cannot_be_stays_so(code: str, tmp_path: Path) -> None:
    number, file = getattr(errno, code), tmp_path / "a.parquet"

    ours = raised(OSError(number, os.strerror(number), str(file)))

    assert isinstance(ours, ShardError)
    assert str(ours) == f"Reading shard a: {os.strerror(number)} ({file})."


@pytest.mark.parametrize("code", ["EIO", "ESTALE", "EBUSY", "EMFILE", "ETIMEDOUT", "ECONNRESET", "EPIPE", "EINTR"])
def test_trouble_of_a_disk_or_mount_passes(code: str) -> None:
    number = getattr(errno, code)

    assert isinstance(raised(OSError(number, os.strerror(number))), TransientError)


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT"])
def test_a_full_disk_passes_and_is_told_with_what_to_do(code: str) -> None:
    ours = raised(OSError(getattr(errno, code), "full"))

    assert isinstance(ours, TransientError)
    assert "Free some on that disk" in str(ours)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("client error (401 Unauthorized)", ShardError),
        ("client error (403 Forbidden)", ShardError),
        ("client error (404 Not Found)", ShardError),
        ("client error (429 Too Many Requests)", TransientError),
        ("server error (503 Service Unavailable)", TransientError),
    ],
)
@pytest.mark.parametrize("raises", [ConnectionError, RuntimeError])
def test_a_status_that_hf_xet_tells_in_words_is_understood(
    raises: type[Exception], status: str, kind: type[Exception]
) -> None:
    assert isinstance(raised(raises(f"Network error: Request error: HTTP status {status}, domain: http://hub")), kind)


@pytest.mark.parametrize("page", [" \n<html>\n<h1>502 Bad Gateway</h1>\n", ""])
def test_a_page_of_a_proxy_in_place_of_an_answer_is_transient_and_told_by_its_first_line(page: str) -> None:
    with pytest.raises(TransientError) as ours, translated("Reading shard a"):
        httpx2.Response(200, text=page, request=REQUEST).json()

    first = "<html>" if page else "nothing"
    assert str(ours.value) == f"Reading shard a: the answer is not the service's, but perhaps a proxy's ({first})."


@pytest.mark.parametrize("error", [LeaseLost("lost"), ShardError("broken"), TransientError("later")])
def test_our_own_errors_pass_unchanged(error: ShardsiftError) -> None:
    with pytest.raises(type(error)) as ours, translated("Reading shard a"):
        raise error

    assert ours.value is error


@pytest.mark.parametrize("kind", [TypeError, KeyError, AssertionError])
def test_a_bug_of_ours_is_not_taken_for_trouble_of_storage(kind: type[Exception]) -> None:
    with pytest.raises(kind), translated("Reading shard a"):
        raise kind


def test_an_error_without_words_is_told_by_its_class() -> None:
    assert str(as_ours(ConnectionResetError(), "Reading a")) == "Reading a: the network failed (ConnectionResetError)."


def of_package(name: str, package: str, **fields: object) -> Exception:
    """An error as a client of buckets raises it. The packages are optional, and their errors are no OSErrors."""
    kind = type(name, (Exception,), {"__module__": f"{package}.exceptions"})
    error = kind(LONG)
    vars(error).update(fields)
    return error


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("NoCredentialsError", "botocore"),
        ("PartialCredentialsError", "botocore"),
        ("UnauthorizedSSOTokenError", "botocore"),
        ("ProfileNotFound", "botocore"),
        ("DefaultCredentialsError", "google.auth"),
        ("RefreshError", "google.auth"),
        ("ClientAuthenticationError", "azure.core"),
    ],
)
def test_a_machine_without_credentials_leaves_the_shard_to_others_and_says_so(name: str, package: str) -> None:
    ours = raised(of_package(name, package))

    assert isinstance(ours, TransientError)
    assert "this machine has no valid credentials for the storage (first line second line" in str(ours)
    assert "Set them in the environment of the process, such as AWS_ACCESS_KEY_ID" in str(ours)
    assert ours.of_machine


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestTimeTooSkewed"])
def test_credentials_that_have_expired_are_those_of_the_machine(code: str) -> None:
    error = PermissionError("The provided token has expired.")  # as s3fs raises it
    error.__cause__ = of_package("ClientError", "botocore", response={"Error": {"Code": code}})

    ours = as_ours(error, "Reading shard a")

    assert isinstance(ours, TransientError)
    assert "no valid credentials" in str(ours)
    assert ours.of_machine


@pytest.mark.parametrize(
    "error",
    [
        made(HfHubHTTPError, 401),
        made(HfHubHTTPError, 403),
        made(hub_errors.RepositoryNotFoundError, 404),  # what the Hub answers for a private one
        made(hub_errors.GatedRepoError, 403),
        RuntimeError("Network error: Request error: HTTP status client error (403 Forbidden), domain: http://hub"),
        PermissionError("Access Denied"),  # s3fs's, without an errno
        OSError(errno.EACCES, "Permission denied", "/data/a.parquet"),
        OSError(errno.EROFS, "Read-only file system", "/data/a.parquet"),
    ],
)
def test_what_another_machine_may_do_is_of_the_machine(error: Exception) -> None:
    ours = as_ours(error, "Reading shard a")

    assert isinstance(ours, ShardError)
    assert ours.of_machine


@pytest.mark.parametrize(
    "error",
    [
        made(HfHubHTTPError, 404),
        made(hub_errors.RevisionNotFoundError, 404),
        pa.ArrowInvalid("not Parquet"),
        FileNotFoundError("gone"),
        OSError(errno.EISDIR, "Is a directory", "/data"),
        ConnectionResetError("reset"),
    ],
)
def test_what_no_other_machine_can_do_either_is_not(error: Exception) -> None:
    ours = as_ours(error, "Reading shard a")

    assert not ours.of_machine


def test_a_missing_file_is_of_the_machine_if_its_folder_is_missing_too(tmp_path: Path) -> None:
    def missing(file: Path) -> ShardError | TransientError:
        return as_ours(FileNotFoundError(errno.ENOENT, "No such file or directory", str(file)), "Looking at a")

    unmounted, gone = missing(tmp_path / "disk" / "a.parquet"), missing(tmp_path / "a.parquet")

    assert (unmounted.of_machine, gone.of_machine) == (True, False)
    assert str(unmounted).endswith(f"This machine has no folder {tmp_path / 'disk'}: mount its disk.")
    assert str(gone) == f"Looking at a: No such file or directory ({tmp_path / 'a.parquet'})."


@pytest.mark.parametrize(
    ("name", "package", "status"),
    [
        ("EndpointConnectionError", "botocore", None),
        ("ReadTimeoutError", "botocore", None),
        ("ConnectionClosedError", "botocore", None),
        ("ServerDisconnectedError", "aiohttp.client", None),
        ("ClientResponseError", "aiohttp.client", 503),
        ("ClientResponseError", "aiohttp.client", 429),
        ("ServiceRequestError", "azure.core", None),
    ],
)
def test_trouble_of_a_bucket_passes_as_that_of_the_hub(name: str, package: str, status: int | None) -> None:
    ours = raised(of_package(name, package, status=status))

    assert isinstance(ours, TransientError)
    assert_readable(ours)


@pytest.mark.parametrize(
    ("name", "package", "fields"),
    [
        ("ParamValidationError", "botocore", {}),
        ("ClientResponseError", "aiohttp.client", {"status": 403}),
        ("HttpError", "gcsfs", {"code": 400}),
        ("HttpResponseError", "azure.core", {"status_code": 403}),
    ],
)
def test_a_refusal_of_a_bucket_stays(name: str, package: str, fields: dict[str, object]) -> None:
    ours = raised(of_package(name, package, **fields))

    assert isinstance(ours, ShardError)
    assert_readable(ours)


def test_no_server_lets_a_shard_wait_for_longer_than_an_hour() -> None:
    response = httpx2.Response(429, request=REQUEST, headers={"Retry-After": "31536000"})

    ours = raised(HfHubHTTPError("slow down", response=response))

    assert isinstance(ours, TransientError)
    assert ours.retry_after_seconds == 3600
