"""Take secrets out of a text before it is stored or shown: a URL's user-info and query, signatures, passwords, tokens.

Libraries put whole URLs into their errors, and a presigned one opens a file to anybody who reads it for hours. What is
replaced reads `***`; a text without secrets comes back as it is.
"""

import re
from typing import Any

_GONE = "***"
_SECRET_NAMES = (
    r"X-(?:Amz|Goog|Ms|Xet)-[\w-]+|Signature|sig|Expires|Policy|Key-Pair-Id|AWSAccessKeyId|AccountKey|"
    r"(?:[\w-]*[_-])?(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)"
)
_REPLACEMENTS = (
    # The user-info of a URL. `abfss://container@account/…` holds none: a name alone is a secret in http(s) only.
    (re.compile(r"(?i)\b(https?://)[^\s/?#'\"<>]*@"), rf"\1{_GONE}@"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#'\"<>]*:[^\s/?#'\"<>]*@"), rf"\1{_GONE}@"),
    # A query, with or without the URL before it: some libraries name the path alone.
    (re.compile(r"\?[\w.%~\[\]-]+=[^\s'\"<>)\]}`|]*"), f"?{_GONE}"),
    (re.compile(rf"(?i)(?<![\w-])({_SECRET_NAMES})=(?!\*)[^\s'\"&<>,;)]+"), rf"\1={_GONE}"),
    (re.compile(rf"(?i)(['\"](?:{_SECRET_NAMES}|authorization)['\"]\s*:\s*['\"])(?!\*)[^'\"]+"), rf"\1{_GONE}"),
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[A-Za-z0-9+/._~-]{8,}=*"), rf"\1 {_GONE}"),
    (re.compile(r"\bhf_[A-Za-z0-9]{16,}"), f"hf_{_GONE}"),
)


def redacted(text: str) -> str:
    """The text without its secrets. Redacting it again changes nothing."""
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


def all_redacted(fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields, texts redacted."""
    return {name: redacted(value) if isinstance(value, str) else value for name, value in fields.items()}
