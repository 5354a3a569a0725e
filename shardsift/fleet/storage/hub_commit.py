"""Commit files to the Hub that workers have uploaded, without sending their bytes again."""

from collections.abc import Iterable, Mapping, Sequence

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError
from huggingface_hub.lfs import UploadInfo

from shardsift.fleet.errors import OutputDamaged, PublishConflict
from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.storage.inspection import each_file

_PRECONDITION_FAILED = 412
_MISSING_BLOB = "LFS pointer pointed to a file that does not exist"  # the Hub's wording, with status 400


def commit(
    api: HfApi,
    repo_id: str,
    receipts: Sequence[Receipt],
    documents: Mapping[str, bytes],
    *,
    message: str,
    to: str,
    parent: str | None,
    removed: Iterable[str] = (),
) -> str:
    """Commit the receipts' files and the documents to the branch `to`, if `parent` is its head. Returns the commit.

    The files at the paths in `removed` must exist.

    Raises PublishConflict if `parent` is not the head. Raises OutputDamaged if the Hub has dropped a blob; it names all
    shards, because the Hub does not say which blob is missing. Also raises the client's errors.

    The client does not retry. If the response was lost, the commit may have succeeded, so look at the branch before
    trying again.
    """
    changes: list[CommitOperationAdd | CommitOperationDelete] = [_uploaded(file) for file, _ in each_file(receipts)]
    changes += [CommitOperationAdd(path, text) for path, text in documents.items()]
    changes += [CommitOperationDelete(path) for path in removed]
    try:
        done = api.create_commit(
            repo_id, changes, repo_type="dataset", commit_message=message, revision=to, parent_commit=parent
        )
    except RevisionNotFoundError as error:
        raise PublishConflict(f"The branch {to} of {repo_id} was removed.") from error
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code == _PRECONDITION_FAILED:
            raise PublishConflict(f"{to} of {repo_id} got another commit at the same moment.") from error
        if _MISSING_BLOB in str(error):
            raise OutputDamaged({receipt.shard: _dropped(receipt) for receipt in receipts}) from error
        raise
    return str(done.oid)


def _dropped(receipt: Receipt) -> str:
    files = f"{receipt.data.path} or {receipt.scores.path}"
    return f"the Hub has dropped {files}; it keeps uncommitted files for about a day"


def _uploaded(file: OutputFile) -> CommitOperationAdd:
    """Make the commit operation for a blob that a worker has already uploaded.

    The client sets the same fields when it uploads; tests/integration/hub_output checks this.
    """
    addition = CommitOperationAdd(file.path, b"")
    addition.upload_info = UploadInfo(size=file.size_bytes, sample=b"", sha256=bytes.fromhex(file.sha256))
    addition._upload_mode = "lfs"
    addition._is_uploaded = True
    addition._should_ignore = False
    return addition
