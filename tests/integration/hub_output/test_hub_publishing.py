"""Outputs on the Hub: workers upload the bytes, and the finalizer publishes them in one commit, never in two."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from shardsift.fleet.errors import ShardError, TransientError, UsageError
from shardsift.fleet.scorers.stored_scores import model_of, published_run
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from shardsift.producer.verify.verify import verify
from support.hub_runs import A, B, HubRun
from support.records import a_manifest, a_shard, a_spec
from support.waiting import wait_until


@pytest.mark.usefixtures("staged")
class TestPublishing:
    """All shards of the run are staged."""

    def test_what_is_forbidden_is_not_damaged(self, run: HubRun) -> None:
        run.publish()
        gated = {"status": 403, "headers": {"X-Error-Code": "GatedRepo"}, "times": 9}
        run.hub.fault("/resolve/.*/(data|scores)/", method="GET", **gated)

        with pytest.raises(ShardError, match="gated"):
            verify(run.spec.output_uri)
        run.hub.forget_faults()

    def test_a_page_in_place_of_the_manifest_is_not_taken_for_it(self, run: HubRun) -> None:
        run.publish()
        run.hub.fault(MANIFEST_PATH, method="GET", status=200, body=b"<html>Sign in</html>")

        with pytest.raises(TransientError, match="the network failed"):
            run.output.manifest()

        assert run.output.is_published()

    def test_finalizers_that_race_make_one_commit(self, run: HubRun) -> None:
        run.hub.fault("/commit/", status=None, delay_seconds=0.5, times=2)  # all have looked before the first commit

        with ThreadPoolExecutor(3) as finalizers:
            publications = list(finalizers.map(lambda _: run.publish(), range(3)))

        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert {publication.commit for publication in publications} == {run.hub.commits(run.repo)[0].oid}
        assert 412 in run.commit_statuses()

    def test_a_lost_answer_is_no_second_commit(self, run: HubRun) -> None:
        run.hub.fault("/commit/", method="POST", drop_after=True)
        with pytest.raises(TransientError, match="the network failed"):
            run.publish()
        assert run.ledger.state(run.run_id).publication is None

        publication = run.publish()

        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]
        assert run.ledger.state(run.run_id).publication == publication
        assert publication.commit == run.hub.commits(run.repo)[0].oid

    def test_a_commit_of_somebody_else_in_between_is_looked_at_and_kept(self, run: HubRun) -> None:
        run.hub.fault("/commit/", method="POST", status=None, delay_seconds=1.0)

        publishing = run.finalizer.start(run.publish)
        wait_until(lambda: run.hub.faults_left == 0, description="the commit is on its way")
        run.hub.write(run.repo, "notes.txt", b"ours too")
        publishing.result()

        assert run.titles() == [f"Publish run {run.run_id}", "Write a file", "initial commit"]
        assert run.commit_statuses() == [412, 200]
        assert "notes.txt" in run.hub.files(run.repo)


@pytest.mark.parametrize(("target", "revision"), [("strict", ', revision="strict"'), ("refs/pr/7", "")])
def test_a_run_is_published_on_a_branch_or_pull_request_beside_main(run: HubRun, target: str, revision: str) -> None:
    run = replace(run, spec=a_spec(output_uri=f"{run.spec.output_uri}@{target}"))
    if target.startswith("refs/pr/"):
        with pytest.raises(UsageError, match=f"There is no refs/pr/7 of {run.repo}. Open a draft pull request"):
            run.reserve()
        run.hub.open_pull_request(run.repo, 7)
    run.hub.write(run.repo, MANIFEST_PATH, a_manifest("other", []))
    on_main = run.titles()
    run.output.check_free(run.spec)
    assert run.output.accepted() == {}
    run.reserve()
    run.ledger.create_run(run.spec, [A, B], now=1.0)
    content = run.score(A)
    run.look(wave_shards=1)
    content |= run.score(B)

    run.publish()
    run.reserve()

    assert run.hub.commits(run.repo, revision=target)[0].title == f"Publish run {run.run_id}"
    assert {*content, MANIFEST_PATH, CARD_PATH} <= run.hub.files(run.repo, revision=target).keys()
    assert (run.titles(), run.branches()) == (on_main, {"main", target})
    assert run.output.is_published()
    assert len(published_run(run.spec.output_uri).receipts) == 2
    card = run.hub.read(run.repo, CARD_PATH, revision=target).decode()
    assert f'load_dataset("{run.repo}"{revision}, split="train"' in card  # as main will have it
    assert "refs/pr" not in card


class TestReplacing:
    """A run over the scores of the published run takes its place."""

    @pytest.fixture
    def replacing(self, run: HubRun, staged: dict[str, bytes]) -> HubRun:
        run.publish()
        stored = model_of(published_run(run.spec.output_uri))
        scorings = tuple(replace(scoring, scores_from=stored) for scoring in run.spec.scorings)
        return replace(run, spec=replace(run.spec, scorings=scorings, where='"score" >= 4'))

    def test_one_commit_replaces_all_files_and_the_earlier_run_does_not_undo_it(
        self, run: HubRun, replacing: HubRun, staged: dict[str, bytes]
    ) -> None:
        first = a_shard("CC-MAIN-2024-10/000_00000")  # of the two that the earlier run has
        replacing.reserve()
        replacing.ledger.create_run(replacing.spec, [first], now=1.0)
        content = replacing.score(first)
        run.hub.fault("/commit/", method="POST", drop=True)
        with pytest.raises(TransientError, match="the network failed"):
            replacing.publish()
        before = {path: run.hub.read(run.repo, path) for path in staged}

        replacing.publish()

        assert before == staged
        assert run.titles() == [f"Publish run {one.run_id}" for one in (replacing, run)] + ["initial commit"]
        assert run.outputs() == {*content, MANIFEST_PATH, CARD_PATH}
        assert replacing.has(content)
        assert run.branches() == {"main"}
        with pytest.raises(UsageError, match=f"holds the data of another run, {replacing.run_id}"):
            run.reserve()
        with pytest.raises(UsageError, match=f"now holds the data of another run, {replacing.run_id}"):
            run.publish()

    def test_a_run_over_other_scores_is_refused(self, run: HubRun, replacing: HubRun) -> None:
        (scoring,) = replacing.spec.scorings
        other = replace(scoring, scores_from=replace(scoring.scores_from, revision="sha256:00"))

        with pytest.raises(UsageError, match=f"holds the data of another run, {run.run_id}"):
            replace(replacing, spec=replace(replacing.spec, scorings=(other,))).reserve()


class TestStaging:
    def test_a_small_file_is_a_blob_too(self, run: HubRun) -> None:
        run.stage(A, data_bytes=700)

        assert run.commit_statuses() == []
        assert any("/info/lfs/" in request.path or "/xet-write-token/" in request.path for request in run.hub.requests)
