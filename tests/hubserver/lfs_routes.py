"""Uploads by Git LFS: ask which objects the Hub lacks, and PUT each to a signed URL."""

from typing import Any

from hubserver.access import Grant, Hub, ticket_repo, type_of_prefix
from hubserver.errors import bad_request
from hubserver.repos import Repo
from hubserver.wire import Call, Reply, Route, json_reply


class LfsRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[Route]:
        return [
            ("POST", r"/{prefix}{repo_id}\.git/info/lfs/objects/batch", self.batch),
            ("PUT", "/lfs/{sha256}", self.put),
        ]

    def batch(self, call: Call, prefix: str, repo_id: str) -> Reply:
        repo = self._hub.writable(call.grant, type_of_prefix(prefix), repo_id)
        objects = [self._batch_entry(call.grant, repo, requested) for requested in call.json()["objects"]]
        return json_reply({"transfer": "basic", "objects": objects})

    def _batch_entry(self, grant: Grant, repo: Repo, requested: dict[str, Any]) -> dict[str, Any]:
        """Describe one object. If the Hub already has it, the response contains no actions."""
        known = {"oid": requested["oid"], "size": requested["size"]}
        if requested["oid"] in repo.uploaded:
            return known
        ticket = self._hub.tokens.ticket(grant, repo)
        upload = {"href": f"{self._hub.endpoint}/lfs/{requested['oid']}?ticket={ticket}", "header": {}}
        return {**known, "actions": {"upload": upload}}

    def put(self, call: Call, sha256: str) -> Reply:
        repo = ticket_repo(call.grant)
        stored = self._hub.blobs.write(call.body)
        if stored != sha256:
            raise bad_request(f"The content's sha256 is {stored}, not {sha256}")
        repo.uploaded.add(sha256)
        return Reply(headers={"ETag": f'"{sha256}"'})
