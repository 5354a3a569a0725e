"""Store the best token budgets that `worker tune` found on this machine, in a file of the state folder."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from shardsift.fleet.errors import UsageError

logger = logging.getLogger(__name__)

FILE_NAME = "tuning.json"


@dataclass(frozen=True, kw_only=True)
class Key:
    model: str
    revision: str  # the Hub commit, or the digest of a folder's files
    device: str
    dtype: str  # the actual one, never "auto"
    backend: str


@dataclass(frozen=True, kw_only=True)
class Tuned:
    key: Key
    max_batch_tokens: int
    date: str  # UTC


_TUNED = TypeAdapter(list[Tuned])


def read_tuned(state_dir: Path) -> list[Tuned]:
    """Read all token budgets that `worker tune` stored. For an unreadable file, logs a warning and returns none of them.

    Workers may then be slower.
    """
    file = state_dir / FILE_NAME
    try:
        return _TUNED.validate_json(file.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not what `worker tune` writes"
        logger.warning("Ignoring %s: %s. Run `worker tune` again to replace it.", file, reason)
        return []


def find_tuned(state_dir: Path, key: Key) -> Tuned | None:
    return next((tuned for tuned in read_tuned(state_dir) if tuned.key == key), None)


def store_tuned(state_dir: Path, tuned: Tuned) -> Path:
    """Store a token budget. It replaces an earlier one with the same `tuned.key`.

    Returns the path of the file. Raises UsageError if the folder cannot be written.
    """
    others = [other for other in read_tuned(state_dir) if other.key != tuned.key]
    file = state_dir / FILE_NAME
    aside = state_dir / f".{FILE_NAME}.{uuid4().hex}"
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps([asdict(one) for one in (*others, tuned)], indent=2) + "\n")
        aside.replace(file)
    except OSError as error:
        raise UsageError(
            f"Cannot write {file}: {error.strerror}. Set SHARDSIFT_STATE_DIR to a writable folder."
        ) from error
    return file
