"""Routes that change files: preupload, which says how to upload each file, and commit.

The content of large files is uploaded by LFS or xet, before the commit.
"""

import base64
import json
from typing import Any

from hubserver.access import TYPES, Hub, url_prefix
from hubserver.errors import bad_request
from hubserver.repos import File, Operation, Repo
from hubserver.wire import Call, Reply, Route, json_reply

REGULAR_MAX_BYTES = 10 << 20
LARGE_SUFFIXES = (".parquet", ".png", ".safetensors", ".bin", ".arrow", ".gz", ".zst", ".npy", ".onnx", ".pt", ".zip")


class CommitRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[Route]:
        return [
            ("POST", "/api/{types}/{repo_id}/preupload/{revision}", self.preupload),
            ("POST", "/api/{types}/{repo_id}/commit/{revision}", self.commit),
        ]

    def preupload(self, call: Call, types: str, repo_id: str, revision: str) -> Reply:
        tree = self._hub.writable(call.grant, TYPES[types], repo_id).commit_at(revision).tree
        answers = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if is_large(file["path"], file["size"]) else "regular",
                "shouldIgnore": False,
                "oid": tree[file["path"]].content_oid if file["path"] in tree else None,
            }
            for file in call.json()["files"]
        ]
        return json_reply({"files": answers})

    def commit(self, call: Call, types: str, repo_id: str, revision: str) -> Reply:
        repo = self._hub.writable(call.grant, TYPES[types], repo_id)
        header, lines = commit_lines(call.body)
        commit = repo.commit(
            revision,
            [self._operation(repo, key, value) for key, value in lines],
            title=header["summary"],
            author=call.grant.name or "",
            expected_parent=header.get("parentCommit", ""),
        )
        url = f"{self._hub.endpoint}/{url_prefix(repo.repo_type)}{repo_id}/commit/{commit.oid}"
        return json_reply({"success": True, "commitUrl": url, "commitOid": commit.oid, "hookOutput": ""})

    def _operation(self, repo: Repo, key: str, value: dict[str, Any]) -> Operation:
        return Operation(path=value["path"], added=self._added(repo, key, value))

    def _added(self, repo: Repo, key: str, value: dict[str, Any]) -> File | None:
        match key:
            case "file":  # with its content
                content = base64.b64decode(value["content"])
                self._hub.blobs.write(content)
                return File.regular(content)
            case "lfsFile":  # its content was uploaded before
                return File.large(value["oid"], self._checked_size(repo, value))
            case "deletedFile":
                return None
            case _:
                raise bad_request(f"Unknown operation: {key}")

    def _checked_size(self, repo: Repo, value: dict[str, Any]) -> int:
        """Return the size of the uploaded blob, after comparing it with the size in the commit's line.

        The line of a copy has no size. Returns 0 if the blob is missing, because the commit then fails.
        """
        if value["oid"] not in repo.uploaded:
            return 0
        size = len(self._hub.blobs.read(value["oid"]))
        if value.get("size", size) != size:
            raise bad_request(f"LFS pointer of {value['path']} says {value['size']} bytes; the file has {size}")
        return size


def commit_lines(body: bytes) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    lines = [json.loads(line) for line in body.splitlines() if line.strip()]
    (_, header), *rest = [(line["key"], line["value"]) for line in lines]
    return header, rest


def is_large(path: str, size: int) -> bool:
    return path.endswith(LARGE_SUFFIXES) or size > REGULAR_MAX_BYTES
