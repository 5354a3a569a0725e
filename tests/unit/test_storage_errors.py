"""Every error of the storage libraries becomes one of two: give up the shard, or retry it later."""

import errno
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pyarrow as pa
import pytest
from huggingface_hub import HfFileSystem
from huggingface_hub import errors as hub_errors
from huggingface_hub._commit_api import _validate_preupload_info
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import hf_raise_for_status, parse_datetime, validate_hf_hub_args

from shardsift.fleet.errors import LeaseLost, ShardError, ShardsiftError, TransientError
from shardsift.fleet.storage.errors import storage_error, translated

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


def of_package(name: str, package: str, **fields: object) -> Exception:
    """An error as a client of buckets raises it. The packages are optional, and their errors are no OSErrors."""
    kind = type(name, (Exception,), {"__module__": f"{package}.exceptions"})
    error = kind(LONG)
    vars(error).update(fields)
    return error


def of_path(code: str) -> OSError:
    number = getattr(errno, code)
    return OSError(number, os.strerror(number), "/data")


def of_xet(status: str, kind: type[Exception] = RuntimeError) -> Exception:
    return kind(f"Network error: Request error: HTTP status {status}, domain: http://hub")


def hub_refusal(status: int, reason: str) -> HfHubHTTPError:
    """As the client makes it: the Hub's own words are apart from the message."""
    response = httpx2.Response(status, request=REQUEST, json={"error": reason})
    with pytest.raises(HfHubHTTPError) as error:
        hf_raise_for_status(response)
    return error.value


def hidden(error: Exception) -> FileNotFoundError:
    """As the client's file system raises it."""
    missing = FileNotFoundError("datasets/org/in")
    missing.__cause__ = error
    return missing


def of_s3(code: str) -> Exception:
    """As s3fs raises it."""
    error = PermissionError(code)
    error.__cause__ = of_package("ClientError", "botocore", response={"Error": {"Code": code}})
    return error


NO_CREDENTIALS = "this machine has no valid credentials for the storage"
TRANSIENT: list[tuple[Exception, str]] = [
    *((made(kind), "") for kind in HTTP_ERRORS),
    *(
        (made(HfHubHTTPError, status), f"the Hub answered {status}")
        for status in (408, 409, 412, 425, 429, 500, 503, 599)
    ),
    (made(hub_errors.BucketBatchError, 200), "the Hub did not change every file"),
    (made(hub_errors.LocalEntryNotFoundError), "the network failed"),  # "not in the cache, and the network is away"
    (made(pa.ArrowMemoryError), "out of memory"),
    (TimeoutError(LONG), "the network failed"),
    (RuntimeError(LONG), "first line second line"),  # hf_xet's
    *(
        (of_path(code), "")
        for code in ("EIO", "ESTALE", "EBUSY", "EMFILE", "ETIMEDOUT", "ECONNRESET", "EPIPE", "EINTR")
    ),
    *((of_path(code), "the disk of / is full: no space left. Free some on that disk") for code in ("ENOSPC", "EDQUOT")),
    (of_xet("client error (429 Too Many Requests)"), "429"),
    (of_xet("server error (503 Service Unavailable)", ConnectionError), "503"),
    (of_package("EndpointConnectionError", "botocore"), "the network failed"),
    (of_package("ClientResponseError", "aiohttp.client", status=503), "the network failed"),
]
TRANSIENT_OF_MACHINE: list[tuple[Exception, str]] = [
    (of_package("NoCredentialsError", "botocore"), NO_CREDENTIALS),
    (of_package("ClientAuthenticationError", "azure.core"), NO_CREDENTIALS),
    (of_s3("ExpiredToken"), NO_CREDENTIALS),
]
OF_SHARD: list[tuple[Exception, str]] = [
    *((made(HfHubHTTPError, status), f"the Hub answered {status}") for status in (400, 404, 410, 413, 422)),
    (made(hub_errors.RemoteEntryNotFoundError, 404), "no longer on the Hub"),
    (made(hub_errors.EntryNotFoundError), "the file does not exist"),
    (made(pa.ArrowInvalid), "not a readable Parquet file"),
    (OSError(LONG), "the file cannot be read and may be damaged"),  # pyarrow's for a truncated file
    (FileNotFoundError(LONG), "the file does not exist"),  # fsspec's, without an errno
    *(
        (of_path(code), f"{os.strerror(getattr(errno, code))} (/data).")
        for code in ("ENOENT", "EISDIR", "ENOTDIR", "ENAMETOOLONG")
    ),
    (of_xet("client error (404 Not Found)"), "404"),
    (of_package("ParamValidationError", "botocore"), "the storage refuses it"),
    (of_package("HttpError", "gcsfs", code=400), "the storage refuses it"),
]
OF_MACHINE: list[tuple[Exception, str]] = [
    *((made(HfHubHTTPError, status), "give HF_TOKEN the rights") for status in (401, 403)),
    (hub_refusal(403, "Storage limit reached"), "refuses this (403: Storage limit reached)"),
    (hub_refusal(403, "Not with hf_aaaaaaaaaaaaaaaaaaaa"), "(403: Not with hf_***)"),
    # The Hub's answer for a private one.
    (made(hub_errors.RepositoryNotFoundError, 404), "Check the name and HF_TOKEN"),
    (hidden(made(hub_errors.RepositoryNotFoundError, 404)), "Check the name and HF_TOKEN"),
    (made(hub_errors.GatedRepoError, 403), "Accept its terms on the Hub"),
    (made(hub_errors.LocalTokenNotFoundError), "Check HF_TOKEN."),
    (of_xet("client error (403 Forbidden)"), "domain: http://hub). If it is about the token, give HF_TOKEN"),
    (PermissionError("Access Denied"), "Check the token or the file permissions."),  # hf_xet's, without an errno
    *((of_s3(code), "Check the key of this machine") for code in ("AccessDenied", "InvalidAccessKeyId")),
    *((of_path(code), os.strerror(getattr(errno, code))) for code in ("EACCES", "EPERM", "EROFS")),
    (of_package("ClientResponseError", "aiohttp.client", status=403), "the storage refuses it"),
]
CASES = [
    *((error, says, TransientError, False) for error, says in TRANSIENT),
    *((error, says, TransientError, True) for error, says in TRANSIENT_OF_MACHINE),
    *((error, says, ShardError, False) for error, says in OF_SHARD),
    *((error, says, ShardError, True) for error, says in OF_MACHINE),
]


