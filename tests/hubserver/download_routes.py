"""Routes that download a file. Its metadata is in the headers."""

from hubserver.access import Access, type_of_prefix
from hubserver.blobs import BlobStore
from hubserver.errors import entry_not_found
from hubserver.wire import Call, Reply, Route, file_reply


class DownloadRoutes:
    def __init__(self, *, blobs: BlobStore, access: Access) -> None:
        self._blobs = blobs
        self._access = access

    def routes(self) -> list[Route]:
        return [(method, "/{prefix}{repo_id}/resolve/{revision}/{path}", self.resolve) for method in ("GET", "HEAD")]

    def resolve(self, call: Call, prefix: str, repo_id: str, revision: str, path: str) -> Reply:
        repo = self._access.readable(call.grant, type_of_prefix(prefix), repo_id)
        commit = repo.commit_at(revision)
        if path not in commit.tree:
            raise entry_not_found()
        file = commit.tree[path]
        headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{file.content_oid}"'}
        if file.lfs:
            headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        return file_reply(self._blobs.path(file.sha256), range_header=call.headers.get("Range"), headers=headers)
