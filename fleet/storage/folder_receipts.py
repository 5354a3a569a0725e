"""Find the receipts of a run that are still valid in a folder or a bucket, after the ledger has lost the run."""

from collections.abc import Iterator, Mapping, Sequence

from fleet.receipt import OutputFile, Receipt
from fleet.storage.files import Files
from fleet.storage.inspection import DATA_FOLDERS
from fleet.storage.output import Recovered, output_files
from fleet.storage.receipts import FileDigest, by_shard, digests, is_among, read_receipt


class FolderReceipts:
    """The receipts below `<workplace>/receipts`, and those that the manifest of this run lists."""

    def __init__(self, files: Files, workplace: str, run_id: str) -> None:
        self._files = files
        self._workplace = workplace
        self._run_id = run_id

    def recovered(self, listed: Sequence[Receipt]) -> Recovered:
        """The valid receipts. `listed` are those in the published manifest."""
        sizes = self._files.sizes(*DATA_FOLDERS, f"{self._workplace}/staged")
        published = {digest for receipt in listed for digest in digests(receipt)}
        whole, partial = [], []
        for _, receipts in by_shard([*self._stored(), *listed]):
            seem_whole = [receipt for receipt in receipts if _is_there(receipt, sizes)]
            if chosen := self._choose(seem_whole, published, sizes):
                whole.append(chosen)
            else:
                partial.append(max(receipts, key=lambda receipt: _size_is_right(receipt.scores, sizes)))
        return Recovered(whole=tuple(whole), partial=tuple(partial))

    def _stored(self) -> Iterator[Receipt]:
        paths = [path for path in self._files.sizes(f"{self._workplace}/receipts") if path.endswith(".json")]
        for path, content in self._files.contents(paths):
            if receipt := read_receipt(content, self._run_id, source=path):
                yield receipt

    def _choose(
        self, receipts: Sequence[Receipt], published: set[FileDigest], sizes: Mapping[str, int]
    ) -> Receipt | None:
        """Choose the valid receipt of a shard, among those whose files have the right sizes.

        This is the published one, otherwise one with all files staged. A publication that died midway has moved the files
        of one attempt, and files of another attempt may have the same size. Then only the content can tell them apart.
        """
        for holds in (lambda receipt: is_among(receipt, published), lambda receipt: _is_staged_whole(receipt, sizes)):
            if chosen := next(filter(holds, receipts), None):
                return chosen
        if len(receipts) == 1:
            return receipts[0]
        return next(filter(lambda receipt: self._content_is_of(receipt, sizes), receipts), None)

    def _content_is_of(self, receipt: Receipt, sizes: Mapping[str, int]) -> bool:
        return all(
            file.staged_path in sizes or self._files.sha256(file.path) == file.sha256 for file in output_files(receipt)
        )


def _is_there(receipt: Receipt, sizes: Mapping[str, int]) -> bool:
    return all(_size_is_right(file, sizes) for file in output_files(receipt))


def _size_is_right(file: OutputFile, sizes: Mapping[str, int]) -> bool:
    """Whether a file of the right size is staged or published."""
    return file.size_bytes in (sizes.get(file.staged_path), sizes.get(file.path))


def _is_staged_whole(receipt: Receipt, sizes: Mapping[str, int]) -> bool:
    return all(sizes.get(file.staged_path) == file.size_bytes for file in output_files(receipt))
