"""With the Hub's own client, large files on the local Hub work as on the real one."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import (
    HfApi,
)

from hubserver import HubServer
from support.hub_client import (
    REPO,
    add,
    addition_from_receipt,
    download,
    sha256,
    sha256_of,
    upload,
    write,
    write_noise,
)

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]


class TestLargeFiles:
    def test_a_file_of_more_than_one_xorb_is_uploaded_and_downloaded(
        self, hub: HubServer, api: HfApi, tmp_path: Path
    ) -> None:
        big = write_noise(tmp_path / "big.parquet", 70_000_000)

        api.upload_file(path_or_fileobj=big, path_in_repo="big.parquet", repo_id=REPO, repo_type="dataset")

        assert sha256(download(api, "big.parquet", tmp_path / "down")) == sha256(big)
        assert hub.files(REPO)["big.parquet"] == 70_000_000

    def test_compressible_files_come_back_whole(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        words = random.Random(1).choices([b"shard ", b"score ", b"window ", b"\n"], k=400_000)
        contents = {
            "text.bin": b"".join(words),
            "float.bin": np.linspace(0, 1, 500_003, dtype="f4").tobytes() + b"odd",
            "zeros.bin": bytes(1_000_001),
        }
        operations = [add(name, write(tmp_path / name, content)) for name, content in contents.items()]

        api.create_commit(REPO, operations, commit_message="Add", repo_type="dataset")

        for name, content in contents.items():
            assert hub.read(REPO, name) == content
            assert download(api, name, tmp_path / "down").read_bytes() == content
        if hub.xet:
            sent = sum(r.bytes_in for r in hub.requests if "/xorbs/" in r.path)
            assert sent < sum(map(len, contents.values())) / 2

    def test_a_loaded_folder_is_served_the_way_the_client_asks(
        self, hub: HubServer, api: HfApi, tmp_path: Path
    ) -> None:
        shard = write_noise(tmp_path / "folder/a.parquet", 400_000)
        hub.add_folder(REPO, tmp_path / "folder")
        hub.forget_requests()

        assert sha256(download(api, "a.parquet", tmp_path / "down")) == sha256(shard)

        served = [r for r in hub.requests if r.bytes_out >= 400_000]
        assert [r.path.startswith("/cas/xorbs/") for r in served] == [hub.xet]
        assert [r.token_name for r in served] == ["worker"]

    def test_uploads_from_many_threads_all_land(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shards = [write_noise(tmp_path / f"{number}.parquet", 300_000) for number in range(6)]

        with ThreadPoolExecutor(6) as threads:
            receipts = list(threads.map(lambda shard: upload(api, shard.name, shard), shards))
        operations = [addition_from_receipt(receipt) for receipt in receipts]
        api.create_commit(REPO, operations, commit_message="Add", repo_type="dataset")

        assert [sha256_of(hub.read(REPO, shard.name)) for shard in shards] == [sha256(shard) for shard in shards]

    def test_a_second_upload_of_a_file_sends_no_data(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "a.parquet", 500_000)
        upload(api, "a.parquet", shard)
        hub.forget_requests()

        upload(api, "b.parquet", shard)

        assert sum(r.bytes_in for r in hub.requests) < 10_000
