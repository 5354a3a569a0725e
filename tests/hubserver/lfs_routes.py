"""The LFS upload: ask which objects are wanted, PUT them to signed URLs, verify."""

from typing import Any

from hubserver.access import Access, ticket_repo, type_of_prefix, url_prefix
from hubserver.blobs import BlobStore
from hubserver.errors import HubError, bad_request
from hubserver.repos import Repo
from hubserver.tokens import Grant, Tokens
from hubserver.wire import Call, Reply, Route, json_reply


class LfsRoutes:
    def __init__(self, *, blobs: BlobStore, access: Access, tokens: Tokens, endpoint: str) -> None:
        self._blobs = blobs
        self._access = access
        self._tokens = tokens
        self._endpoint = endpoint

    def routes(self) -> list[Route]:
        return [
            ("POST", r"/{prefix}{repo}\.git/info/lfs/objects/batch", self.batch),
            ("POST", r"/{prefix}{repo}\.git/info/lfs/objects/verify", self.verify),
            ("PUT", "/lfs/{sha256}", self.put),
        ]

    def batch(self, call: Call, prefix: str, repo: str) -> Reply:
        found = self._access.writing(call.grant, type_of_prefix(prefix), repo)
        objects = [self._wanted(call.grant, found, wish) for wish in call.body.json()["objects"]]
        return json_reply({"transfer": "basic", "objects": objects})

    def _wanted(self, grant: Grant, repo: Repo, wish: dict[str, Any]) -> dict[str, Any]:
        """An object without actions is one that the Hub has already."""
        known = {"oid": wish["oid"], "size": wish["size"]}
        if wish["oid"] in repo.uploaded:
            return known
        ticket = self._tokens.ticket(grant, repo, write=True)
        verify = f"{self._endpoint}/{url_prefix(repo.repo_type)}{repo.repo_id}.git/info/lfs/objects/verify"
        upload = f"{self._endpoint}/lfs/{wish['oid']}?ticket={ticket}"
        return {**known, "actions": {"upload": {"href": upload}, "verify": {"href": verify}}}

    def put(self, call: Call, sha256: str) -> Reply:
        repo = ticket_repo(call.grant, write=True)
        blob = self._blobs.write(call.body.chunks())
        if blob.sha256 != sha256:
            raise bad_request(f"The content's sha256 is {blob.sha256}, not {sha256}")
        repo.uploaded.add(sha256)
        return Reply(headers={"ETag": f'"{sha256}"'})

    def verify(self, call: Call, prefix: str, repo: str) -> Reply:
        found = self._access.writing(call.grant, type_of_prefix(prefix), repo)
        wish = call.body.json()
        if wish["oid"] not in found.uploaded or self._blobs.size(wish["oid"]) != wish["size"]:
            raise HubError(404, f"The object {wish['oid']} of {wish['size']} bytes was not uploaded")
        return json_reply({})
