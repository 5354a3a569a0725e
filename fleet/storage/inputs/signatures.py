"""Guess what a file really is that is not what its name says, from its first and last bytes."""

from typing import BinaryIO

_PARQUET = b"PAR1"
_HEAD_BYTES = 512
_NO_LINES = {
    b"\x1f\x8b": "a gzip file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"PK\x03\x04": "a ZIP file",
    b"ARROW1": "an Arrow file",
    b"PARE": "an encrypted Parquet file",
    b"version https://git-lfs": "a Git LFS pointer, whose file was not fetched",
}
_SIGNATURES = {
    **_NO_LINES,
    b"{": "JSON, perhaps JSON Lines",
    b"[": "JSON",
    b"<": "HTML or XML",
}


def other_format(file: BinaryIO) -> str | None:
    """A description of the format; None if the file starts and ends like Parquet."""
    size = file.seek(0, 2)
    file.seek(max(0, size - len(_PARQUET)))
    tail = file.read()
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    if head.startswith(_PARQUET):
        return None if tail == _PARQUET and size > len(_PARQUET) else "it starts like one but is truncated"
    return _described(head)


def no_lines(head: bytes) -> str | None:
    """A description of the format of a file that should have lines of text; None if it may have."""
    known = {**_NO_LINES, _PARQUET: "a Parquet file"}
    return next((f"it looks like {name}" for signature, name in known.items() if head.startswith(signature)), None)


def _described(head: bytes) -> str:
    if not head:
        return "it is empty"
    for signature, name in _SIGNATURES.items():
        if head.lstrip(b" \r\n\t\xef\xbb\xbf").startswith(signature):
            return f"it looks like {name}"
    return "it looks like text, perhaps CSV" if _is_text(head) else "it does not start like one"


def _is_text(head: bytes) -> bool:
    try:
        return head[:-4].decode().isprintable() or b"\n" in head and b"\0" not in head
    except UnicodeDecodeError:
        return False
