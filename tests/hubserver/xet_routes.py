"""The xet protocol: short-lived tokens, and uploads to and downloads from the store under /cas.

hf_xet first requests newer routes (xorb grants, v2). They return 404, and it falls back to the older routes below.
"""

import time
from typing import Any

from hubserver.access import TYPES, Access, ticket_repo
from hubserver.errors import HubError
from hubserver.tokens import Tokens
from hubserver.wire import Call, Reply, Route, byte_range, file_reply, json_reply
from hubserver.xet_store import Piece, XetStore

TOKEN_SECONDS = 3600


class XetRoutes:
    def __init__(self, *, store: XetStore, access: Access, tokens: Tokens, endpoint: str) -> None:
        self._store = store
        self._access = access
        self._tokens = tokens
        self._cas = f"{endpoint}/cas"

    def routes(self) -> list[Route]:
        return [
            ("GET", "/api/{types}/{repo_id}/xet-read-token/{revision}", self.read_token),
            ("GET", "/api/{types}/{repo_id}/xet-write-token/{revision}", self.write_token),
            ("POST", "/cas/v1/xorbs/default/{xorb}", self.add_xorb),
            ("POST", "/cas/v1/shards", self.add_shard),
            ("GET", "/cas/v1/reconstructions/{xet_hash}", self.reconstruct),
            ("GET", "/cas/xorbs/{xorb}", self.xorb),
        ]

    def read_token(self, call: Call, types: str, repo_id: str, revision: str) -> Reply:
        repo = self._access.readable(call.grant, TYPES[types], repo_id)
        return self._token_reply(self._tokens.ticket(call.grant, repo, write=False))

    def write_token(self, call: Call, types: str, repo_id: str, revision: str) -> Reply:
        repo = self._access.writable(call.grant, TYPES[types], repo_id)
        return self._token_reply(self._tokens.ticket(call.grant, repo, write=True))

    def _token_reply(self, ticket: str) -> Reply:
        """huggingface_hub reads the headers; hf_xet reads the body."""
        expires = int(time.time()) + TOKEN_SECONDS
        headers = {
            "X-Xet-Cas-Url": self._cas,
            "X-Xet-Access-Token": ticket,
            "X-Xet-Token-Expiration": str(expires),
        }
        return json_reply({"casUrl": self._cas, "accessToken": ticket, "exp": expires}, headers=headers)

    def add_xorb(self, call: Call, xorb: str) -> Reply:
        ticket_repo(call.grant, write=True)
        self._store.add_xorb(xorb, call.body.chunks())
        return json_reply({"was_inserted": True})

    def add_shard(self, call: Call) -> Reply:
        repo = ticket_repo(call.grant, write=True)
        blobs = self._store.add_shard(call.body.read())
        repo.uploaded.update(blob.sha256 for blob in blobs)
        return json_reply({"result": 1})

    def reconstruct(self, call: Call, xet_hash: str) -> Reply:
        repo = ticket_repo(call.grant)
        size, header = self._store.size(xet_hash), call.headers.get("Range")
        wanted = byte_range(header, size) if header else range(size)
        if wanted is None:
            raise HubError(416, f"The file has {size} bytes")
        reconstruction = self._store.reconstruction(xet_hash, wanted)
        ticket = self._tokens.ticket(call.grant, repo, write=False)
        fetch_info: dict[str, list[dict[str, Any]]] = {}
        for piece in reconstruction.fetches:
            fetch_info.setdefault(piece.xorb, []).append(self._fetch(piece, ticket))
        terms = [
            {"hash": piece.xorb, "unpacked_length": piece.size, "range": chunks(piece)}
            for piece in reconstruction.pieces
        ]
        return json_reply({"offset_into_first_range": reconstruction.offset, "terms": terms, "fetch_info": fetch_info})

    def _fetch(self, piece: Piece, ticket: str) -> dict[str, Any]:
        last_byte = piece.xorb_bytes.stop - 1
        return {
            "range": chunks(piece),
            "url": f"{self._cas}/xorbs/{piece.xorb}?ticket={ticket}",
            "url_range": {"start": piece.xorb_bytes.start, "end": last_byte},
        }

    def xorb(self, call: Call, xorb: str) -> Reply:
        ticket_repo(call.grant)
        return file_reply(self._store.xorb_path(xorb), range_header=call.headers.get("Range"), headers={})


def chunks(piece: Piece) -> dict[str, int]:
    return {"start": piece.first, "end": piece.end}
