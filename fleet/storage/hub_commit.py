"""Commit blobs that workers have uploaded to the Hub, without sending their bytes again."""

from collections.abc import Iterable, Mapping, Sequence

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError
from huggingface_hub.lfs import UploadInfo

from fleet.errors import OutputDamaged, PublishConflict
from fleet.receipt import OutputFile, Receipt
from fleet.storage.output import output_files

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
) -> str:
    """Commit the receipts' files and the documents to the branch `to`, if `parent` is its head. Returns the commit.

    Raises PublishConflict if `parent` is not the head, OutputDamaged if the Hub has dropped a blob, and the client's
    errors. OutputDamaged names all shards, because the Hub does not say which blob is missing. The client does not
    retry. A commit whose response was lost may have succeeded: look at the branch before you try again.
    """
    additions = [*_uploaded_files(receipts), *(CommitOperationAdd(path, text) for path, text in documents.items())]
    try:
        done = api.create_commit(
            repo_id, additions, repo_type="dataset", commit_message=message, revision=to, parent_commit=parent
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
    return (
        f"the Hub has dropped {receipt.data.path} or {receipt.scores.path}; it keeps uncommitted files for about a day"
    )


def _uploaded_files(receipts: Iterable[Receipt]) -> list[CommitOperationAdd]:
    return [_uploaded(file) for receipt in receipts for file in output_files(receipt)]


def _uploaded(file: OutputFile) -> CommitOperationAdd:
    """The operation for a blob that a worker uploaded, rebuilt from its receipt.

    The client sets the same fields on upload; tests/integration/hub_output checks this.
    """
    addition = CommitOperationAdd(file.path, b"")
    addition.upload_info = UploadInfo(size=file.size_bytes, sample=b"", sha256=bytes.fromhex(file.sha256))
    addition._upload_mode = "lfs"
    addition._is_uploaded = True
    addition._should_ignore = False
    return addition
