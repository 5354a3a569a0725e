"""With the Hub's own client, downloads from the local Hub work as on the real one."""

import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from huggingface_hub import (
    HfApi,
    HfFileSystem,
)

from hubserver import HubServer
from support.hub_client import REPO, Connect, download, sha256, write, write_noise

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


class TestDownloads:
    def test_ranges_are_answered_as_http_requires(self, hub: HubServer, tmp_path: Path) -> None:
        write(tmp_path / "folder/a.parquet", b"0123456789")
        hub.add_folder(REPO, tmp_path / "folder")

        def answer(range_header: str) -> tuple[int, bytes, str | None]:
            headers = {"Range": range_header}
            request = urllib.request.Request(f"{hub.endpoint}/datasets/{REPO}/resolve/main/a.parquet", headers=headers)
            try:
                with urllib.request.urlopen(request) as reply:
                    return reply.status, reply.read(), reply.headers["Content-Range"]
            except HTTPError as error:
                with error:
                    return error.code, error.read(), error.headers["Content-Range"]

        assert answer("bytes=2-4") == (206, b"234", "bytes 2-4/10")
        assert answer("bytes=7-") == (206, b"789", "bytes 7-9/10")
        assert answer("bytes=-3") == (206, b"789", "bytes 7-9/10")
        assert answer("bytes=8-99") == (206, b"89", "bytes 8-9/10")
        assert answer("bytes=10-") == (416, b"", "bytes */10")

    def test_a_redirected_download_comes_from_another_origin(self, connect: Connect, tmp_path: Path) -> None:
        write(tmp_path / "folder/note.txt", b"note")
        shard = write_noise(tmp_path / "folder/a.parquet", 200_000)
        with HubServer(xet=False, redirect_downloads=True) as hub, connect(hub) as api:
            hub.create_repo(REPO)
            hub.add_folder(REPO, tmp_path / "folder")

            assert sha256(download(api, "a.parquet", tmp_path / "down")) == sha256(shard)
            assert download(api, "note.txt", tmp_path / "down").read_bytes() == b"note"

            assert {r.path.split("/")[1]: r.bytes_out for r in hub.requests if r.bytes_out} == {
                "cdn": 200_000,
                "datasets": 4,
            }
            hub.forget_requests()
            files = HfFileSystem(endpoint=hub.endpoint, token=api.token, skip_instance_cache=True)
            with files.open(f"datasets/{REPO}/a.parquet", block_size=1_000) as file:
                file.seek(150_000)
                assert file.read(5) == shard.read_bytes()[150_000:150_005]
            assert [r.status for r in hub.requests if r.path.startswith("/cdn/")] == [206]
            assert hub.handler_errors == []

    def test_a_download_continues_where_the_connection_broke(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        write(tmp_path / "folder/note.txt", b"note")
        hub.add_folder(REPO, tmp_path / "folder")
        hub.fault("/resolve/", method="GET", drop=True)

        assert download(api, "note.txt", tmp_path / "down").read_bytes() == b"note"
