"""With the Hub's own client, downloads from the local Hub work as on the real one."""

import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from huggingface_hub import (
    HfApi,
)

from hubserver import HubServer
from support.hub_client import REPO, download, write

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]


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

    def test_a_download_continues_where_the_connection_broke(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        write(tmp_path / "folder/note.txt", b"note")
        hub.add_folder(REPO, tmp_path / "folder")
        hub.fault("/resolve/", method="GET", drop=True)

        assert download(api, "note.txt", tmp_path / "down").read_bytes() == b"note"
