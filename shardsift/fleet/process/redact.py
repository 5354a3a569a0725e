"""Replace secrets in a text with `***`: a URL's user info and query, signatures, passwords, tokens.

Errors of libraries contain whole URLs, and a presigned URL gives every reader access to a file for hours. So texts are
redacted before they are stored or shown.
"""

import re
from typing import Any

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import is_url

_GONE = "***"
_SECRET_NAMES = (
    r"X-(?:Amz|Goog|Ms|Xet)-[\w-]+|Signature|sig|Expires|Policy|Key-Pair-Id|AWSAccessKeyId|AccountKey|"
    r"(?:[\w-]*[_-])?(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)"
)
_REPLACEMENTS = (
    # The user info of a URL. A name without a password is secret only in http(s): `abfss://container@account/…` is not.
    (re.compile(r"(?i)\b(https?://)[^\s/?#'\"<>]*@"), rf"\1{_GONE}@"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#'\"<>]*:[^\s/?#'\"<>]*@"), rf"\1{_GONE}@"),
    # A query, with or without the URL before it: some libraries report only the path.
    (re.compile(r"\?[\w.%~\[\]-]+=[^\s'\"<>)\]}`|]*"), f"?{_GONE}"),
    (re.compile(rf"(?i)(?<![\w-])({_SECRET_NAMES})=(?!\*)[^\s'\"&<>,;)]+"), rf"\1={_GONE}"),
    (re.compile(rf"(?i)(['\"](?:{_SECRET_NAMES}|authorization)['\"]\s*:\s*['\"])(?!\*)[^'\"]+"), rf"\1{_GONE}"),
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[A-Za-z0-9+/._~-]{8,}=*"), rf"\1 {_GONE}"),
    (re.compile(r"\bhf_[A-Za-z0-9]{16,}"), f"hf_{_GONE}"),
)


def redacted(text: str) -> str:
    """Return the text without secrets. Idempotent."""
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


def all_redacted(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: redacted(value) if isinstance(value, str) else value for name, value in fields.items()}


def refuse_secrets(option: str, uri: str) -> None:
    """Raise UsageError if a URL contains a secret.

    A run's spec, which has the URL, is stored in Redis and published.
    """
    if is_url(uri) and redacted(uri) != uri:
        raise UsageError(
            f"{option} {redacted(uri)} carries a password, token or signature, which would be stored with the run. "
            "Give the address alone and the credentials in the environment of producer, workers and finalizer: HF_TOKEN, "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your storage's fsspec library reads (FSSPEC_<PROTOCOL>_…)."
        )
