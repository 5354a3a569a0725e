"""After a loss of Redis or of the repository, the same command finds on the Hub what was saved, and scores only the rest."""

from dataclasses import replace

import pytest
from huggingface_hub import HfApi

from shardsift.fleet.errors import ShardError, TransientError, UsageError
from shardsift.fleet.storage.hub import HubOutput
from shardsift.fleet.storage.output import ACCEPTED_PATH, AcceptedFiles
from shardsift.producer.status import run_status
from support.hub_runs import SHARDS, A, B, C, D, HubRun, data_of, output_of
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("enqueued")


class TestPublishingThatCannotSucceed:
    def test_a_repository_that_was_deleted_is_said_and_the_same_command_makes_it_again(self, run: HubRun) -> None:
        run.score(*SHARDS)
        HfApi().delete_repo(run.repo, repo_type="dataset")

        with pytest.raises(ShardError, match="made again by the command that started the run"):
            run.look(100)
        status = run_status(run.ledger, run.run_id)
        again = run.enqueue()
        run.look(100)
        content = run.score(*SHARDS)
        run.look(100)

        assert (status.is_over, status.exit_code) == (True, 1)
        assert again.counts.done == 4
        assert run.has(content)
        assert run.ledger.state(run.run_id).publication.shards == 4

    @pytest.mark.parametrize(
        ("path", "answer"),
        [("/refs", b"[]"), ("/tree/", b'{"error": "login"}'), ("/preupload/", b"{}"), ("/commit/", b"{}")],
    )
    def test_an_answer_of_another_shape_passes_and_is_named(self, run: HubRun, path: str, answer: bytes) -> None:
        run.score(*SHARDS)
        run.hub.fault(path, status=200, headers={"Content-Type": "application/json"}, body=answer)

        with pytest.raises(TransientError, match=f"hf://datasets/{run.repo}.*: the Hub's answer cannot be used"):
            run.look(100)
        wait_until(lambda: run.look(100) and run.ledger.state(run.run_id).publication, description="it is tried again")

        assert run.titles() == [f"Publish run {run.run_id}", "initial commit"]


class TestTakingOver:
    """Redis loses all data, and the same command is run again."""

    def test_what_the_waves_saved_is_not_scored_again(self, run: HubRun) -> None:
        run.score(A, B, C)
        run.look(3)
        run.ledger.redis.flushall()
        run.hub.forget_unreferenced_blobs()

        again = run.enqueue()
        assert (again.added, again.restored, again.sent, again.counts.done) == (4, 3, 1, 3)
        run.score(D)
        run.look(3)

        run.check_published_once()

    def test_what_no_wave_saved_is_found_by_receipts_in_a_folder_if_the_hub_has_its_files(self, run: HubRun) -> None:
        run = replace(run, state_uri=str(run.folder / "state"))
        run.enqueue()
        run.score(A)
        run.hub.forget_unreferenced_blobs()
        run.score(B, C)
        run.ledger.redis.flushall()

        again = run.enqueue()
        run.hub.forget_unreferenced_blobs()
        assert (again.restored, again.sent, again.counts.done) == (2, 2, 2)
        run.score(A, D)
        run.look(100)

        run.check_published_once()

    def test_a_place_for_receipts_that_cannot_be_used_is_refused_before_any_gpu_work(self, run: HubRun) -> None:
        with pytest.raises(UsageError, match="s3://bucket/state cannot be used: Install s3fs"):
            replace(run, state_uri="s3://bucket/state").enqueue()
        with pytest.raises(UsageError, match="SHARDSIFT_STATE_URI is hf://datasets/org/state. Name a folder"):
            replace(run, state_uri="hf://datasets/org/state").enqueue()

    def test_what_was_saved_after_a_publication_counts_beside_it(self, run: HubRun) -> None:
        run.score(A)
        run.fail(B, C, D)
        run.publish(without_failed=True)
        run.ledger.retry(run.run_id)
        run.score(B)
        run.look(1)

        assert [receipt.shard for receipt in run.saved()] == [A.name, B.name]
        assert [len(data_of(wave)) for wave in run.waves()[1:]] == [2]  # the first is the publication

    def test_accepted_files_are_known_before_and_after_publication_beside_a_left_over_branch(self, run: HubRun) -> None:
        theirs, ours = (
            AcceptedFiles(run_id=run_id).after([(A, replace(A, identity=f"sha256:of-{run_id}"))])
            for run_id in ("a-left-over", run.run_id)
        )
        before = run.output.accepted()
        HubOutput(run.spec.output_uri, theirs.run_id).accept(theirs)
        run.reserve()
        run.output.accept(ours)

        reserved = run.output.accepted()
        run.score(*SHARDS)
        run.look(100)

        assert run.hub.read(run.repo, ACCEPTED_PATH) == ours.to_json()
        assert (before, reserved) == ({}, {"a-left-over": theirs, run.run_id: ours})
        assert output_of(replace(run.spec, input_revision="another")).accepted() == reserved
        assert len(run.titles()) == 2

    def test_a_file_that_was_changed_on_the_branch_does_not_count(self, run: HubRun) -> None:
        run.score(A, B)
        run.look(2)
        HfApi().upload_file(
            path_or_fileobj=b"theirs",
            path_in_repo=A.data_path,
            repo_id=run.repo,
            repo_type="dataset",
            revision=run.branch,
        )

        assert [receipt.shard for receipt in run.saved()] == [B.name]
