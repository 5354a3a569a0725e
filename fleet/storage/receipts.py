"""Read back receipts that were stored with an output. Knows nothing of folders or the Hub."""

import logging
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from fleet.receipt import Receipt
from fleet.shard import Shard
from fleet.storage.output import output_files

FileDigest = tuple[str, str]  # path in the output, sha256
logger = logging.getLogger(__name__)


def read_receipt(content: bytes, run_id: str, *, source: str) -> Receipt | None:
    """A stored receipt. Logs a warning and returns None if it is broken or belongs to another run."""
    try:
        receipt = Receipt.from_json(content)
        shard = Shard(name=receipt.shard, uri=receipt.source_uri, identity=receipt.source_identity)
    except ValueError as error:
        logger.warning("Skipped %s: not a receipt (%s)", source, " ".join(str(error).split())[:200])
        return None
    if receipt.run_id != run_id or (receipt.data.path, receipt.scores.path) != (shard.data_path, shard.scores_path):
        logger.warning("Skipped %s: not a receipt of run %s", source, run_id)
        return None
    return receipt


def by_shard(receipts: Iterable[Receipt]) -> Iterator[tuple[str, list[Receipt]]]:
    """The receipts of each shard, in order of shard name."""
    ordered = sorted(receipts, key=lambda receipt: receipt.shard)
    return ((shard, list(found)) for shard, found in groupby(ordered, key=lambda receipt: receipt.shard))


def digests(receipt: Receipt) -> set[FileDigest]:
    return {(file.path, file.sha256) for file in output_files(receipt)}


def is_among(receipt: Receipt, files: Collection[FileDigest]) -> bool:
    return all(digest in files for digest in digests(receipt))
