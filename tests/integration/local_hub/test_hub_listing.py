"""With the Hub's own client, listings of the local Hub work as on the real one."""

from pathlib import Path

import pytest
from huggingface_hub import (
    HfApi,
    HfFileSystem,
)

from hubserver import HubServer
from support.hub_client import INITIAL_FILES, REPO, add, commit_text, sha256, write, write_noise

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]


class TestListing:
    def test_a_long_tree_comes_in_pages(self, hub: HubServer, api: HfApi) -> None:
        names = {f"part/{number:04}.txt" for number in range(1_100)}
        operations = [add(name, b"") for name in names]
        api.create_commit(REPO, operations, commit_message="Add", repo_type="dataset")

        listed = {entry.path for entry in api.list_repo_tree(REPO, repo_type="dataset", recursive=True)}

        assert listed == names | INITIAL_FILES | {"part"}
        assert len([r for r in hub.requests if "/tree/" in r.path]) == 2

    def test_entries_have_size_content_and_last_commit(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "folder/data/a.parquet", 50_000)
        added = hub.add_folder(REPO, tmp_path / "folder")
        commit_text(api, "b.txt")

        paths = ["data/a.parquet", "data", "absent"]
        file, folder = api.get_paths_info(REPO, paths, repo_type="dataset", expand=True)

        assert (file.size, file.lfs.sha256) == (50_000, sha256(shard))
        assert (file.xet_hash is not None) == hub.xet
        assert file.last_commit.oid == folder.last_commit.oid == added
        assert folder.path == "data"

    def test_hf_file_system_globs_and_reads_ranges(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "folder/data/a.parquet", 300_000)
        write(tmp_path / "folder/data/b.txt", b"b")
        hub.add_folder(REPO, tmp_path / "folder")
        files = HfFileSystem(endpoint=hub.endpoint, token=api.token, skip_instance_cache=True)
        hub.forget_requests()

        assert files.glob(f"datasets/{REPO}/data/*.parquet") == [f"datasets/{REPO}/data/a.parquet"]
        with files.open(f"datasets/{REPO}/data/a.parquet", block_size=1_000) as file:
            file.seek(200_000)
            assert file.read(5) == shard.read_bytes()[200_000:200_005]

        reads = [r for r in hub.requests if "/resolve/" in r.path and r.method == "GET"]
        assert [r.status for r in reads] == [206]
        assert reads[0].bytes_out < 10_000