@pytest.mark.parametrize(("error", "says", "kind", "of_machine"), CASES, ids=lambda value: repr(value)[:40])
def test_an_error_says_who_can_try_again_and_what_to_do(
    error: Exception, says: str, kind: type[ShardError | TransientError], of_machine: bool
) -> None:
    ours = raised(error)

    assert isinstance(ours, kind)
    assert ours.of_machine == of_machine
    assert says in str(ours)
    assert_readable(ours)


@pytest.mark.parametrize("page", [" \n<html>\n<h1>502 Bad Gateway</h1>\n", ""])
def test_a_page_of_a_proxy_in_place_of_an_answer_is_transient_and_reported_by_its_first_line(page: str) -> None:
    with pytest.raises(TransientError) as ours, translated("Reading shard a"):
        httpx2.Response(200, text=page, request=REQUEST).json()

    first = "<html>" if page else "nothing"
    assert str(ours.value) == f"Reading shard a: the answer is not the service's, but perhaps a proxy's ({first})."


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: RepoFile(), "KeyError: 'path'"),
        (lambda: RepoFile(path="a", size=1, oid="b", lfs="login"), "TypeError: "),
        (lambda: _validate_preupload_info({}), "ValueError: preupload_info is improperly formatted"),
        (lambda: parse_datetime(None), "AttributeError: "),
    ],
)
def test_an_answer_of_another_shape_is_transient_and_says_what_it_lacks(read: Callable[[], object], says: str) -> None:
    with pytest.raises(TransientError) as ours, translated("Reading shard a"):
        read()

    assert f"the Hub's answer cannot be used, and may be a proxy's ({says}" in str(ours.value)
    assert_readable(ours.value)


def test_a_token_with_a_letter_that_no_header_takes_is_reported_and_not_tried_again() -> None:
    with pytest.raises(ShardError, match="Check HF_TOKEN") as ours, translated("Reading shard a"):
        httpx2.Request("GET", "http://hub", headers={"authorization": "Bearer hf_\u00e4"})

    assert "hf_" not in str(ours.value)


def test_an_address_that_the_client_cannot_use_is_not_taken_for_an_answer() -> None:
    with pytest.raises(ValueError, match="namespace/name"), translated("Listing hf://in"):
        HfFileSystem().resolve_path("hf://in")


def test_a_bug_of_ours_that_the_client_calls_is_not_taken_for_an_answer() -> None:
    with pytest.raises(KeyError), translated("Reading shard a"):
        validate_hf_hub_args(eval("lambda: {}['bug']", {"__name__": "shardsift.fleet.storage.made_up"}))()


@pytest.mark.parametrize(
    "error",
    [LeaseLost("lost"), ShardError("broken"), TransientError("later"), TypeError(), KeyError(), AssertionError()],
)
def test_our_own_errors_and_bugs_pass_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as ours, translated("Reading shard a"):
        raise error

    assert ours.value is error


def test_a_missing_file_is_of_the_machine_if_its_folder_is_missing_too(tmp_path: Path) -> None:
    def missing(file: Path) -> ShardError | TransientError:
        return storage_error(FileNotFoundError(errno.ENOENT, "No such file or directory", str(file)), "Looking at a")

    (tmp_path / "b.parquet").touch()  # another shard, which is not meant

    unmounted, gone = missing(tmp_path / "disk" / "a.parquet"), missing(tmp_path / "a.parquet")

    assert (unmounted.of_machine, gone.of_machine) == (True, False)
    assert str(unmounted).endswith(f"This machine has no folder {tmp_path / 'disk'}: mount its disk.")
    assert str(gone) == f"Looking at a: No such file or directory ({tmp_path / 'a.parquet'})."


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120),
        ({"Retry-After": "31536000"}, 3600),
        ({"RateLimit": '"api";r=0;t=1200'}, 1200),
        ({}, None),
    ],
)
def test_a_server_says_how_long_a_shard_waits_up_to_an_hour(headers: dict[str, str], seconds: float | None) -> None:
    response = httpx2.Response(429, request=REQUEST, headers=headers)

    ours = raised(HfHubHTTPError("slow down", response=response))

    assert isinstance(ours, TransientError)
    assert ours.retry_after_seconds == seconds
