"""A repository belongs to one run: a branch reserves it, and other data in it is refused and left alone."""

from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.errors import UsageError
from fleet.spec import RunSpec
from fleet.storage.hub import repo_id_of
from fleet.storage.output import MANIFEST_PATH
from hubserver import HubServer
from support.hub_fleet import Client, finalize, outputs, publish_as_other_run, reserve, spec_on_branch, titles
from support.records import a_spec

_numbers = count()


class TestReserving:
    def test_a_repository_that_is_not_there_is_made(self, hub: HubServer, worker: Client) -> None:
        repo = f"org/new-{next(_numbers)}"
        spec = a_spec(output_uri=f"hf://datasets/{repo}")

        worker.call(reserve, spec)
        worker.call(reserve, spec)

        assert titles(hub, repo) == ["initial commit"]
        assert RunSpec.from_json(spec_on_branch(hub, repo, spec)).input_revision == spec.input_revision

    def test_a_repository_that_another_run_reserved_is_refused_before_any_gpu_work(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client
    ) -> None:
        worker.call(reserve, spec)
        other = a_spec(output_uri=spec.output_uri, where=None)

        with pytest.raises(
            UsageError, match=f"is reserved by another run, {spec.run_id}.* delete the branch shardsift/"
        ):
            worker.call(reserve, other)

        assert set(hub.branches(repo)) == {"main", f"shardsift/{spec.run_id}"}

    def test_of_two_runs_that_reserve_at_the_same_moment_not_both_go_on(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client, finalizer: Client
    ) -> None:
        other = a_spec(output_uri=spec.output_uri, where=None)
        hub.fault("/branch/", method="POST", status=None, delay_seconds=0.5, times=2)  # both have looked before

        reserving = [worker.start(reserve, spec), finalizer.start(reserve, other)]
        ended = [future.exception() for future in reserving]
        hub.forget_faults()  # a late one saw the other's branch and did not create one

        went_on = [ending is None for ending in ended]
        assert sum(went_on) <= 1
        assert all(ending is None or isinstance(ending, UsageError) for ending in ended)
        kept = {f"shardsift/{run.run_id}" for run, goes_on in zip((spec, other), went_on, strict=True) if goes_on}
        assert set(hub.branches(repo)) == {"main"} | kept

    def test_a_reservation_whose_producer_died_midway_is_completed(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client
    ) -> None:
        hub.fault("/commit/", method="POST", drop=True)
        with pytest.raises(UsageError, match="the network failed"):
            worker.call(reserve, spec)

        worker.call(reserve, spec)

        assert RunSpec.from_json(spec_on_branch(hub, repo, spec)).input_revision == spec.input_revision

    def test_the_reservation_goes_when_the_run_is_published(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        finalizer.call(reserve, spec)

        finalizer.call(finalize, redis_url, spec.run_id)
        finalizer.call(reserve, spec)

        assert set(hub.branches(repo)) == {"main"}

    def test_a_token_that_may_only_read_is_refused(self, hub: HubServer, spec: RunSpec, worker: Client) -> None:
        with pytest.raises(UsageError, match="a dataset repository that HF_TOKEN can write"):
            worker.call(reserve, spec, token=hub.token("reader", write=False))

    def test_data_of_another_run_is_refused(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client, tmp_path: Path
    ) -> None:
        publish_as_other_run(hub, repo, tmp_path)

        with pytest.raises(UsageError, match="holds the data of another run, other"):
            worker.call(reserve, spec)

    @pytest.mark.parametrize("path", ["data/a.parquet", "scores/a.parquet", MANIFEST_PATH])
    def test_foreign_data_is_refused(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client, tmp_path: Path, path: str
    ) -> None:
        file = tmp_path / "theirs" / path
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table({"a": [1]}), file)
        hub.add_folder(repo, tmp_path / "theirs")

        with pytest.raises(UsageError, match="holds data that no run of shardsift wrote"):
            worker.call(reserve, spec)

    def test_a_card_is_no_hindrance(
        self, hub: HubServer, repo: str, spec: RunSpec, worker: Client, tmp_path: Path
    ) -> None:
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs/README.md").write_text("# To come")
        hub.add_folder(repo, tmp_path / "theirs")

        worker.call(reserve, spec)

        assert RunSpec.from_json(spec_on_branch(hub, repo, spec)) == spec
        assert outputs(hub, repo) == {"README.md"}

    def test_a_published_run_may_be_reserved_again(
        self, hub: HubServer, repo: str, spec: RunSpec, staged: dict[str, bytes], finalizer: Client, redis_url: str
    ) -> None:
        finalizer.call(finalize, redis_url, spec.run_id)
        files, commits = outputs(hub, repo), titles(hub, repo)

        finalizer.call(reserve, spec)

        assert (outputs(hub, repo), titles(hub, repo)) == (files, commits)

    def test_a_hub_in_trouble_is_one_line(self, hub: HubServer, spec: RunSpec, worker: Client) -> None:
        hub.fault("/api/datasets/", status=500)

        with pytest.raises(UsageError, match="the Hub answered 500") as refused:
            worker.call(reserve, spec)

        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("uri", "repo_id"), [("hf://datasets/me/out", "me/out"), ("hf://datasets/me/out/", "me/out")])
def test_an_output_is_named_by_user_and_name(uri: str, repo_id: str) -> None:
    assert repo_id_of(uri) == repo_id


@pytest.mark.parametrize(
    "uri",
    [
        "hf://me/out",
        "hf://datasets/out",
        "hf://datasets/me/out/data",
        "hf://datasets/me/out@main",
        "hf://datasets//",
        "hf://buckets/me/out",
    ],
)
def test_other_forms_are_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="is written hf://datasets/<user>/<name>"):
        repo_id_of(uri)
