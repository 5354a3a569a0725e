"""One commit on the Hub of blobs that workers uploaded, sending none of their bytes."""

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
    parent: str,
) -> str:
    """Commit the receipts' files and the documents to the branch `to`, if `parent` is its head; returns the commit.

    Raises PublishConflict if it is not, OutputDamaged if the Hub has dropped a blob, naming all the shards since any of
    them may be the one, and the client's errors. The client does not retry it, and one whose answer was lost may have
    landed: look what is there before a second try.
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
    return f"the Hub has dropped {receipt.data.path} or {receipt.scores.path}; it keeps uncommitted files about a day"


def _uploaded_files(receipts: Iterable[Receipt]) -> list[CommitOperationAdd]:
    return [_uploaded(file) for receipt in receipts for file in output_files(receipt)]


def _uploaded(file: OutputFile) -> CommitOperationAdd:
    """The operation for a blob that a worker uploaded, rebuilt from its receipt.

    These are the fields that the client itself sets on upload; tests/integration/test_hub_output.py holds it to that.
    """
    addition = CommitOperationAdd(file.path, b"")
    addition.upload_info = UploadInfo(size=file.size_bytes, sample=b"", sha256=bytes.fromhex(file.sha256))
    addition._upload_mode = "lfs"
    addition._is_uploaded = True
    addition._should_ignore = False
    return addition
