"""The labels of zero-shot classification, as the user names them to a run or to `worker tune`."""

from collections.abc import Sequence
from pathlib import Path

from fleet.errors import UsageError


def given_labels(labels: Sequence[str]) -> Sequence[str]:
    """The labels, or the lines of the file that `@FILE` names. Raises UsageError if it cannot be read."""
    files = [label[1:] for label in labels if label.startswith("@")]
    if files and len(labels) > 1:
        raise UsageError(f"--labels @{files[0]} goes with no other label. Write all labels into the file.")
    return _lines(Path(files[0])) if files else labels


def split_at_commas(labels: Sequence[str]) -> list[str]:
    """Each `--labels` may have several, with commas between them. A file's name may have commas."""
    return [label for text in labels for label in ([text] if text.startswith("@") else text.split(","))]


def _lines(file: Path) -> list[str]:
    try:
        labels = file.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--labels @{file} cannot be read: {reason}. It holds one label a line, in UTF-8.") from error
    if not any(map(str.strip, labels)):
        raise UsageError(f"There are no labels in --labels @{file}. Write one label a line.")
    return labels
