"""The light half of the scorer `stored-scores`: the scores that an earlier run has published."""

import fsspec
from fsspec.core import url_to_fs

from fleet.errors import ShardError, UsageError
from fleet.model import Model, folder_revision
from fleet.scorers import ScorerKind
from fleet.storage.errors import translated
from fleet.storage.manifest import mark_of, spec_of
from fleet.storage.output import MANIFEST_PATH

STORED_SCORES = "stored-scores"


def resolve_stored(name: str, revision: str | None) -> Model:
    """The published run at a folder, bucket or `hf://datasets/…` URI. Its revision is the digest of what it published.

    Raises UsageError if nothing is published there, or not what `revision` says.
    """
    manifest = read_manifest(name)
    mark, spec = mark_of(manifest), spec_of(manifest)
    if mark is None or spec is None:
        raise UsageError(f"The {MANIFEST_PATH} at {name} is damaged or was not written by shardsift.")
    found = folder_revision(mark.digest)
    if revision not in (None, found):
        raise UsageError(f"What is published at {name} has changed: enqueue the run that reads its scores again.")
    labels = tuple(label for scoring in spec.scorings for label in scoring.model.labels)
    return Model(name=name, revision=found, labels=labels)


def read_manifest(uri: str) -> bytes:
    """The manifest of a published run. Raises UsageError if there is none, TransientError for the network."""
    filesystem, root = _place(uri)
    try:
        with translated(f"Reading {uri}/{MANIFEST_PATH}"):
            return bytes(filesystem.cat_file(f"{root.rstrip('/')}/{MANIFEST_PATH}"))
    except (FileNotFoundError, ShardError) as error:
        raise UsageError(f"There is no published run at {uri}: {error}") from error


def _place(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    try:
        filesystem, root = url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{uri} cannot be read: {error}.") from error
    filesystem.invalidate_cache()
    return filesystem, root


KIND = ScorerKind(resolve=resolve_stored, loader="worker.shard.stored_scores:load_stored_scores")
