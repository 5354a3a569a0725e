"""What was found best, by model, device, format and backend: a file in the state folder of this machine's user."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from fleet.errors import UsageError
from worker.scoring import SequenceClassifier
from worker.tuning.trials import Figures

logger = logging.getLogger(__name__)

FILE_NAME = "tuning.json"


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a best budget holds for."""

    model: str
    revision: str  # the Hub's commit, or for a folder the digest of its files
    device: str
    dtype: str  # the one in use, never "auto"
    backend: str


@dataclass(frozen=True, kw_only=True)
class Tuned:
    key: Key
    max_batch_tokens: int
    date: str  # UTC
    rows: int  # of the trial
    threads: int  # of torch, on the CPU
    versions: dict[str, str]
    figures: Figures


_TUNED = TypeAdapter(list[Tuned])


def key_of(scorer: SequenceClassifier, model: str, revision: str) -> Key:
    return Key(
        model=model,
        revision=revision,
        device=scorer.info.device,
        dtype=scorer.dtype,
        backend=scorer.backend.name,
    )


def read_tuned(state_dir: Path) -> list[Tuned]:
    """All that is known. A file that cannot be read is ignored, with a warning: nothing is lost but some speed."""
    file = state_dir / FILE_NAME
    try:
        return _TUNED.validate_json(file.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not what `worker tune` writes"
        logger.warning("Ignoring %s: %s. `worker tune` writes it anew.", file, reason)
        return []


def find_tuned(state_dir: Path, key: Key) -> Tuned | None:
    return next((tuned for tuned in read_tuned(state_dir) if tuned.key == key), None)


def store_tuned(state_dir: Path, tuned: Tuned) -> Path:
    """Put in place of what was found before for the same key. Raises UsageError where the folder cannot be written."""
    others = [other for other in read_tuned(state_dir) if other.key != tuned.key]
    file = state_dir / FILE_NAME
    aside = state_dir / f".{FILE_NAME}.{uuid4().hex}"
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps([asdict(one) for one in (*others, tuned)], indent=2) + "\n")
        aside.replace(file)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}. Set SHARDSIFT_STATE_DIR to a folder of yours."
        ) from error
    return file
