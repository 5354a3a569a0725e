"""The model of a run, and the kind of scorer that loads it. `shardsift/fleet/scorers/kinds.py` finds the kinds."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import ConfigDict

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import local_path
from shardsift.fleet.run.choices import Function

SEQUENCE_CLASSIFIER = "sequence-classifier"
# For all parts of a spec: a field that is unknown to this version may change what a run publishes, so it is refused.
UNKNOWN_FIELDS_REFUSED = ConfigDict(extra="forbid")
_FOLDER = "sha256-"  # prefix of a folder's revision


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model at one revision: a Hub name, a folder, or anything else that its kind of scorer loads.

    `revision` is the Hub's commit; for a folder, it is `sha256-` and a digest of its files. `labels` names the outputs.
    `function` turns outputs into scores, unless the user names another function. `scorer` is the name of the kind of
    scorer.
    """

    __pydantic_config__ = UNKNOWN_FIELDS_REFUSED

    name: str
    revision: str
    labels: tuple[str, ...]
    function: Function = "none"
    scorer: str = SEQUENCE_CLASSIFIER

    @property
    def is_folder(self) -> bool:
        return is_folder_revision(self.revision)

    @property
    def slug(self) -> str:
        return slug(PurePosixPath(self.name).name)

    def queue(self, dtype: str) -> str:
        """Return the name of the queue of the workers that have loaded only this model, in this number format."""
        return f"score.{self.scorer}.{self.slug}.{self.revision.removeprefix(_FOLDER)[:12]}.{dtype}"


def worker_queue(queues: Iterable[str]) -> str:
    """Return the queue of workers that have loaded several models. `queues` has the `Model.queue` of each."""
    return "+".join(sorted(set(queues)))


def queue_of_run(queue: str, run_id: str) -> str:
    """Return the name of one run's own queue. Runs on the embedded Redis use it instead of the scorer's `queue`."""
    return f"{queue}:{run_id}"


def joint_format(dtypes: Mapping[str, str]) -> str:
    """Join the number formats of a worker's models: `bfloat16+float32`. The keys of `dtypes` are the models' queues."""
    return "+".join(dtypes[queue] for queue in sorted(dtypes))


def model_names(text: str) -> tuple[str, ...]:
    """Split a text into model names, at commas or as a JSON list.

    The path of an existing folder stays one name, even if it has commas. Raises UsageError for a text
    that begins with [ but is not JSON.
    """
    if local_path(text).is_dir():
        return (text,)
    if text.startswith("["):
        return _listed(text)
    return tuple(name.strip() for name in text.split(",") if name.strip()) or (text,)


def _listed(text: str) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads(text)))
    except ValueError as error:
        raise UsageError(f'SHARDSIFT_MODEL={text} is no JSON list of models, like ["me/one", "me/other"].') from error


def with_revision(name: str) -> tuple[str, str | None]:
    """Split MODEL@REVISION into name and revision. The revision is None if there is none.

    The path of an existing folder is not split, because it may have an @, and its revision is None.
    """
    model, _, revision = name.rpartition("@")
    if not (model and revision) or local_path(name).is_dir():
        return name, None
    return model, revision


def folder_revision(digest: str) -> str:
    return f"{_FOLDER}{digest}"


def is_folder_revision(revision: str) -> bool:
    return revision.startswith(_FOLDER)


def slug(text: str) -> str:
    """Reduce a text to lower-case letters, digits and hyphens, and at most 32 characters."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:32] or "x"
