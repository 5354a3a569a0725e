"""With the Hub's own client, commits on the local Hub work as on the real one."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import (
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
)
from huggingface_hub.errors import (
    BadRequestError,
    EntryNotFoundError,
    HfHubHTTPError,
)

from hubserver import HubServer
from support.hub_client import (
    CARD,
    COMMIT_SCRIPT,
    INITIAL_FILES,
    REPO,
    UPLOAD_SCRIPT,
    add,
    addition_from_receipt,
    commit_text,
    download,
    run_client,
    sha256,
    upload,
    write_noise,
)

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]


class TestCommits:
    def test_a_committed_file_comes_back_byte_for_byte(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "shard.parquet", 3_000_000)

        commit = api.create_commit(
            REPO, [add("data/a.parquet", shard), add("README.md", CARD)], commit_message="Add", repo_type="dataset"
        )

        assert sha256(download(api, "data/a.parquet", tmp_path)) == sha256(shard)
        assert download(api, "README.md", tmp_path).read_bytes() == CARD
        assert hub.read(REPO, "data/a.parquet") == shard.read_bytes()
        assert hub.commits(REPO)[0].oid == commit.oid == api.dataset_info(REPO).sha

    def test_a_receipt_is_enough_to_commit_what_another_process_uploaded(
        self, hub: HubServer, home: Path, tmp_path: Path
    ) -> None:
        shard = write_noise(tmp_path / "shard.parquet", 2_000_000)

        receipt = run_client(hub, home, UPLOAD_SCRIPT, "worker", str(shard))
        hub_commit = run_client(hub, home, COMMIT_SCRIPT, "finalizer", json.dumps(receipt))

        sent = {name: sum(r.bytes_in for r in hub.requests if r.token_name == name) for name in ("worker", "finalizer")}
        assert sent["worker"] > 2_000_000
        assert sent["finalizer"] < 5_000
        assert hub.commits(REPO)[0].oid == hub_commit["oid"]
        assert hub.commits(REPO)[0].author == "finalizer"
        assert hub.read(REPO, "data/shard.parquet") == shard.read_bytes()

    def test_a_stale_parent_is_refused(self, hub: HubServer, api: HfApi) -> None:
        parent = api.dataset_info(REPO).sha
        commit_text(api, "a.txt", parent_commit=parent)

        with pytest.raises(HfHubHTTPError, match="A commit has happened since") as refusal:
            commit_text(api, "b.txt", parent_commit=parent)

        assert refusal.value.response.status_code == 412
        assert "b.txt" not in hub.files(REPO)

    def test_a_pointer_to_a_blob_that_was_never_uploaded_is_refused(self, hub: HubServer, api: HfApi) -> None:
        ghost = addition_from_receipt({"path": "data/a.parquet", "size": 5, "sha256": "ab" * 32})

        with pytest.raises(BadRequestError, match="LFS pointer pointed to a file that does not exist"):
            api.create_commit(REPO, [ghost], commit_message="Add", repo_type="dataset")

        assert hub.files(REPO).keys() == INITIAL_FILES

    def test_a_blob_uploaded_to_one_repository_is_not_in_another(
        self, hub: HubServer, api: HfApi, tmp_path: Path
    ) -> None:
        hub.create_repo("org/other")
        receipt = upload(api, "data/a.parquet", write_noise(tmp_path / "a.parquet", 100_000))

        with pytest.raises(BadRequestError, match="does not exist"):
            api.create_commit("org/other", [addition_from_receipt(receipt)], commit_message="Add", repo_type="dataset")

    def test_an_upload_that_no_commit_points_to_can_be_forgotten(
        self, hub: HubServer, api: HfApi, tmp_path: Path
    ) -> None:
        kept, lost = (upload(api, name, write_noise(tmp_path / name, 90_000)) for name in ("k.parquet", "l.parquet"))
        api.create_commit(REPO, [addition_from_receipt(kept)], commit_message="Keep", repo_type="dataset")

        hub.forget_unreferenced_blobs()

        with pytest.raises(BadRequestError, match="does not exist"):
            api.create_commit(REPO, [addition_from_receipt(lost)], commit_message="Lost", repo_type="dataset")
        again = {**kept, "path": "again.parquet"}
        api.create_commit(REPO, [addition_from_receipt(again)], commit_message="Again", repo_type="dataset")
        assert hub.files(REPO).keys() == INITIAL_FILES | {"k.parquet", "again.parquet"}

    def test_a_lost_answer_leaves_one_commit(self, hub: HubServer, api: HfApi) -> None:
        hub.fault("/commit/", method="POST", drop_after=True)

        with pytest.raises(httpx2.RemoteProtocolError):
            commit_text(api, "a.txt")

        assert [commit.title for commit in hub.commits(REPO)] == ["Add a.txt", "initial commit"]
        assert [r.status for r in hub.requests if "/commit/" in r.path] == [0]

    def test_a_lost_request_leaves_no_commit(self, hub: HubServer, api: HfApi) -> None:
        hub.fault("/commit/", drop=True)

        with pytest.raises(httpx2.RemoteProtocolError):
            commit_text(api, "a.txt")

        assert [commit.title for commit in hub.commits(REPO)] == ["initial commit"]

    def test_a_commit_without_changes_makes_no_commit(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "a.parquet", 100_000)

        def commit() -> str:
            operations = [add("a.parquet", shard), add("note.txt", b"note")]
            return api.create_commit(REPO, operations, commit_message="Add", repo_type="dataset").oid

        assert commit() == commit()
        assert len(hub.commits(REPO)) == 2

    def test_files_are_copied_and_deleted(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "a.parquet", 100_000)
        files = [add("data/a.parquet", shard), add("old/b.txt", b"b"), add("old/c.txt", b"c"), add("d.txt", b"d")]
        api.create_commit(REPO, files, commit_message="Add", repo_type="dataset")

        api.create_commit(
            REPO,
            [
                CommitOperationCopy("data/a.parquet", "copies/a.parquet"),
                CommitOperationCopy("d.txt", "copies/d.txt"),
                CommitOperationDelete("old/"),
                CommitOperationDelete("d.txt"),
            ],
            commit_message="Move",
            repo_type="dataset",
        )

        assert hub.files(REPO).keys() == INITIAL_FILES | {"data/a.parquet", "copies/a.parquet", "copies/d.txt"}
        assert hub.read(REPO, "copies/a.parquet") == shard.read_bytes()
        assert hub.read(REPO, "copies/d.txt") == b"d"
        with pytest.raises(EntryNotFoundError, match="A file with this name doesn't exist"):
            api.delete_file("d.txt", REPO, repo_type="dataset")

    def test_commits_from_many_threads_all_land(self, hub: HubServer, api: HfApi) -> None:
        names = [f"{number}.txt" for number in range(12)]

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(lambda name: commit_text(api, name), names))

        assert hub.files(REPO).keys() == INITIAL_FILES | set(names)
        assert len(hub.commits(REPO)) == 13

    def test_a_bad_card_is_refused_before_anything_is_uploaded(
        self, hub: HubServer, api: HfApi, tmp_path: Path
    ) -> None:
        shard = write_noise(tmp_path / "a.parquet", 100_000)
        for card, complaint in [
            (b"---\nlicense: [\n---\n", "bad YAML"),
            (b"---\nconfigs: default\n---\n", "must be an array"),
            (b"---\nconfigs:\n- data_files: x\n---\n", "config_name"),
            (b"---\nconfigs:\n- config_name: a\n  data_files:\n  - path: x\n---\n", "data_files"),
        ]:
            operations = [add("a.parquet", shard), add("README.md", card)]

            with pytest.raises(ValueError, match=complaint):
                api.create_commit(REPO, operations, commit_message="Add", repo_type="dataset")

        assert sum(r.bytes_in for r in hub.requests) < 2_000
        with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
            api.upload_file(path_or_fileobj=b"# Shards\n", path_in_repo="README.md", repo_id=REPO, repo_type="dataset")
