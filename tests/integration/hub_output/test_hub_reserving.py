"""A branch reserves a repository for a run. What is refused is tested with every kind of output."""

from dataclasses import replace
from itertools import count

import pytest
from huggingface_hub import HfApi

from shardsift.fleet.errors import TransientError, UsageError
from shardsift.fleet.storage.hub import place_of
from support.hub_runs import HubRun, output_of
from support.records import a_spec

_numbers = count()


class TestReserving:
    def test_a_repository_that_is_not_there_is_made(self, run: HubRun) -> None:
        repo = f"org/new-{next(_numbers)}"
        run = replace(run, repo=repo, spec=a_spec(output_uri=f"hf://datasets/{repo}"))

        run.reserve()
        run.reserve()

        assert run.titles() == ["initial commit"]
        assert run.reserved_spec().input_revision == run.spec.input_revision

    @pytest.mark.parametrize("request_path", ["/branch/", "/create$"])
    def test_a_repository_that_is_busy_is_a_transient_error(self, run: HubRun, request_path: str) -> None:
        run = replace(run, spec=a_spec(output_uri=f"hf://datasets/org/new-{next(_numbers)}"))
        run.hub.fault(request_path, method="POST", status=409)

        with pytest.raises(TransientError):
            run.reserve()

        run.reserve()

    def test_of_two_runs_that_reserve_at_the_same_moment_not_both_go_on(self, run: HubRun) -> None:
        other = a_spec(output_uri=run.spec.output_uri, where=None)
        run.hub.fault("/branch/", method="POST", status=None, delay_seconds=0.5, times=2)  # both have looked before

        reserving = [run.worker.start(output_of(spec).reserve, spec) for spec in (run.spec, other)]
        ended = [future.exception() for future in reserving]
        run.hub.forget_faults()  # a late one saw the other's branch and did not create one

        went_on = [ending is None for ending in ended]
        assert sum(went_on) <= 1
        assert all(ending is None or isinstance(ending, UsageError) for ending in ended)
        kept = {f"shardsift/{spec.run_id}" for spec, goes_on in zip((run.spec, other), went_on, strict=True) if goes_on}
        assert run.branches() == {"main"} | kept

    def test_a_reservation_whose_producer_died_midway_is_completed(self, run: HubRun) -> None:
        run.hub.fault("/commit/", method="POST", drop=True)
        with pytest.raises(TransientError, match="the network failed"):
            run.reserve()

        run.reserve()

        assert run.reserved_spec().input_revision == run.spec.input_revision

    def test_a_token_that_may_only_read_is_refused(self, run: HubRun) -> None:
        with pytest.raises(UsageError, match="a dataset repository that HF_TOKEN can write"):
            run.worker.call(run.reserve, token=run.hub.token("reader", write=False))

    def test_looking_whether_a_repository_is_free_makes_none(self, run: HubRun) -> None:
        missing = f"org/new-{next(_numbers)}"

        spec = a_spec(output_uri=f"hf://datasets/{missing}")

        output_of(spec).check_free(spec)

        assert not HfApi().repo_exists(missing, repo_type="dataset")


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("hf://datasets/me/out", ("me/out", "main")),
        ("hf://datasets/me/out@v2.1", ("me/out", "v2.1")),
        ("hf://datasets/me/out@refs/pr/7", ("me/out", "refs/pr/7")),
    ],
)
def test_an_output_is_named_by_user_and_name_and_perhaps_a_branch(uri: str, place: tuple[str, str]) -> None:
    assert place_of(uri) == place


@pytest.mark.parametrize(
    "uri",
    [
        "hf://me/out",
        "hf://datasets/me/out/data",
        "hf://datasets/me/out@main",
        "hf://datasets/me/out@shardsift/1",
        "hf://datasets/me/out@refs/pr/",
        f"hf://datasets/me/out@{'0a' * 20}",
        "hf://buckets/me",
    ],
)
def test_a_dataset_on_the_hub_in_another_form_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="is written hf://datasets/<user>/<name>"):
        place_of(uri)
