"""Routes that list the files of a revision, all by page or selected ones, and download a file. Its metadata is in the
headers.
"""

import hashlib
import re
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlencode

from hubserver.access import TYPES, Hub, type_of_prefix
from hubserver.errors import entry_not_found
from hubserver.repos import File, Repo, folders_of, subtree
from hubserver.wire import Call, Reply, Route, json_reply

PAGE_SIZE = 1000


class FileRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[Route]:
        return [
            ("GET", "/api/{types}/{repo_id}/tree/{revision}", self.tree),
            ("GET", "/api/{types}/{repo_id}/tree/{revision}/{path}", self.tree),
            ("POST", "/api/{types}/{repo_id}/paths-info/{revision}", self.paths_info),
            *((method, "/{prefix}{repo_id}/resolve/{revision}/{path}", self.resolve) for method in ("GET", "HEAD")),
        ]

    def tree(self, call: Call, types: str, repo_id: str, revision: str, path: str = "") -> Reply:
        repo = self._hub.readable(call.grant, TYPES[types], repo_id)
        paths = listed_paths(repo, revision, path.strip("/"), recursive=is_true(call.query.get("recursive")))
        start = int(call.query.get("cursor", 0))
        page = paths[start : start + PAGE_SIZE]
        more = start + PAGE_SIZE < len(paths)
        headers = {"Link": self._next_page(call, start + PAGE_SIZE)} if more else {}
        return json_reply([self._entry(repo, revision, path) for path in page], headers=headers)

    def paths_info(self, call: Call, types: str, repo_id: str, revision: str) -> Reply:
        """Describe the requested paths. The request body is a form, not JSON. Leaves out paths that do not exist."""
        repo = self._hub.readable(call.grant, TYPES[types], repo_id)
        form = parse_qs(call.body.decode())
        tree = repo.commit_at(revision).tree
        present = {*tree, *folders_of(tree)}
        paths = [path for path in form.get("paths", []) if path in present]
        return json_reply([self._entry(repo, revision, path) for path in paths])

    def resolve(self, call: Call, prefix: str, repo_id: str, revision: str, path: str) -> Reply:
        repo = self._hub.readable(call.grant, type_of_prefix(prefix), repo_id)
        commit = repo.commit_at(revision)
        if path not in commit.tree:
            raise entry_not_found()
        file = commit.tree[path]
        headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{file.content_oid}"'}
        if file.lfs:
            headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        return file_reply(self._hub.blobs.read(file.sha256), wanted=call.headers.get("Range"), headers=headers)

    def _next_page(self, call: Call, cursor: int) -> str:
        query = urlencode({**call.query, "cursor": cursor})
        return f'<{self._hub.endpoint}{call.path}?{query}>; rel="next"'

    def _entry(self, repo: Repo, revision: str, path: str) -> dict[str, Any]:
        tree = repo.commit_at(revision).tree
        return file_entry(path, tree[path]) if path in tree else folder_entry(path, subtree(tree, path))


def file_reply(content: bytes, *, wanted: str | None, headers: dict[str, str]) -> Reply:
    """Reply with the content, or with a range of it if `wanted`, the Range header, asks for one."""
    headers |= {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
    if wanted is None:
        return Reply(headers=headers, body=content)
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
    assert match, f"Unsupported range: {wanted}"
    start, last = int(match[1]), int(match[2] or len(content))
    if start >= len(content):
        return Reply(status=416, headers={**headers, "Content-Range": f"bytes */{len(content)}"})
    part = content[start : last + 1]
    headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
    return Reply(status=206, headers=headers, body=part)


def file_entry(path: str, file: File) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": file.size, "oid": file.git_oid}
    if file.lfs:
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": file.pointer_size}
    return entry


def folder_entry(path: str, inside: dict[str, File]) -> dict[str, Any]:
    content = "".join(f"{name} {file.git_oid}\n" for name, file in sorted(inside.items()))
    return {"type": "directory", "path": path, "size": 0, "oid": hashlib.sha1(content.encode()).hexdigest()}


def listed_paths(repo: Repo, revision: str, folder: str, *, recursive: bool) -> list[str]:
    """List files and folders below a folder, sorted by path. Unless `recursive`, list only direct entries."""
    tree = repo.commit_at(revision).tree
    prefix = f"{folder}/" if folder else ""
    paths = sorted(path for path in {*tree, *folders_of(tree)} if path.startswith(prefix))
    if folder and not paths:
        raise entry_not_found(f"{folder} does not exist on {revision}")
    return [path for path in paths if recursive or "/" not in path.removeprefix(prefix)]


def is_true(text: str | None) -> bool:
    return (text or "").lower() in ("1", "true")


def timestamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
