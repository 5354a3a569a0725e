"""What --checkpoints says: a folder, or the URI of a place to which checkpoints are copied."""

import fsspec

from fleet.errors import UsageError


def is_uri(given: str) -> bool:
    return "://" in given


def check_copied_to(uri: str) -> None:
    """Raises UsageError for a place to which nothing can be copied. Does not look: only workers may have its credentials."""
    protocol = uri.partition("://")[0]
    if protocol == "hf" or protocol not in fsspec.available_protocols():
        raise UsageError(f"Checkpoints go to a folder or a bucket, such as s3://BUCKET/FOLDER, and not to {uri}.")
