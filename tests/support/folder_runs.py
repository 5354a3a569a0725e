"""A run of two shards whose output is a folder or a bucket."""

from collections.abc import Mapping
from pathlib import Path

from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.hub_files import filesystem_of
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from support.records import a_manifest, a_shard, a_spec, stage_shard

SPEC = a_spec()
RUN = SPEC.run_id
A, B = a_shard("crawl/a"), a_shard("crawl/b")


def stage(output: FolderOutput, shard: Shard, folder: Path, *, attempt: str = "1-aa") -> Receipt:
    return stage_shard(output, RUN, shard, folder, attempt=attempt)


def move_into_place(output: FolderOutput, file: OutputFile) -> None:
    """What a finalizer that died midway has done with a file."""
    files, root = filesystem_of(output.uri)
    files.makedirs(f"{root}/{file.path}".rpartition("/")[0], exist_ok=True)
    files.mv(f"{root}/{file.staged_path}", f"{root}/{file.path}")


def documents(receipts: list[Receipt]) -> Mapping[str, bytes]:
    return {MANIFEST_PATH: a_manifest(RUN, receipts), CARD_PATH: b"# Card"}


def publish(output: FolderOutput, receipts: list[Receipt]) -> None:
    assert output.publish(receipts, documents(receipts), parent=output.head()) == ""
