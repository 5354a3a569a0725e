"""Buckets: create one, list it, change its files, download them. A bucket is a repository without history: one commit a batch."""

import json
from typing import Any

from hubserver.access import Hub, require_write
from hubserver.errors import HubError, bad_request, entry_not_found
from hubserver.file_routes import file_reply, is_true, timestamp
from hubserver.repo_routes import is_private
from hubserver.repos import MAIN, File, Operation, Repo
from hubserver.wire import Call, Reply, Route, json_reply


class BucketRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[Route]:
        return [
            ("POST", "/api/buckets/{repo_id}", self.create),
            ("GET", "/api/buckets/{repo_id}", self.info),
            ("GET", "/api/buckets/{repo_id}/tree", self.tree),
            ("GET", "/api/buckets/{repo_id}/tree/{path}", self.tree),
            ("POST", "/api/buckets/{repo_id}/paths-info", self.paths_info),
            ("POST", "/api/buckets/{repo_id}/batch", self.batch),
            ("GET", "/buckets/{repo_id}/resolve/{path}", self.resolve),
        ]

    def create(self, call: Call, repo_id: str) -> Reply:
        require_write(call.grant)
        url = {"url": f"{self._hub.endpoint}/buckets/{repo_id}"}
        try:
            bucket = self._hub.repos.create("bucket", repo_id, private=is_private(call.json()))
        except HubError as error:
            return json_reply({"error": error.message, **url}, status=error.status)
        bucket.commit(MAIN, [], title="", author="")
        return json_reply(url)

    def info(self, call: Call, repo_id: str) -> Reply:
        bucket, files = self._bucket(call, repo_id), self._files(call, repo_id)
        size = sum(file.size for file in files.values())
        created = timestamp(bucket.created)
        about = {"id": repo_id, "private": bucket.private, "createdAt": created}
        return json_reply({**about, "size": size, "totalFiles": len(files)})

    def tree(self, call: Call, repo_id: str, path: str = "") -> Reply:
        """List the files whose path begins with `path`. If not recursive, list the entries of the folder `path`."""
        files = self._files(call, repo_id)
        found = [name for name in sorted(files) if name.startswith(path)]
        if not is_true(call.query.get("recursive")):
            depth = len(path.split("/")) + 1 if path else 1
            found = [*dict.fromkeys("/".join(name.split("/")[:depth]) for name in found)]
        return json_reply([self._entry(name, files.get(name)) for name in found])

    def paths_info(self, call: Call, repo_id: str) -> Reply:
        """Describe the requested files. Leaves out folders and paths that do not exist."""
        files = self._files(call, repo_id)
        return json_reply([self._entry(path, files[path]) for path in call.json()["paths"] if path in files])

    def batch(self, call: Call, repo_id: str) -> Reply:
        bucket = self._hub.writable(call.grant, "bucket", repo_id)
        there = {*self._files(call, repo_id)}
        changes = [json.loads(line) for line in call.body.splitlines()]
        operations = [
            Operation(path=change["path"], added=self._added(bucket, change))
            for change in changes
            if change["type"] != "deleteFile" or change["path"] in there
        ]
        bucket.commit(MAIN, operations, title="", author=call.grant.name or "")
        return json_reply({"success": True, "processed": len(changes), "succeeded": len(changes), "failed": []})

    def resolve(self, call: Call, repo_id: str, path: str) -> Reply:
        files = self._files(call, repo_id)
        if path not in files:
            raise entry_not_found()
        content = self._hub.blobs.read(files[path].sha256)
        return file_reply(content, wanted=call.headers.get("Range"), headers={})

    def _added(self, bucket: Repo, change: dict[str, Any]) -> File | None:
        """Return the file of an `addFile` or `copyFile`, whose content was uploaded before. None for a `deleteFile`."""
        if change["type"] == "deleteFile":
            return None
        sha256 = self._hub.blobs.by_xet_hash.get(change["xetHash"])
        if sha256 is None:
            raise bad_request(f"Unknown xet hash of {change['path']}: {change['xetHash']}")
        bucket.uploaded.add(sha256)
        return File.large(sha256, len(self._hub.blobs.read(sha256)))

    def _entry(self, path: str, file: File | None) -> dict[str, Any]:
        if file is None:
            return {"type": "directory", "path": path}
        xet_hash = next(name for name, sha256 in self._hub.blobs.by_xet_hash.items() if sha256 == file.sha256)
        return {"type": "file", "path": path, "size": file.size, "xetHash": xet_hash}

    def _bucket(self, call: Call, repo_id: str) -> Repo:
        return self._hub.readable(call.grant, "bucket", repo_id)

    def _files(self, call: Call, repo_id: str) -> dict[str, File]:
        return dict(self._bucket(call, repo_id).commit_at(MAIN).tree)
