"""Injected faults of the local Hub look to the Hub's own client like those of the real one."""

import json
import socket
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from huggingface_hub import (
    HfApi,
)
from huggingface_hub.errors import (
    HfHubHTTPError,
)

from hubserver import HubServer
from support.hub_client import REPO, commit_text, sha256, upload, write_noise

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]


class TestFaults:
    def test_a_fault_is_answered_once_with_the_hubs_words(self, hub: HubServer, api: HfApi) -> None:
        hub.fault("/commit/", status=409)

        with pytest.raises(HfHubHTTPError, match="Another commit operation is in progress") as refusal:
            commit_text(api, "a.txt")
        commit_text(api, "a.txt")

        assert refusal.value.response.status_code == 409
        assert [r.status for r in hub.requests if "/commit/" in r.path] == [409, 200]
        assert len(hub.commits(REPO)) == 2

    def test_a_fault_waits_for_its_method_and_carries_its_headers(self, hub: HubServer, api: HfApi) -> None:
        hub.fault("/api/datasets/", method="POST", status=429, headers={"Retry-After": "1"}, body=b'{"error": "slow"}')

        assert api.dataset_info(REPO).id == REPO
        with pytest.raises(HfHubHTTPError, match="slow") as refusal:
            api.get_paths_info(REPO, "a.txt", repo_type="dataset")

        assert refusal.value.response.headers["Retry-After"] == "1"

    def test_the_client_survives_a_failed_upload(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "a.parquet", 100_000)
        hub.fault("^/lfs/|/cas/v1/xorbs/", status=503)

        receipt = upload(api, "a.parquet", shard)

        assert receipt["sha256"] == sha256(shard)
        data_requests = [r for r in hub.requests if r.bytes_in > 90_000]
        assert [(r.status, r.token_name) for r in data_requests] == [(503, "worker"), (200, "worker")]

    def test_a_slow_hub_eventually_answers(self, hub: HubServer, api: HfApi) -> None:
        hub.fault("/revision/", status=None, delay_seconds=0.3)
        start = time.monotonic()

        info = api.dataset_info(REPO, revision="main")

        assert info.id == REPO
        assert time.monotonic() - start >= 0.3

    def test_a_request_that_breaks_off_has_no_effect(self, hub: HubServer) -> None:
        header = json.dumps({"key": "header", "value": {"summary": "Half a commit"}}).encode()
        head = f"POST /api/datasets/{REPO}/commit/main HTTP/1.1\r\nAuthorization: Bearer {hub.token('worker')}\r\n"
        whole = f"Content-Length: {len(header)}\r\n\r\n".encode() + header
        one_byte_short = f"Content-Length: {len(header) + 1}\r\n\r\n".encode() + header
        no_last_chunk = f"Transfer-Encoding: chunked\r\n\r\n{len(header):x}\r\n".encode() + header + b"\r\n"
        port = int(hub.endpoint.rpartition(":")[2])
        for rest in (one_byte_short, no_last_chunk, whole):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(head.encode() + rest)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass

        assert [r.status for r in hub.requests] == [0, 0, 200]
        assert len(hub.commits(REPO)) == 2

    def test_an_unknown_route_is_a_404_in_the_log(self, hub: HubServer) -> None:
        with pytest.raises(HTTPError, match="404") as refusal:
            urllib.request.urlopen(f"{hub.endpoint}/api/agent-harnesses?q=1")
        refusal.value.close()

        request = hub.requests[-1]
        assert (request.method, request.path, request.query) == ("GET", "/api/agent-harnesses", "q=1")
        assert (request.status, request.token_name) == (404, None)
