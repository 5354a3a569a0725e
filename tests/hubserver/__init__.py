"""A Hugging Face Hub for tests. The real client talks to it over loopback HTTP.

    with HubServer(xet=True) as hub:
        hub.create_repo("org/shards")
        HfApi(endpoint=hub.endpoint, token=hub.token("worker")).upload_file(...)
        assert [request.status for request in hub.requests if "/commit/" in request.path] == [200]

Knows nothing of shardsift. Start reading at `server.py`. Each other file implements one part of the Hub.
"""

from hubserver.repos import Commit, Operation
from hubserver.server import HubServer
from hubserver.traffic import Request

__all__ = ["Commit", "HubServer", "Operation", "Request"]
