"""What the test Hub promises, held against the real clients: huggingface_hub, hf_xet, pyarrow, datasets, transformers."""

import hashlib
import json
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    HfFileSystem,
    close_session,
    constants,
)
from huggingface_hub.errors import (
    BadRequestError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.lfs import UploadInfo
from huggingface_hub.utils._xet import abort_xet_session

from hubserver import HubServer

# The client's LFS upload gives its file to httpx2 in a way that httpx2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

REPO = "org/shards"
CARD = b"---\nlicense: odc-by\nconfigs:\n- config_name: default\n  data_files: data/*.parquet\n---\n# Shards\n"
INITIAL_FILES = {".gitattributes"}
TESTS_FOLDER = Path(__file__).parents[1]

Connect = Callable[[HubServer], AbstractContextManager[HfApi]]


@pytest.fixture(params=["lfs", "xet"])
def hub(request: pytest.FixtureRequest) -> Iterator[HubServer]:
    with HubServer(xet=request.param == "xet") as hub:
        hub.create_repo(REPO)
        yield hub
    assert hub.handler_errors == []
    assert hub.faults_left == 0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def connect(home: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """A client in this process, as if the process had been started with `hub.client_env`."""

    @contextmanager
    def connect(hub: HubServer) -> Iterator[HfApi]:
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", not hub.xet)
        for name in ("HF_HOME", "HF_HUB_DISABLE_TELEMETRY"):
            monkeypatch.setenv(name, hub.client_env(home)[name])
        abort_xet_session()
        try:
            yield HfApi(endpoint=hub.endpoint, token=hub.token("worker"))
        finally:
            abort_xet_session()
            close_session()

    return connect


@pytest.fixture
def api(hub: HubServer, connect: Connect) -> Iterator[HfApi]:
    with connect(hub) as api:
        yield api


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

    def test_a_lost_request_leaves_none(self, hub: HubServer, api: HfApi) -> None:
        hub.fault("/commit/", drop=True)

        with pytest.raises(httpx2.RemoteProtocolError):
            commit_text(api, "a.txt")

        assert [commit.title for commit in hub.commits(REPO)] == ["initial commit"]

    def test_a_commit_of_what_is_there_already_makes_no_commit(
        self, hub: HubServer, api: HfApi, tmp_path: Path
    ) -> None:
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


class TestBranchesAndHistory:
    def test_a_branch_takes_commits_that_main_does_not_see(self, hub: HubServer, api: HfApi) -> None:
        start = commit_text(api, "a.txt")
        commit_text(api, "b.txt")

        api.create_branch(REPO, branch="run/7", revision=start, repo_type="dataset")
        commit_text(api, "c.txt", revision="run/7")

        assert hub.files(REPO, revision="run/7").keys() == INITIAL_FILES | {"a.txt", "c.txt"}
        assert hub.files(REPO).keys() == INITIAL_FILES | {"a.txt", "b.txt"}
        assert {branch.name for branch in api.list_repo_refs(REPO, repo_type="dataset").branches} == {"main", "run/7"}
        with pytest.raises(HfHubHTTPError, match="already exists"):
            api.create_branch(REPO, branch="run/7", repo_type="dataset")

    def test_a_deleted_branch_is_an_unknown_revision(self, hub: HubServer, api: HfApi) -> None:
        api.create_branch(REPO, branch="run", repo_type="dataset")

        api.delete_branch(REPO, branch="run", repo_type="dataset")

        assert hub.branches(REPO).keys() == {"main"}
        with pytest.raises(RevisionNotFoundError):
            commit_text(api, "a.txt", revision="run")

    def test_what_only_a_branch_points_to_is_kept_for_as_long_as_the_branch(
        self, hub: HubServer, api: HfApi, tmp_path: Path
    ) -> None:
        receipt = upload(api, "data/a.parquet", write_noise(tmp_path / "a.parquet", 100_000))
        api.create_branch(REPO, branch="run/7", repo_type="dataset")
        api.create_commit(
            REPO, [addition_from_receipt(receipt)], commit_message="Wave", repo_type="dataset", revision="run/7"
        )

        hub.forget_unreferenced_blobs()
        api.create_commit(REPO, [addition_from_receipt(receipt)], commit_message="Add", repo_type="dataset")
        assert hub.files(REPO)["data/a.parquet"] == 100_000

        receipt = upload(api, "data/b.parquet", write_noise(tmp_path / "b.parquet", 100_000))
        api.create_commit(
            REPO, [addition_from_receipt(receipt)], commit_message="Wave", repo_type="dataset", revision="run/7"
        )
        api.delete_branch(REPO, branch="run/7", repo_type="dataset")
        hub.forget_unreferenced_blobs()
        with pytest.raises(BadRequestError, match="does not exist"):
            api.create_commit(REPO, [addition_from_receipt(receipt)], commit_message="Add", repo_type="dataset")

    def test_a_branch_with_a_slash_is_read_by_its_name_and_by_its_commit(self, api: HfApi, tmp_path: Path) -> None:
        main = commit_text(api, "a.txt")
        api.create_branch(REPO, branch="run/7", revision=main, repo_type="dataset")
        head = commit_text(api, "b/c.txt", revision="run/7", parent_commit=main)

        for revision in ("run/7", head):
            (entry,) = api.get_paths_info(REPO, ["b/c.txt", "absent"], revision=revision, repo_type="dataset")
            assert entry.path == "b/c.txt"
            assert [file.path for file in api.list_repo_tree(REPO, "b", revision=revision, repo_type="dataset")] == [
                "b/c.txt"
            ]
            api.hf_hub_download(REPO, "b/c.txt", repo_type="dataset", revision=revision, local_dir=tmp_path / revision)
        with pytest.raises(HfHubHTTPError, match="A commit has happened since"):
            commit_text(api, "d.txt", revision="run/7", parent_commit=main)

    def test_a_full_commit_id_reads_the_past(self, api: HfApi, tmp_path: Path) -> None:
        first = commit_text(api, "a.txt", content=b"old")
        commit_text(api, "a.txt", content=b"new")

        old = api.hf_hub_download(REPO, "a.txt", repo_type="dataset", revision=first, local_dir=tmp_path)

        assert Path(old).read_bytes() == b"old"

    def test_the_log_names_the_tokens_that_committed(self, hub: HubServer, api: HfApi) -> None:
        commit_text(api, "a.txt")
        commit_text(HfApi(endpoint=hub.endpoint, token=hub.token("finalizer")), "b.txt")

        log = api.list_repo_commits(REPO, repo_type="dataset")

        assert [(entry.title, entry.authors) for entry in log] == [
            ("Add b.txt", ["finalizer"]),
            ("Add a.txt", ["worker"]),
            ("initial commit", ["hubserver"]),
        ]

    def test_a_squashed_branch_keeps_its_files_and_has_one_commit(self, hub: HubServer, api: HfApi) -> None:
        commit_text(api, "a.txt")
        commit_text(api, "b.txt")

        api.super_squash_history(REPO, repo_type="dataset", commit_message="Squash")

        assert [commit.title for commit in hub.commits(REPO)] == ["Squash"]
        assert hub.files(REPO).keys() == INITIAL_FILES | {"a.txt", "b.txt"}


class TestListing:
    def test_a_long_tree_comes_in_pages(self, hub: HubServer, api: HfApi) -> None:
        names = {f"part/{number:04}.txt" for number in range(1_100)}
        operations = [add(name, b"") for name in names]
        api.create_commit(REPO, operations, commit_message="Add", repo_type="dataset")

        listed = {entry.path for entry in api.list_repo_tree(REPO, repo_type="dataset", recursive=True)}

        assert listed == names | INITIAL_FILES | {"part"}
        assert len([r for r in hub.requests if "/tree/" in r.path]) == 2

    def test_entries_tell_size_content_and_last_commit(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
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


class TestOtherLibraries:
    def test_pyarrow_and_datasets_read_what_is_there(self, hub: HubServer, home: Path, tmp_path: Path) -> None:
        for number in range(2):
            table = pa.table({"text": [f"{number} {row}" for row in range(500)], "score": np.arange(500, dtype="f4")})
            write(tmp_path / f"folder/data/{number}.parquet", b"")
            pq.write_table(table, tmp_path / f"folder/data/{number}.parquet")
        write(tmp_path / "folder/README.md", CARD)
        hub.add_folder(REPO, tmp_path / "folder")

        found = run_client(hub, home, READ_SCRIPT, "reader")

        assert found == {"read_table": 500, "load_dataset": 1000, "last_text": "1 499"}

    def test_transformers_loads_the_model_it_was_given(self, home: Path, tmp_path: Path) -> None:
        with HubServer(xet=True) as hub:
            hub.create_repo("org/tiny", repo_type="model")

            found = run_client(hub, home, MODEL_SCRIPT, "worker", str(tmp_path / "model"))

            assert found == {"model_type": "bert", "same_weights": True, "tokens": ["hello", "world"]}
            assert "model.safetensors" in hub.files("org/tiny", repo_type="model")
            assert hub.handler_errors == []


class TestLargeFiles:
    def test_a_file_of_more_than_one_xorb_goes_up_and_down(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        big = write_noise(tmp_path / "big.parquet", 70_000_000)

        api.upload_file(path_or_fileobj=big, path_in_repo="big.parquet", repo_id=REPO, repo_type="dataset")

        assert sha256(download(api, "big.parquet", tmp_path / "down")) == sha256(big)
        assert hub.files(REPO)["big.parquet"] == 70_000_000

    def test_what_compresses_comes_back_whole(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
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

    def test_a_file_too_big_for_one_put_goes_up_in_parts(self, connect: Connect, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "a.parquet", 250_000)
        with HubServer(xet=False, lfs_part_bytes=100_000) as hub, connect(hub) as api:
            hub.create_repo(REPO)

            api.upload_file(path_or_fileobj=shard, path_in_repo="a.parquet", repo_id=REPO, repo_type="dataset")

            assert hub.read(REPO, "a.parquet") == shard.read_bytes()
            assert [r.bytes_in for r in hub.requests if r.method == "PUT"] == [100_000, 100_000, 50_000]
            assert hub.handler_errors == []


class TestDownloads:
    def test_ranges_are_answered_as_http_has_it(self, hub: HubServer, tmp_path: Path) -> None:
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

    def test_a_download_goes_on_where_the_connection_broke(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        write(tmp_path / "folder/note.txt", b"note")
        hub.add_folder(REPO, tmp_path / "folder")
        hub.fault("/resolve/", method="GET", drop=True)

        assert download(api, "note.txt", tmp_path / "down").read_bytes() == b"note"


class TestAccess:
    def test_nobody_writes_without_a_token_that_may(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "a.parquet", 100_000)
        for token, status in [(hub.token("guest", write=False), 403), ("hf_never_issued", 401), (False, 401)]:
            client = HfApi(endpoint=hub.endpoint, token=token)

            for attempt in (
                lambda client=client: commit_text(client, "a.txt"),
                lambda client=client: upload(client, "a.parquet", shard),
                lambda client=client: client.create_repo("org/new", repo_type="dataset"),
                lambda client=client: client.create_branch(REPO, branch="run", repo_type="dataset"),
            ):
                with pytest.raises(HfHubHTTPError) as refusal:
                    attempt()
                assert refusal.value.response.status_code == status

        assert len(hub.commits(REPO)) == 1
        assert sum(r.bytes_in for r in hub.requests) < 10_000

    def test_a_public_repository_is_read_without_a_token_and_a_private_one_is_not(
        self, hub: HubServer, api: HfApi
    ) -> None:
        hub.create_repo("org/secret", private=True)
        stranger = HfApi(endpoint=hub.endpoint, token=False)

        assert stranger.dataset_info(REPO).private is False
        assert api.dataset_info("org/secret").private is True
        with pytest.raises(RepositoryNotFoundError):
            stranger.dataset_info("org/secret")

    def test_a_gated_repository_shows_itself_but_not_its_files(
        self, hub: HubServer, api: HfApi, tmp_path: Path
    ) -> None:
        hub.create_repo("org/gated", repo_type="model", gated=True)
        write(tmp_path / "folder/config.json", b"{}")
        hub.add_folder("org/gated", tmp_path / "folder", repo_type="model")
        guest = HfApi(endpoint=hub.endpoint, token=hub.token("guest", write=False))

        assert guest.model_info("org/gated").gated == "manual"
        with pytest.raises(GatedRepoError):
            guest.hf_hub_download("org/gated", "config.json", local_dir=tmp_path / "down")
        assert Path(api.hf_hub_download("org/gated", "config.json", local_dir=tmp_path / "down")).exists()

    def test_what_is_not_there_is_told_apart(self, api: HfApi, tmp_path: Path) -> None:
        def get(repo_id: str = REPO, path: str = ".gitattributes", revision: str = "main") -> str:
            folder = tmp_path / repo_id / revision  # a file that is there already would be taken for the answer
            return api.hf_hub_download(repo_id, path, repo_type="dataset", revision=revision, local_dir=folder)

        assert Path(get()).exists()
        with pytest.raises(RepositoryNotFoundError):
            get(repo_id="org/absent")
        with pytest.raises(RevisionNotFoundError):
            get(revision="absent")
        with pytest.raises(EntryNotFoundError):
            get(path="absent")
        with pytest.raises(EntryNotFoundError):
            list(api.list_repo_tree(REPO, "absent", repo_type="dataset"))
        with pytest.raises(RevisionNotFoundError):
            api.dataset_info(REPO, revision="0" * 40)
        with pytest.raises(RepositoryNotFoundError):
            api.model_info(REPO)

    def test_whoami_knows_a_token_by_its_name(self, hub: HubServer, api: HfApi) -> None:
        assert api.whoami()["name"] == "worker"
        with pytest.raises(HfHubHTTPError, match="Invalid user token"):
            api.whoami(token="hf_never_issued")

    def test_a_repository_is_created_once_and_deleted_once(self, hub: HubServer, api: HfApi) -> None:
        url = api.create_repo("org/new", repo_type="dataset", private=True)

        assert url == api.create_repo("org/new", repo_type="dataset", exist_ok=True)
        assert url == f"{hub.endpoint}/datasets/org/new"
        assert hub.files("org/new").keys() == INITIAL_FILES
        with pytest.raises(HfHubHTTPError, match="already created"):
            api.create_repo("org/new", repo_type="dataset")
        api.delete_repo("org/new", repo_type="dataset")
        assert not api.repo_exists("org/new", repo_type="dataset")


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

    def test_the_client_outlives_a_failed_upload(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
        shard = write_noise(tmp_path / "a.parquet", 100_000)
        hub.fault("^/lfs/|/cas/v1/xorbs/", status=503)

        receipt = upload(api, "a.parquet", shard)

        assert receipt["sha256"] == sha256(shard)
        data_requests = [r for r in hub.requests if r.bytes_in > 90_000]
        assert [(r.status, r.token_name) for r in data_requests] == [(503, "worker"), (200, "worker")]

    def test_a_slow_hub_answers_in_the_end(self, hub: HubServer, api: HfApi) -> None:
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


def test_the_server_runs_as_a_process_until_it_is_terminated(tmp_path: Path) -> None:
    write(tmp_path / "folder/a.txt", b"a")
    command = [sys.executable, "-m", "hubserver", "--xet", "--load", f"dataset:{REPO}={tmp_path / 'folder'}"]
    process = subprocess.Popen(command, cwd=TESTS_FOLDER, stdout=subprocess.PIPE, env={"TMPDIR": str(tmp_path)})

    with process:
        endpoint = json.loads(process.stdout.readline())["endpoint"]
        with urllib.request.urlopen(f"{endpoint}/datasets/{REPO}/resolve/main/a.txt") as reply:
            content = reply.read()
        process.send_signal(signal.SIGTERM)

    assert content == b"a"
    assert process.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_noise(path: Path, size: int) -> Path:
    """Bytes that do not compress, the same for the same name."""
    return write(path, random.Random(path.name).randbytes(size))


def sha256(path: Path) -> str:
    return sha256_of(path.read_bytes())


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def add(path: str, content: Path | bytes) -> CommitOperationAdd:
    return CommitOperationAdd(path, content)


def commit_text(api: HfApi, path: str, *, content: bytes = b"text", **options: Any) -> str:
    title = f"Add {path}"
    return api.create_commit(REPO, [add(path, content)], commit_message=title, repo_type="dataset", **options).oid


def download(api: HfApi, path: str, folder: Path) -> Path:
    return Path(api.hf_hub_download(REPO, path, repo_type="dataset", local_dir=folder))


def upload(api: HfApi, path: str, source: Path) -> dict[str, Any]:
    """Upload without a commit, and return what is needed to commit later."""
    operation = add(path, source)
    api.preupload_lfs_files(REPO, [operation], repo_type="dataset")
    return {"path": path, "size": operation.upload_info.size, "sha256": operation.upload_info.sha256.hex()}


def addition_from_receipt(receipt: dict[str, Any]) -> CommitOperationAdd:
    operation = add(receipt["path"], b"")
    operation.upload_info = UploadInfo(size=receipt["size"], sample=b"", sha256=bytes.fromhex(receipt["sha256"]))
    operation._upload_mode, operation._is_uploaded, operation._should_ignore = "lfs", True, False
    return operation


def run_client(hub: HubServer, home: Path, script: str, token_name: str, *arguments: str) -> Any:
    """Run a script as a client process, and return what its last line says as JSON."""
    command = [sys.executable, "-c", script, REPO, *arguments]
    environment = hub.client_env(home, hub.token(token_name))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


UPLOAD_SCRIPT = """
import json, sys
from huggingface_hub import CommitOperationAdd, HfApi
_, repo, shard = sys.argv
operation = CommitOperationAdd("data/shard.parquet", shard)
HfApi().preupload_lfs_files(repo, [operation], repo_type="dataset")
info = operation.upload_info
print(json.dumps({"path": operation.path_in_repo, "size": info.size, "sha256": info.sha256.hex()}))
"""

COMMIT_SCRIPT = """
import json, sys
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.lfs import UploadInfo
_, repo, receipt = sys.argv
receipt = json.loads(receipt)
operation = CommitOperationAdd(receipt["path"], b"")
operation.upload_info = UploadInfo(size=receipt["size"], sample=b"", sha256=bytes.fromhex(receipt["sha256"]))
operation._upload_mode, operation._is_uploaded, operation._should_ignore = "lfs", True, False
card = CommitOperationAdd("README.md", b"---\\nlicense: odc-by\\n---\\n")
commit = HfApi().create_commit(repo, [operation, card], commit_message="Publish", repo_type="dataset")
print(json.dumps({"oid": commit.oid}))
"""

READ_SCRIPT = """
import json, sys
import datasets, pyarrow.parquet as pq
_, repo = sys.argv
table = pq.read_table(f"hf://datasets/{repo}/data/1.parquet")
loaded = datasets.load_dataset(repo, split="train")
found = {"read_table": table.num_rows, "load_dataset": loaded.num_rows, "last_text": loaded[-1]["text"]}
print(json.dumps(found))
"""

MODEL_SCRIPT = """
import json, sys
import torch
from huggingface_hub import HfApi
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, BertConfig
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast
_, _, folder = sys.argv

words = Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(folder)
sizes = dict(vocab_size=3, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
model = BertForSequenceClassification(BertConfig(**sizes)).eval()
model.save_pretrained(folder)
HfApi().upload_folder(repo_id="org/tiny", folder_path=folder)

loaded = AutoModelForSequenceClassification.from_pretrained("org/tiny").eval()
weights, loaded_weights = model.state_dict(), loaded.state_dict()
found = {
    "model_type": AutoConfig.from_pretrained("org/tiny").model_type,
    "same_weights": all(torch.equal(weights[name], loaded_weights[name]) for name in weights),
    "tokens": AutoTokenizer.from_pretrained("org/tiny").tokenize("hello world"),
}
print(json.dumps(found))
"""
