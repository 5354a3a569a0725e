"""With the Hub's own client, access to the local Hub works as on the real one."""

from pathlib import Path

import pytest
from huggingface_hub import (
    HfApi,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from hubserver import HubServer
from support.hub_client import INITIAL_FILES, REPO, commit_text, upload, write_noise

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]


class TestAccess:
    def test_only_a_token_with_write_access_may_write(self, hub: HubServer, api: HfApi, tmp_path: Path) -> None:
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

    def test_missing_repositories_revisions_and_files_are_distinguished(self, api: HfApi, tmp_path: Path) -> None:
        def get(repo_id: str = REPO, path: str = ".gitattributes", revision: str = "main") -> str:
            folder = tmp_path / repo_id / revision  # an existing file would count as the answer
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
