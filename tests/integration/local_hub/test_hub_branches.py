"""With the Hub's own client, branches and history of the local Hub work as on the real one."""

from pathlib import Path

import pytest
from huggingface_hub import (
    HfApi,
)
from huggingface_hub.errors import (
    BadRequestError,
    HfHubHTTPError,
    RevisionNotFoundError,
)

from hubserver import HubServer
from support.hub_client import INITIAL_FILES, REPO, addition_from_receipt, commit_text, upload, write_noise

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]


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
