"""Uploads by the xet protocol: short-lived tokens, and xorbs and shards, whose files become plain blobs.

hf_xet first requests newer routes (xorb grants, v2). They return 404, and it falls back to the older routes below. Downloads are
plain HTTP: a file whose headers name no xet hash has no other way.
"""

import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from hubserver.access import TYPES, Access, Tokens, ticket_repo
from hubserver.blobs import Blob, BlobStore
from hubserver.errors import bad_request
from hubserver.wire import Call, Reply, Route, json_reply
from hubserver.xorbs import Chunk, ShardFile, Term, index_xorb, read_shard, unpack_chunks

TOKEN_SECONDS = 3600


class XetRoutes:
    def __init__(self, *, folder: Path, blobs: BlobStore, access: Access, tokens: Tokens, endpoint: str) -> None:
        self._folder = folder
        self._folder.mkdir()
        self._blobs = blobs
        self._access = access
        self._tokens = tokens
        self._cas = f"{endpoint}/cas"
        self._xorbs: dict[str, list[Chunk]] = {}
        self._serial = count()

    def routes(self) -> list[Route]:
        return [
            ("GET", "/api/{types}/{repo_id}/xet-write-token/{revision}", self.write_token),
            ("POST", "/cas/v1/xorbs/default/{xorb}", self.add_xorb),
            ("POST", "/cas/v1/shards", self.add_shard),
        ]

    def write_token(self, call: Call, types: str, repo_id: str, revision: str) -> Reply:
        """huggingface_hub reads the headers; hf_xet reads the body."""
        repo = self._access.writable(call.grant, TYPES[types], repo_id)
        ticket, expires = self._tokens.ticket(call.grant, repo), int(time.time()) + TOKEN_SECONDS
        headers = {
            "X-Xet-Cas-Url": self._cas,
            "X-Xet-Access-Token": ticket,
            "X-Xet-Token-Expiration": str(expires),
        }
        return json_reply({"casUrl": self._cas, "accessToken": ticket, "exp": expires}, headers=headers)

    def add_xorb(self, call: Call, xorb: str) -> Reply:
        ticket_repo(call.grant)
        incoming = self._folder / f"incoming-{next(self._serial)}"
        try:
            with incoming.open("wb") as file:
                file.writelines(call.body.chunks())
            chunks = index_xorb(incoming)
            incoming.replace(self._folder / xorb)
            self._xorbs[xorb] = chunks
        finally:
            incoming.unlink(missing_ok=True)
        return json_reply({"was_inserted": True})

    def add_shard(self, call: Call) -> Reply:
        """Store the files that the shard describes as blobs. Each is checked against its sha256."""
        repo = ticket_repo(call.grant)
        repo.uploaded.update(self._add_file(file).sha256 for file in read_shard(call.body.read()))
        return json_reply({"result": 1})

    def _add_file(self, file: ShardFile) -> Blob:
        blob = self._blobs.write(self._content(file.terms))
        if file.sha256 not in (None, blob.sha256):
            raise bad_request(f"The content's sha256 is {blob.sha256}; the shard says {file.sha256}")
        return blob

    def _content(self, terms: Iterable[Term]) -> Iterator[bytes]:
        for term in terms:
            yield from unpack_chunks(self._folder / term.xorb, self._chunks(term))

    def _chunks(self, term: Term) -> list[Chunk]:
        """The chunks of a term. A client with the cache of another server names unknown xorbs: a 400 ends its retries."""
        if len(self._xorbs.get(term.xorb, [])) < term.end:
            raise bad_request(f"Unknown xorb or chunk: {term}")
        return self._xorbs[term.xorb][term.first : term.end]
