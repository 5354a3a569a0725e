"""The labels of zero-shot classification, as the user names them to a run or to `worker tune`."""

from collections.abc import Sequence
from pathlib import Path

from fleet.errors import UsageError


def given_labels(labels: Sequence[str], labels_file: str | None) -> Sequence[str]:
    """Those of `--labels` or of `--labels-file`. Raises UsageError if there are both or none, or the file cannot be read."""
    if labels and labels_file:
        raise UsageError("Use only one of --labels and --labels-file.")
    if not (labels or labels_file):
        raise UsageError("Say which labels to choose from, with --labels or --labels-file.")
    return labels or _lines(Path(labels_file or ""))


def split_at_commas(labels: Sequence[str]) -> list[str]:
    """Each `--labels` may have several, with commas between them."""
    return ",".join(labels).split(",")


def _lines(file: Path) -> list[str]:
    try:
        labels = file.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--labels-file {file} cannot be read: {reason}. It holds one label a line, in UTF-8."
        ) from error
    if not any(map(str.strip, labels)):
        raise UsageError(f"There are no labels in --labels-file {file}. Write one label a line.")
    return labels
