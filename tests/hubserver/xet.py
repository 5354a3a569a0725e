"""Uploads by the xet protocol: short-lived tokens, and xorbs and shards, whose files become plain blobs.

hf_xet first requests newer routes (xorb grants, v2). They return 404, and it falls back to the older routes below.
Downloads are plain HTTP, because the headers of a file name no xet hash.
"""

import time

from hubserver.access import TYPES, Hub, ticket_repo
from hubserver.errors import bad_request
from hubserver.wire import Call, Reply, Route, json_reply
from hubserver.xorbs import Chunk, ShardFile, Term, chunks_of_xorb, read_shard, unpack

TOKEN_SECONDS = 3600


class XetRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._cas = f"{hub.endpoint}/cas"
        self._xorbs: dict[str, list[Chunk]] = {}

    def routes(self) -> list[Route]:
        return [
            ("GET", "/api/{types}/{repo_id}/xet-write-token/{revision}", self.write_token),
            ("GET", "/api/buckets/{repo_id}/xet-write-token", self.bucket_token),
            ("POST", "/cas/v1/xorbs/default/{xorb}", self.add_xorb),
            ("POST", "/cas/v1/shards", self.add_shard),
        ]

    def bucket_token(self, call: Call, repo_id: str) -> Reply:
        return self.write_token(call, "buckets", repo_id, "")

    def write_token(self, call: Call, types: str, repo_id: str, revision: str) -> Reply:
        """Reply with a token for uploads. huggingface_hub reads the headers, and hf_xet reads the body."""
        repo = self._hub.writable(call.grant, TYPES[types], repo_id)
        ticket, expires = self._hub.tokens.ticket(call.grant, repo), int(time.time()) + TOKEN_SECONDS
        headers = {
            "X-Xet-Cas-Url": self._cas,
            "X-Xet-Access-Token": ticket,
            "X-Xet-Token-Expiration": str(expires),
        }
        return json_reply({"casUrl": self._cas, "accessToken": ticket, "exp": expires}, headers=headers)

    def add_xorb(self, call: Call, xorb: str) -> Reply:
        ticket_repo(call.grant)
        self._xorbs[xorb] = list(chunks_of_xorb(call.body))
        return json_reply({"was_inserted": True})

    def add_shard(self, call: Call) -> Reply:
        """Store the files of a shard as blobs. Each is checked against its sha256."""
        repo = ticket_repo(call.grant)
        repo.uploaded.update(self._add_file(file) for file in read_shard(call.body))
        return json_reply({"result": 1})

    def _add_file(self, file: ShardFile) -> str:
        content = b"".join(unpack(chunk) for term in file.terms for chunk in self._chunks(term))
        stored = self._hub.blobs.write(content)
        if file.sha256 not in (None, stored):
            raise bad_request(f"The content's sha256 is {stored}; the shard says {file.sha256}")
        self._hub.blobs.by_xet_hash[file.xet_hash] = stored
        return stored

    def _chunks(self, term: Term) -> list[Chunk]:
        """Return the chunks of a term.

        A client with the cache of another server names unknown xorbs. It gets a 400, which ends its retries.
        """
        if len(self._xorbs.get(term.xorb, [])) < term.end:
            raise bad_request(f"Unknown xorb or chunk: {term}")
        return self._xorbs[term.xorb][term.first : term.end]
