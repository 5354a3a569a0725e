"""Rows whose scores are stored are not scored again for another filter, unless the user says so."""

import os
import pty
import shlex
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from shardsift.fleet.errors import ScoredBefore
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.process.settings import Settings
from shardsift.producer.planning.enqueue import Enqueued, enqueue
from shardsift.producer.planning.plan import plan_run
from support.enqueued_runs import write
from support.ledger_states import claimed
from support.processes import BIN, call_command
from support.small_run import Runs, score

OTHER = {"where": "score >= 0 AND id <> 'text 3'"}
Enqueue = Callable[..., Enqueued]


@pytest.fixture
def enqueued(runs: Runs, source: Path, app: Celery) -> Enqueue:
    """Enqueue a run over the source, by default with another filter than that of `scored`."""

    def enqueued(output: str = "other", *, score_again: bool = False, **options: Any) -> Enqueued:
        plan = plan_run(runs.options(source, output, **(OTHER | options)))
        return enqueue(plan, runs.ledger, app, Settings(), score_again=score_again)

    return enqueued


@pytest.fixture
def scored(runs: Runs, source: Path) -> str:
    """The id of a published run over the source."""
    return runs.specs[runs.publish(source, "kept", min_score=0.5)].run_id


def test_another_filter_of_scored_rows_is_told_with_its_command(runs: Runs, scored: str, enqueued: Enqueue) -> None:
    where = shlex.join(["--where", OTHER["where"]])

    for options, rows in (
        ({}, where),
        ({"where": None, "keep_all": True}, "--keep-all"),
        ({"where": None, "min_score": 1}, """--where '"score" >= 1'"""),
        ({"rows_per_task": 5, "target_file_size": "1MB"}, f"{where} --target-file-size 1MB"),
    ):
        with pytest.raises(ScoredBefore) as told:
            enqueued(**options)
        assert str(told.value) == (
            f"These rows were scored by run {scored}. To score them again, add --score-again. "
            f"Without a model: producer refilter {scored} {rows} --output {runs.folder / 'other'}"
        )
    assert runs.ledger.run_ids() == [scored]
    assert not (runs.folder / "other").exists()


def test_a_run_that_was_begun_anyway_is_continued_by_its_command(runs: Runs, scored: str, enqueued: Enqueue) -> None:
    first = enqueued(score_again=True)
    again = enqueued()
    spec, shards = runs.ledger.spec(first.run_id), list(runs.ledger.shards(first.run_id))
    score(runs.ledger, runs.scorer, spec, shards[:1], scratch=runs.folder / "scratch")
    runs.ledger.redis.zrem("shardsift:runs", first.run_id)
    runs.ledger.redis.delete(*runs.ledger.redis.keys(f"{Keys(first.run_id).run}*"))

    after_a_loss = enqueued()

    assert (again.run_id, again.added) == (first.run_id, 0)
    assert (after_a_loss.run_id, after_a_loss.restored) == (first.run_id, 1)


@pytest.mark.parametrize("state", ["queued", "failed", "cancelled", "output gone", "output of another", "done"])
def test_only_a_run_with_scores_and_output_is_named(state: str, runs: Runs, enqueued: Enqueue) -> None:
    first, ledger = enqueued("first", where="score >= 1").run_id, runs.ledger
    shards = list(ledger.shards(first))
    if state == "failed":
        ledger.fail(claimed(ledger, first, shards.pop()), "it is broken", "")
    if state != "queued":
        score(ledger, runs.scorer, ledger.spec(first), shards, scratch=runs.folder / "scratch")
    if state == "cancelled":
        ledger.cancel(first)
    if state.startswith("output"):
        ledger.cancel(first)
        runs.publish(runs.folder / "input", "gone", where="score >= 2")
        shutil.rmtree(runs.folder / "gone")
    if state == "output of another":
        runs.publish(runs.folder / "input", "gone", limit_rows=5)

    if state == "done":  # its finalizer publishes it in a moment
        with pytest.raises(ScoredBefore, match=first):
            enqueued()
    else:
        assert enqueued().added == 3


@pytest.mark.parametrize(
    "options",
    [
        {"where": '"score" >= 0.5'},  # the same rows, to another place
        {"max_tokens": 16},
        {"limit_rows": 12},
        {"text_column": "id"},
    ],
    ids=str,
)
@pytest.mark.usefixtures("scored")
def test_a_run_with_the_same_filter_or_other_scores_is_not_refused(options: dict[str, Any], enqueued: Enqueue) -> None:
    assert enqueued(**options).added >= 2


@pytest.mark.usefixtures("scored")
def test_other_bytes_are_other_rows_and_another_path_is_named(runs: Runs, enqueued: Enqueue, source: Path) -> None:
    moved = source.rename(runs.folder / "moved")

    with pytest.raises(ScoredBefore, match=f"--output {runs.folder}/other --input {moved}$"):
        enqueued(input_uris=(str(moved),))
    write(moved / "a.parquet", id=["changed"] * 10)

    assert enqueued(input_uris=(str(moved),)).added == 3


def test_a_command_asks_if_it_can_and_else_is_refused(runs: Runs, scored: str, source: Path, redis_url: str) -> None:
    options = ("--input", source, "--model", runs.models[0], "--dtype", "float32", "--min-score", "1")
    words = ["enqueue", *map(str, options), "--output", str(runs.folder / "other")]

    def answered(answer: bytes) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        command = [str(BIN / "producer"), *words]
        environment = {**os.environ, "REDIS_URL": redis_url, "COLUMNS": "1000"}
        process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL, env=environment)
        os.close(theirs)
        os.write(ours, answer)
        said = b""
        with suppress(OSError):  # the terminal's last process has ended; what is not read makes it wait
            while part := os.read(ours, 4_096):
                said += part
        os.close(ours)
        return process.wait(), said.decode()

    refused, dry = (
        call_command("producer", *words, *more, environment={"REDIS_URL": redis_url}) for more in ([], ["--dry-run"])
    )
    no, said = answered(b"n\n")
    only_one = runs.ledger.run_ids() == [scored]
    yes, _ = answered(b"y\n")

    assert (refused.returncode, dry.returncode, no, yes) == (2, 0, 2, 0)
    for told in (refused.stderr, dry.stderr, said):
        assert f"Without a model: producer refilter {scored} --where '\"score\" >= 1.0' --output" in told
    assert "Score them again? [y/N]" in said
    assert only_one
    assert len(runs.ledger.run_ids()) == 2
