"""Uploads by Git LFS: ask which objects the Hub lacks, PUT them to signed URLs in one or several parts, verify."""

from collections.abc import Iterable
from itertools import chain
from math import ceil
from typing import Any

from hubserver.access import Access, ticket_repo, type_of_prefix, url_prefix
from hubserver.blobs import BlobStore, chunks_of
from hubserver.errors import HubError, bad_request
from hubserver.repos import Repo
from hubserver.tokens import Grant, Tokens
from hubserver.wire import Call, Reply, Route, json_reply


class LfsRoutes:
    def __init__(self, *, blobs: BlobStore, access: Access, tokens: Tokens, endpoint: str, part_bytes: int) -> None:
        self._blobs = blobs
        self._access = access
        self._tokens = tokens
        self._endpoint = endpoint
        self._part_bytes = part_bytes

    def routes(self) -> list[Route]:
        return [
            ("POST", r"/{prefix}{repo_id}\.git/info/lfs/objects/batch", self.batch),
            ("POST", r"/{prefix}{repo_id}\.git/info/lfs/objects/verify", self.verify),
            ("PUT", "/lfs/{sha256}", self.put),
            ("PUT", "/lfs/{sha256}/parts/{number}", self.put_part),
            ("POST", "/lfs/{sha256}", self.join_parts),
        ]

    def batch(self, call: Call, prefix: str, repo_id: str) -> Reply:
        repo = self._access.writable(call.grant, type_of_prefix(prefix), repo_id)
        objects = [self._batch_entry(call.grant, repo, requested) for requested in call.body.json()["objects"]]
        return json_reply({"transfer": "basic", "objects": objects})

    def _batch_entry(self, grant: Grant, repo: Repo, requested: dict[str, Any]) -> dict[str, Any]:
        """The response for one object. An object without actions is already on the Hub."""
        known = {"oid": requested["oid"], "size": requested["size"]}
        if requested["oid"] in repo.uploaded:
            return known
        ticket = self._tokens.ticket(grant, repo, write=True)
        verify = f"{self._endpoint}/{url_prefix(repo.repo_type)}{repo.repo_id}.git/info/lfs/objects/verify"
        upload = {"href": self._url(requested["oid"], ticket), "header": self._part_urls(requested, ticket)}
        return {**known, "actions": {"upload": upload, "verify": {"href": verify}}}

    def _part_urls(self, requested: dict[str, Any], ticket: str) -> dict[str, str]:
        """Upload URL by part number, from 1. Empty if the object fits in one PUT."""
        if requested["size"] <= self._part_bytes:
            return {}
        count = ceil(requested["size"] / self._part_bytes)
        urls = {str(number): self._url(f"{requested['oid']}/parts/{number}", ticket) for number in range(1, count + 1)}
        return {"chunk_size": str(self._part_bytes), **urls}

    def _url(self, path: str, ticket: str) -> str:
        return f"{self._endpoint}/lfs/{path}?ticket={ticket}"

    def put(self, call: Call, sha256: str) -> Reply:
        repo = ticket_repo(call.grant, write=True)
        self._store(repo, sha256, call.body.chunks())
        return Reply(headers={"ETag": f'"{sha256}"'})

    def put_part(self, call: Call, sha256: str, number: str) -> Reply:
        """Store the part as its own blob. The client sends the ETag back to `join_parts`."""
        ticket_repo(call.grant, write=True)
        part = self._blobs.write(call.body.chunks())
        return Reply(headers={"ETag": f'"{part.sha256}"'})

    def join_parts(self, call: Call, sha256: str) -> Reply:
        repo = ticket_repo(call.grant, write=True)
        parts = sorted(call.body.json()["parts"], key=lambda part: part["partNumber"])
        paths = [self._blobs.path(part["etag"].strip('"')) for part in parts]
        self._store(repo, sha256, chain.from_iterable(map(chunks_of, paths)))
        return json_reply({})

    def _store(self, repo: Repo, sha256: str, chunks: Iterable[bytes]) -> None:
        blob = self._blobs.write(chunks)
        if blob.sha256 != sha256:
            raise bad_request(f"The content's sha256 is {blob.sha256}, not {sha256}")
        repo.uploaded.add(sha256)

    def verify(self, call: Call, prefix: str, repo_id: str) -> Reply:
        repo = self._access.writable(call.grant, type_of_prefix(prefix), repo_id)
        requested = call.body.json()
        if requested["oid"] not in repo.uploaded or self._blobs.size(requested["oid"]) != requested["size"]:
            raise HubError(404, f"The object {requested['oid']} of {requested['size']} bytes was not uploaded")
        return json_reply({})
