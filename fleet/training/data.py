"""What identifies the labelled rows of a training: the bytes of all files that they are read from."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from fsspec.core import url_to_fs

from fleet.errors import ShardError, ShardsiftError
from fleet.shard import Shard
from fleet.storage.errors import translated
from fleet.storage.identity import identity_now, identity_of
from fleet.storage.listing import Listing, list_files
from fleet.storage.output import MANIFEST_PATH
from fleet.training.spec import TrainSpec
from fleet.training.task import WHOLE

_READERS = 16


def training_data(spec: TrainSpec) -> Shard:
    """What stands for the whole training in the ledger: its files as they are now, those to measure on included.

    Raises ShardError, TransientError or UsageError if they cannot be looked at.
    """
    if spec.label_with:  # its manifest has the digests of all files of the run
        uri = f"{spec.label_with.rstrip('/')}/{MANIFEST_PATH}"
        files = [("manifest", *identity_now(uri))]
    else:
        assert spec.data_uri is not None
        uri, files = spec.data_uri, list(_files("data", _listed(spec.data_uri, "--data")))
    if spec.validation_uri:
        files += _files("validation", _listed(spec.validation_uri, "--validation"))
    return Shard(name=WHOLE, uri=uri, identity=_digest(files), size_bytes=sum(size for *_, size in files))


@contextmanager
def unchanged_data(spec: TrainSpec, enqueued: Shard) -> Iterator[None]:
    """Raises ShardError if the files are not those that were enqueued, before the block or at its end.

    They are also checked if the block raises an error of ours, because replacing a file while it is read may cause one.
    """
    _check(spec, enqueued)
    try:
        yield
    except ShardsiftError:
        _check(spec, enqueued)
        raise
    _check(spec, enqueued)


def _check(spec: TrainSpec, enqueued: Shard) -> None:
    if training_data(spec).identity != enqueued.identity:
        raise ShardError(
            f"{enqueued.uri.removeprefix('file://')}: the data has changed since the training was enqueued. Restore the old "
            "files or keep the new ones, then run `producer retry` to train on the files that are there."
        )


def _listed(uri: str, option: str) -> Listing:
    """Uncached."""
    with translated(f"Listing {uri}"):
        filesystem, _ = url_to_fs(uri)
        filesystem.invalidate_cache()
    return list_files(uri, option=option)


def _files(part: str, listing: Listing) -> Iterator[tuple[str, str, int]]:
    """Name, identity and size of each file, in name order."""

    def look(info: dict[str, Any]) -> tuple[str, str, int]:
        name = str(info["name"])
        with translated(f"Looking at {name}"):
            identity = identity_of(listing.filesystem, info)
        return f"{part}/{name.removeprefix(listing.root).strip('/')}", identity, int(info["size"])

    with ThreadPoolExecutor(_READERS) as readers:
        yield from readers.map(look, listing.files)


def _digest(files: list[tuple[str, str, int]]) -> str:
    """Changes if a file is added, removed, renamed or rewritten, but not if it is touched or the folder moves.

    A single file, which is named by the training, has its own identity.
    """
    if len(files) == 1:
        return files[0][1]
    total = hashlib.sha256()
    for name, identity, size in sorted(files):
        total.update(f"{name}\t{identity}\t{size}\n".encode())
    return f"files:{len(files)}:{total.hexdigest()}"
