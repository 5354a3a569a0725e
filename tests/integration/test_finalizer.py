"""A finished run is published once and whole. The sweep sends lost messages and requests publishing."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
import yaml
from celery import Celery

from fleet.broker import make_app
from fleet.columns import kept_schema, scores_schema
from fleet.disclosure import disclosed_spec
from fleet.errors import UsageError
from fleet.histogram import Histogram
from fleet.ledger import Claim, Ledger, Publication
from fleet.message import FINALIZE_QUEUE, FINALIZE_RUN
from fleet.model import Model
from fleet.queues import queue_length, queue_lists
from fleet.receipt import OutputFile, Parity, Receipt
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.manifest import left_out_shards
from fleet.storage.opening import open_output
from fleet.storage.output import MANIFEST_PATH, Mark
from producer.finalizer.app import finalize_run_task
from producer.finalizer.card import dataset_card
from producer.finalizer.publish import NotReady, finalize_run
from producer.finalizer.sweep import Sweeper
from producer.local.processes import Child, running
from producer.local.redis_server import embedded_redis, find_redis_server
from producer.progress import progress_line
from producer.status import ExitCode, run_status
from producer.status_report import what_next
from support.outputs import Published
from support.records import a_receipt, a_scoring_receipt, a_shard, a_spec
from support.waiting import wait_until

A, B, C = a_shard("crawl/a"), a_shard("crawl/b"), a_shard("crawl/c")
INPUT_SCHEMA = pa.schema([("text", pa.string()), ("id", pa.string())])


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def settings(redis_url: str) -> Settings:
    return Settings(redis_url=redis_url, resend_seconds=60, sweep_seconds=0.05)


@pytest.fixture
def ledger(settings: Settings) -> Ledger:
    ledger = Ledger.connect(settings)
    ledger.redis.flushall()
    return ledger


@pytest.fixture
def app(settings: Settings) -> Iterator[Celery]:
    app = make_app("test", settings)
    yield app
    app.close()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def spec(ledger: Ledger, out: Path) -> RunSpec:
    """A run of three shards that is enqueued and not started."""
    spec = a_spec(output_uri=str(out))
    open_output(spec.output_uri, spec.run_id).reserve(spec)
    ledger.create_run(spec, [A, B, C], now=1.0)
    return spec


def do(ledger: Ledger, spec: RunSpec, *shards: Shard) -> None:
    """Do a shard as a worker does: claim it, stage both files and complete it."""
    output = open_output(spec.output_uri, spec.run_id)
    for shard in shards:
        claim = claimed(ledger, spec, shard)
        data = staged(output, shard.data_path, kept_schema(INPUT_SCHEMA, spec), attempt=f"{claim.token}-aa")
        scores = staged(output, shard.scores_path, scores_schema(spec), attempt=f"{claim.token}-aa")
        ledger.complete(claim, a_receipt(spec.run_id, shard, data=data, scores=scores))


def fail(ledger: Ledger, spec: RunSpec, *shards: Shard) -> None:
    for shard in shards:
        ledger.fail(claimed(ledger, spec, shard), "corrupt", "")


def claimed(ledger: Ledger, spec: RunSpec, shard: Shard) -> Claim:
    claim = ledger.claim(spec.run_id, shard.name, "w1")
    assert isinstance(claim, Claim)
    return claim


def staged(output: object, path: str, schema: pa.Schema, *, attempt: str) -> OutputFile:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table().replace_schema_metadata({"path": path}), sink)
    content = sink.getvalue().to_pybytes()
    file = Path(output.uri).parent / "scratch"
    file.write_bytes(content)
    staged_path = output.stage(file, path, attempt=attempt)
    sha256 = hashlib.sha256(content).hexdigest()
    return OutputFile(path=path, staged_path=staged_path, size_bytes=len(content), sha256=sha256, rows=0)


def visible(out: Path) -> dict[str, bytes]:
    files = (path for path in out.rglob("*") if path.is_file() and ".shardsift" not in path.parts)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


class TestFinalizing:
    def test_a_run_with_open_shards_is_not_ready(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A)

        for without_failed in (False, True):
            outcome = finalize_run(ledger, spec.run_id, without_failed=without_failed)
            assert outcome == NotReady(reason="2 shards not done yet")
        assert visible(out) == {}

    @pytest.mark.parametrize("without_failed", [True, False])
    def test_a_run_whose_enqueue_died_midway_is_not_published(
        self, ledger: Ledger, spec: RunSpec, out: Path, without_failed: bool
    ) -> None:
        do(ledger, spec, A, B, C)
        ledger.redis.hdel(f"shardsift:run:{spec.run_id}", "complete")

        outcome = finalize_run(ledger, spec.run_id, without_failed=without_failed)
        assert outcome == NotReady(reason="enqueueing was interrupted; run the same command again")
        assert visible(out) == {}

        ledger.create_run(spec, [A, B, C], now=2.0)
        assert isinstance(finalize_run(ledger, spec.run_id, without_failed=without_failed), Publication)

    def test_checkpoints_that_a_dead_worker_left_are_removed(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B, C)
        open_output(spec.output_uri, spec.run_id).store_checkpoint(A.name, "0", b"scores")

        finalize_run(ledger, spec.run_id, without_failed=False)

        assert not (out / ".shardsift" / spec.run_id / "checkpoints").exists()

    def test_a_run_whose_shards_are_done_is_published(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B, C)

        publication = finalize_run(ledger, spec.run_id, without_failed=False)

        assert publication == Publication(uri=str(out), commit="", shards=3)
        assert ledger.publication(spec.run_id) == publication
        paths = {path for shard in (A, B, C) for path in (shard.data_path, shard.scores_path)}
        assert visible(out).keys() == {*paths, MANIFEST_PATH, "README.md"}

    def test_publishing_again_does_nothing(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B, C)
        first = finalize_run(ledger, spec.run_id, without_failed=False)
        (out / "README.md").write_text("mine")
        before = visible(out)

        assert finalize_run(ledger, spec.run_id, without_failed=False) == first
        assert visible(out) == before

    def test_a_publication_that_the_ledger_missed_is_recorded(self, ledger: Ledger, spec: RunSpec) -> None:
        do(ledger, spec, A, B, C)
        publication = finalize_run(ledger, spec.run_id, without_failed=False)
        ledger.redis.hdel(f"shardsift:run:{spec.run_id}", "published")
        ledger.record_publish_error(spec.run_id, "Redis went away")

        finalize_run(ledger, spec.run_id, without_failed=False)

        assert ledger.publication(spec.run_id) == publication
        assert ledger.publish_error(spec.run_id) is None

    def test_failed_shards_hold_it_back(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B)
        fail(ledger, spec, C)

        outcome = finalize_run(ledger, spec.run_id, without_failed=False)

        assert isinstance(outcome, NotReady)
        assert outcome.reason.startswith("1 shard failed; `producer retry` them")
        assert visible(out) == {}

    def test_they_do_not_when_it_is_to_be_published_without_them(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B)
        fail(ledger, spec, C)

        publication = finalize_run(ledger, spec.run_id, without_failed=True)

        assert publication == Publication(uri=str(out), commit="", shards=2)
        assert C.data_path not in visible(out)
        assert pq.read_table(out / MANIFEST_PATH).column("shard").to_pylist() == [A.name, B.name]
        assert left_out_shards((out / MANIFEST_PATH).read_bytes()) == (C.name,)

    def test_a_run_without_any_done_shard_is_never_published(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        fail(ledger, spec, A, B, C)

        assert finalize_run(ledger, spec.run_id, without_failed=True) == NotReady(reason="no shard is done")
        assert visible(out) == {}

    def test_a_shard_that_succeeds_later_is_in_the_second_publication(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B)
        fail(ledger, spec, C)
        finalize_run(ledger, spec.run_id, without_failed=True)
        before = visible(out)
        ledger.retry(spec.run_id)
        do(ledger, spec, C)

        publication = finalize_run(ledger, spec.run_id, without_failed=False)

        assert publication == Publication(uri=str(out), commit="", shards=3)
        after = visible(out)
        assert {A.data_path, B.data_path, C.data_path, C.scores_path} <= after.keys()
        assert {path: after[path] for path in before if path.startswith(("data", "scores"))} == {
            path: content for path, content in before.items() if path.startswith(("data", "scores"))
        }
        assert pq.read_table(out / MANIFEST_PATH).num_rows == 3

    def test_what_another_run_published_is_left_alone(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B, C)
        table = pa.table({"shard": ["x"]}).replace_schema_metadata(Mark.of("other", []).as_metadata())
        pq.write_table(table, out / MANIFEST_PATH)
        before = visible(out)

        with pytest.raises(UsageError, match="now holds the data of another run, other"):
            finalize_run(ledger, spec.run_id, without_failed=False)

        assert visible(out) == before

    @pytest.mark.parametrize("damage", [Published.delete, Published.truncate, Published.empty, Published.flip])
    def test_a_shard_whose_staged_file_is_damaged_is_done_again_alone_and_then_all_is_published(
        self,
        ledger: Ledger,
        spec: RunSpec,
        out: Path,
        damage: Callable[[Published, str], None],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        do(ledger, spec, A, B, C)
        receipt = list(ledger.receipts(spec.run_id))[1]
        damage(Published(str(out)), receipt.data.staged_path)

        outcome = finalize_run(ledger, spec.run_id, without_failed=False)

        assert outcome == NotReady(reason="1 shard queued again, since the stored files are lost or damaged")
        assert f"shard {B.name} is scored again: " in caplog.text
        assert visible(out) == {}
        assert ledger.take_due(spec.run_id, room=9).again == [B.name]
        do(ledger, spec, B)
        assert finalize_run(ledger, spec.run_id, without_failed=False) == Publication(uri=str(out), commit="", shards=3)
        assert open_output(spec.output_uri, spec.run_id).inspect(list(ledger.receipts(spec.run_id)), hashes=True) == []

    def test_a_published_file_that_is_damaged_while_another_shard_is_done_again_is_found_by_its_publication(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B, C)
        finalize_run(ledger, spec.run_id, without_failed=False)
        first, _, last = ledger.receipts(spec.run_id)
        ledger.requeue(spec.run_id, {A.name: "its score file is missing"}, of=[first])
        Published(str(out)).flip(last.data.path)
        do(ledger, spec, A)

        outcome = finalize_run(ledger, spec.run_id, without_failed=False)

        assert outcome == NotReady(reason="1 shard queued again, since the stored files are lost or damaged")
        do(ledger, spec, C)
        assert finalize_run(ledger, spec.run_id, without_failed=False) == Publication(uri=str(out), commit="", shards=3)
        assert open_output(spec.output_uri, spec.run_id).inspect(list(ledger.receipts(spec.run_id)), hashes=True) == []

    def test_a_disk_that_damages_whatever_it_stores_does_not_keep_the_run_busy(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B, C)
        for _ in range(3):
            receipt = list(ledger.receipts(spec.run_id))[1]
            Published(str(out)).flip(receipt.scores.staged_path)
            finalize_run(ledger, spec.run_id, without_failed=False)
            if not ledger.counts(spec.run_id).failed:
                do(ledger, spec, B)

        (failure,) = ledger.failures(spec.run_id)
        assert (failure.shard, ledger.counts(spec.run_id).open) == (B.name, 0)
        assert "has changed since it was written (its sha256 differs) (found 3 times)" in failure.error

    def test_a_finalizer_that_was_frozen_while_all_shards_were_done_again_leaves_them_to_the_next(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B, C)
        frozen = Meanwhile(ledger, lambda: ledger.retry(spec.run_id, done_too=True), do_again(ledger, spec))

        outcome = finalize_run(frozen, spec.run_id, without_failed=False)

        assert isinstance(outcome, NotReady)
        assert ledger.publication(spec.run_id) is None
        finalize_run(ledger, spec.run_id, without_failed=False)
        assert ledger.publication(spec.run_id) == Publication(uri=str(out), commit="", shards=3)
        assert [path for path in Published(str(out)).hidden_paths() if "/staged/" in path] == []

    def test_a_run_that_was_cancelled_is_not_published(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B, C)
        ledger.cancel(spec.run_id)

        outcome = finalize_run(ledger, spec.run_id, without_failed=False)

        assert outcome == NotReady(reason="it is cancelled; `producer retry` resumes it")
        assert visible(out) == {}

    def test_a_run_that_was_cancelled_while_it_was_published_is_published(
        self, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        do(ledger, spec, A, B, C)

        finalize_run(Meanwhile(ledger, lambda: ledger.cancel(spec.run_id)), spec.run_id, without_failed=False)

        assert ledger.publication(spec.run_id)
        assert not ledger.is_cancelled(spec.run_id)

    def test_a_publication_whose_finalizer_died_before_a_cancellation_is_found_by_the_next(
        self, ledger: Ledger, spec: RunSpec, out: Path, app: Celery, settings: Settings
    ) -> None:
        do(ledger, spec, A, B, C)
        with pytest.raises(KeyboardInterrupt):
            finalize_run(Meanwhile(ledger, die), spec.run_id, without_failed=False)
        ledger.cancel(spec.run_id)

        Sweeper(app, ledger, settings).sweep()
        asked = ledger.redis.llen(FINALIZE_QUEUE)
        finalize_run(ledger, spec.run_id, without_failed=False)

        assert asked == 1
        assert ledger.publication(spec.run_id)
        assert not ledger.is_cancelled(spec.run_id)


class TestPublishingThatCannotSucceed:
    @pytest.fixture
    def asked(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
        """The answer of a finalizer that is asked to publish a run."""
        monkeypatch.setenv("REDIS_URL", redis_url)
        return lambda run_id: str(finalize_run_task.run(run_id=run_id))

    def test_it_is_said_and_not_tried_again(
        self,
        ledger: Ledger,
        spec: RunSpec,
        out: Path,
        asked: Callable[[str], str],
        app: Celery,
        settings: Settings,
    ) -> None:
        do(ledger, spec, A, B, C)
        publish_as_other_run(out)

        with pytest.raises(UsageError, match="another run, other"):
            asked(spec.run_id)
        Sweeper(app, ledger, settings).sweep()

        status = run_status(ledger, spec.run_id)
        assert (status.is_over, status.exit_code) == (True, ExitCode.FAILED)
        assert any("now holds the data of another run, other" in line for line in what_next(status))
        assert ledger.redis.llen(FINALIZE_QUEUE) == 0
        assert asked(spec.run_id).startswith("not tried: ")

    @pytest.mark.parametrize("command", [Ledger.clear_publish_error, Ledger.retry])
    def test_it_is_tried_again_when_a_person_asks(
        self,
        ledger: Ledger,
        spec: RunSpec,
        out: Path,
        asked: Callable[[str], str],
        command: Callable[[Ledger, str], object],
    ) -> None:
        do(ledger, spec, A, B, C)
        publish_as_other_run(out)
        with pytest.raises(UsageError):
            asked(spec.run_id)
        (out / MANIFEST_PATH).unlink()

        command(ledger, spec.run_id)

        assert asked(spec.run_id).startswith("published 3 shards")
        assert run_status(ledger, spec.run_id).exit_code == ExitCode.DONE

    def test_what_may_pass_is_tried_again_and_the_reason_is_shown_meanwhile(
        self, ledger: Ledger, spec: RunSpec, out: Path, asked: Callable[[str], str], app: Celery, settings: Settings
    ) -> None:
        do(ledger, spec, A, B, C)
        ledger.record_publish_error(spec.run_id, "the Hub answered 503")

        Sweeper(app, ledger, settings).sweep()

        status = run_status(ledger, spec.run_id)
        assert (status.is_over, status.exit_code) == (False, ExitCode.RUNNING)
        assert "the Hub answered 503" in progress_line(status)
        assert ledger.redis.llen(FINALIZE_QUEUE) == 1


def publish_as_other_run(out: Path) -> None:
    table = pa.table({"shard": ["x"]}).replace_schema_metadata(Mark.of("other", []).as_metadata())
    pq.write_table(table, out / MANIFEST_PATH)


class Meanwhile(Ledger):
    """A ledger that calls a function between a publication and its record."""

    def __init__(self, ledger: Ledger, *happenings: Callable[[], object]) -> None:
        super().__init__(ledger.redis)
        self._happenings = happenings

    def record_publication(self, *arguments: Any, **options: Any) -> bool:
        for happen in self._happenings:
            happen()
        return super().record_publication(*arguments, **options)


def do_again(ledger: Ledger, spec: RunSpec) -> Callable[[], None]:
    return lambda: do(ledger, spec, A, B, C)


def die() -> None:
    raise KeyboardInterrupt


class TestManifest:
    @pytest.fixture
    def manifest(self, ledger: Ledger, spec: RunSpec, out: Path) -> pa.Table:
        do(ledger, spec, A, B, C)
        finalize_run(ledger, spec.run_id, without_failed=False)
        return pq.read_table(out / MANIFEST_PATH)

    def test_it_has_a_line_a_shard(self, manifest: pa.Table) -> None:
        assert manifest.column_names == [
            *(
                "shard",
                "source_uri",
                "source_identity",
                "source_changed",
                "rows_in",
                "rows_kept",
                "rows_dropped",
                "rows_errored",
                "errors",
                "scorings",
            ),
            *("data_path", "data_size_bytes", "data_sha256", "scores_path", "scores_size_bytes", "scores_sha256"),
            *("worker", "attempt", "device"),
            *("versions", "started_at", "finished_at"),
        ]
        first = manifest.to_pylist()[0]
        assert (first["shard"], first["source_uri"]) == (A.name, A.uri)
        assert [first[f"rows_{fate}"] for fate in ("in", "kept", "dropped", "errored")] == [10, 6, 3, 1]
        assert first["errors"] == [("empty text", 1)]
        (scoring,) = first["scorings"]
        assert [scoring[name] for name in ("score_column", "dtype", "backend")] == ["score", "float32", "padded"]
        assert (scoring["bins_per_unit"], scoring["rows_by_bin"]) == (4, [(-2, 1), (5, 2), (12, 4), (15, 2)])
        assert dict(first["versions"]) == {"torch": "2.11.0", "shardsift": "0.1.0"}
        assert first["started_at"].isoformat() == "2023-11-14T22:13:20.500000+00:00"
        assert first["worker"] == "w1@host/7"
        assert (scoring["parity_rows"], scoring["parity_flipped_share"]) == (16, 0.0)

    def test_it_names_what_lies_beside_it(self, manifest: pa.Table, out: Path) -> None:
        for line in manifest.to_pylist():
            for kind in ("data", "scores"):
                content = (out / line[f"{kind}_path"]).read_bytes()
                assert len(content) == line[f"{kind}_size_bytes"]
                assert hashlib.sha256(content).hexdigest() == line[f"{kind}_sha256"]

    def test_it_carries_the_spec_and_the_mark(
        self, manifest: pa.Table, ledger: Ledger, spec: RunSpec, out: Path
    ) -> None:
        assert RunSpec.from_json(manifest.schema.metadata[b"shardsift.spec"]) == disclosed_spec(spec)
        assert str(out.parent) not in manifest.schema.metadata[b"shardsift.spec"].decode()
        assert Mark.read_from(out / MANIFEST_PATH) == Mark.of(spec.run_id, list(ledger.receipts(spec.run_id)))


class TestCard:
    def test_the_viewer_finds_both_configs(self, ledger: Ledger, spec: RunSpec, out: Path) -> None:
        do(ledger, spec, A, B, C)
        finalize_run(ledger, spec.run_id, without_failed=False)

        card = front_matter((out / "README.md").read_text())

        assert card["configs"] == [
            {
                "config_name": "default",
                "data_files": [{"split": "train", "path": "data/**/*.parquet"}],
                "default": True,
            },
            {"config_name": "scores", "data_files": [{"split": "train", "path": "scores/**/*.parquet"}]},
        ]
        assert card["source_datasets"] == ["HuggingFaceFW/fineweb"]
        assert card["size_categories"] == ["n<1K"]
        for config in card["configs"]:
            assert len(list(out.glob(config["data_files"][0]["path"]))) == 3

    def test_it_tells_source_model_filter_and_rows(self) -> None:
        spec = a_spec()

        text = dataset_card(spec, [a_receipt(spec.run_id, shard) for shard in (A, B)]).decode()

        dataset = "[HuggingFaceFW/fineweb](https://huggingface.co/datasets/HuggingFaceFW/fineweb)"
        assert f"| Source | {dataset}, `{spec.input_uris[0]}` at revision `0123abc` |" in text
        model = "[HuggingFaceFW/fineweb-edu-classifier](https://huggingface.co/HuggingFaceFW/fineweb-edu-classifier)"
        assert f"| Model | {model} at revision `4567def` |" in text
        assert '| Filter | `"score" >= 3.0` |' in text
        assert "| Rows in | 20 |" in text
        assert "| Kept | 12 (60.0%) |" in text
        assert "| Dropped | 6 (30.0%) |" in text
        assert "| Not scored | 2 |" in text.replace(" (the `error` column of `scores/` says why)", "")
        assert "`int_score`: the score clipped to 0…5 and rounded" in text

    def test_a_local_models_folder_is_not_told(self) -> None:
        model = Model(name="/home/me/secret/mine", revision="sha256-abc", labels=("good", "bad"))

        text = dataset_card(a_spec(model=model, int_score=False), [a_receipt("r", A)]).decode()

        assert "/home/me" not in text
        assert "`mine` at revision `sha256-abc`" in text
        assert "`score_label`: the label of that output, of: good, bad." in text

    @pytest.mark.parametrize(
        ("changes", "title"),
        [
            ({}, "# fineweb CC-MAIN-2024-10, filtered with fineweb-edu-classifier"),
            ({"where": None}, "# fineweb CC-MAIN-2024-10, scored with fineweb-edu-classifier"),
            ({"crawl": None, "input_uris": ("/home/me/web/*.parquet",)}, "# web, filtered with fineweb-edu-classifier"),
            ({"crawl": None, "input_uris": ("/home/me/web/a.parquet",)}, "# a, filtered with fineweb-edu-classifier"),
            ({"crawl": None, "input_uris": ("*.parquet",)}, "# Parquet files, filtered with fineweb-edu-classifier"),
        ],
    )
    def test_its_title_says_what_was_filtered_with_what(self, changes: dict[str, Any], title: str) -> None:
        text = dataset_card(a_spec(**changes), [a_receipt("r", A)]).decode()

        assert title in text.splitlines()
        assert front_matter(text)["pretty_name"] == title.removeprefix("# ")
        assert "/home/me" not in text

    def test_on_the_hub_it_says_how_to_load_the_data(self) -> None:
        on_hub = dataset_card(a_spec(output_uri="hf://datasets/me/kept"), [a_receipt("r", A)]).decode()
        in_a_folder = dataset_card(a_spec(output_uri="/home/me/kept"), [a_receipt("r", A)]).decode()

        assert 'load_dataset("me/kept", split="train", streaming=True)' in on_hub
        assert "load_dataset" not in in_a_folder

    def test_it_says_whose_licence_and_language_the_texts_have(self) -> None:
        text = dataset_card(a_spec(), [a_receipt("r", A)]).decode()

        assert "Their licence and language are the source's." in text

    def test_it_tells_how_the_scores_are_spread_and_what_a_threshold_would_keep(self) -> None:
        text = dataset_card(a_spec(), [a_receipt("r", shard) for shard in (A, B)]).decode()

        lines = text.partition("```text\n")[2].partition("\n```")[0].splitlines()
        assert lines[0].split() == ["from", "rows", "share", "this", "or", "more"]
        assert lines[1].split() == ["-0.50", "2", "11.1%", "100.0%", "█" * 8]
        assert lines[2].split() == ["-0.25", "0", "0.0%", "88.9%"]
        assert lines[-4].split() == ["3.00", "8", "44.4%", "66.7%", "█" * 32]
        assert lines[-1].split() == ["3.75", "4", "22.2%", "22.2%", "█" * 16]

    def test_scores_far_apart_get_few_lines(self) -> None:
        far_apart = Histogram(bins_per_unit=4, rows_by_bin={-400: 1, 0: 5, 399: 2})

        text = dataset_card(a_spec(), [with_histogram(far_apart)]).decode()

        lines = text.partition("```text\n")[2].partition("\n```")[0].splitlines()[1:]
        assert len(lines) <= 24
        assert sum(int(line.split()[1]) for line in lines) == 8
        assert lines[0].split()[0] == "-112.00"

    def test_where_no_row_has_a_score_it_shows_none(self) -> None:
        nothing = Histogram(bins_per_unit=4, rows_by_bin={})

        text = dataset_card(a_spec(), [with_histogram(nothing)]).decode()

        assert "## Scores" not in text

    def test_a_run_may_ask_for_its_paths_to_be_published(self) -> None:
        spec = a_spec(crawl=None, input_uris=("/home/me/web/*.parquet",), publish_paths=True)

        assert "| Source | `/home/me/web/*.parquet` at" in dataset_card(spec, [a_receipt("r", A)]).decode()

    def test_it_tells_the_worst_that_the_trials_of_the_workers_found(self) -> None:
        receipts = [
            scored_by(A, parity=Parity(rows=1024, max_error=0.001, p999_error=0.0009, flipped_share=0.0)),
            scored_by(
                B, parity=Parity(rows=16, max_error=0.02, p999_error=0.02, flipped_share=0.0625), dtype="bfloat16"
            ),
            scored_by(C, parity=None),
        ]

        text = dataset_card(a_spec(), receipts).decode()

        assert "| Scored in | bfloat16 on cpu (padded), float32 on cpu (padded) |" in text
        assert (
            "| Against float32 | logits of 16 sample texts within 0.02; "
            "1 of 16 texts on the other side of the filter |" in text
        )

    def test_it_does_not_claim_a_trial_that_was_left_out(self) -> None:
        assert "| Against float32 | not tried |" in dataset_card(a_spec(), [scored_by(A, parity=None)]).decode()

    @pytest.mark.parametrize(
        ("function", "says"),
        [("none", "raw logit"), ("sigmoid", "logit through a sigmoid"), ("softmax", "probability by softmax")],
    )
    def test_it_tells_what_made_the_logits_scores(self, function: str, says: str) -> None:
        assert says in dataset_card(a_spec(function_to_apply=function), [a_receipt("r", A)]).decode()

    @pytest.mark.parametrize("where", ["text || id like 'a%'", "score >= 3\n  and id <> 'x|y'", None])
    def test_no_filter_breaks_the_table(self, where: str | None) -> None:
        text = dataset_card(a_spec(where=where), [a_receipt("r", A)]).decode()

        (line,) = (line for line in text.splitlines() if line.startswith("| Filter |"))
        assert line.replace("\\|", "").count("|") == 3
        assert line.endswith(" |")

    @pytest.mark.parametrize(
        ("kept", "size"),
        [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (10**9, "1B<n<10B"), (10**12, "100B<n<1T")],
    )
    def test_its_size_is_that_of_the_kept_rows(self, kept: int, size: str) -> None:
        receipt = a_receipt("r", A, rows_in=kept, rows_kept=kept, rows_dropped=0, rows_errored=0)

        assert front_matter(dataset_card(a_spec(), [receipt]).decode())["size_categories"] == [size]

    def test_a_source_outside_the_hub_is_no_source_dataset(self) -> None:
        card = front_matter(dataset_card(a_spec(input_uris=("/data",)), [a_receipt("r", A)]).decode())

        assert "source_datasets" not in card


def scored_by(shard: Shard, **changes: Any) -> Receipt:
    return replace(a_receipt("r", shard), scorings=(a_scoring_receipt(**changes),))


def with_histogram(histogram: Histogram) -> Receipt:
    return scored_by(A, histogram=histogram)


def front_matter(card: str) -> dict[str, object]:
    _, header, _ = card.split("---\n", 2)
    return dict(yaml.safe_load(header))


class TestSweeping:
    @pytest.fixture
    def sweeper(self, app: Celery, ledger: Ledger, settings: Settings) -> Sweeper:
        return Sweeper(app, ledger, settings)

    def test_waiting_shards_are_sent_once(self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper) -> None:
        sweeper.sweep()
        sweeper.sweep()

        assert queue_length(ledger.redis, spec.queue) == 3

    def test_a_lease_that_ran_out_is_sent_again(
        self, ledger: Ledger, settings: Settings, spec: RunSpec, sweeper: Sweeper
    ) -> None:
        sweeper.sweep()
        ledger.redis.delete(*queue_lists(spec.queue))
        dead = Ledger.connect(settings.model_copy(update={"lease_seconds": 0.001}))
        assert isinstance(dead.claim(spec.run_id, A.name, "dead"), Claim)

        def sent_again() -> bool:
            sweeper.sweep()
            return queue_length(ledger.redis, spec.queue) == 1

        wait_until(sent_again, description="the lease runs out", seconds=5)
        assert ledger.counts(spec.run_id).running == 0
        assert claimed(ledger, spec, A).attempt == 2

    def test_publishing_is_asked_for_once(self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper) -> None:
        do(ledger, spec, A, B, C)

        sweeper.sweep()
        sweeper.sweep()

        (message,) = ledger.redis.lrange(FINALIZE_QUEUE, 0, -1)
        assert json.loads(message)["headers"]["task"] == FINALIZE_RUN

    def test_it_is_not_asked_for_again_while_the_asked_finalizer_is_at_work(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper
    ) -> None:
        do(ledger, spec, A, B, C)
        sweeper.sweep()
        ledger.redis.delete(FINALIZE_QUEUE)

        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 0

    @pytest.mark.parametrize("state", ["open", "failed", "published", "cancelled"])
    def test_it_is_not_asked_for_without_need(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper, state: str
    ) -> None:
        do(ledger, spec, A, B)
        match state:
            case "failed":
                fail(ledger, spec, C)
            case "published":
                do(ledger, spec, C)
                finalize_run(ledger, spec.run_id, without_failed=False)
            case "cancelled":
                do(ledger, spec, C)
                ledger.cancel(spec.run_id)

        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 0

    def test_it_is_asked_for_when_a_retried_shard_came_after_the_publication(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper
    ) -> None:
        do(ledger, spec, A, B)
        fail(ledger, spec, C)
        finalize_run(ledger, spec.run_id, without_failed=True)
        ledger.retry(spec.run_id)
        do(ledger, spec, C)

        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 1

    def test_a_look_for_waves_is_asked_for_as_shards_are_done(
        self, app: Celery, ledger: Ledger, settings: Settings
    ) -> None:
        sweeper = Sweeper(app, ledger, settings.model_copy(update={"wave_shards": 2}))
        hub_run = on_the_hub(ledger, shards=6)
        sweeper.sweep()
        asked = [ledger.redis.llen(FINALIZE_QUEUE)]

        for number in range(5):
            done_on_the_hub(ledger, hub_run, number)
            sweeper.sweep()
            sweeper.sweep()
            asked.append(ledger.redis.llen(FINALIZE_QUEUE))

        assert asked == [
            0,
            1,
            1,
            2,
            2,
            3,
        ]  # the first check, because earlier ones may be forgotten; then every second

    @pytest.mark.parametrize("state", ["open", "failed", "cancelled"])
    def test_a_look_for_waves_is_asked_for_as_time_passes(
        self, app: Celery, ledger: Ledger, settings: Settings, state: str
    ) -> None:
        sweeper = Sweeper(app, ledger, settings.model_copy(update={"wave_seconds": 0.2}))
        hub_run = on_the_hub(ledger, shards=2)
        done_on_the_hub(ledger, hub_run, 0)
        if state == "failed":
            fail(ledger, hub_run, a_shard("hub/1"))
        elif state == "cancelled":
            ledger.cancel(hub_run.run_id)

        def asked_twice() -> bool:
            sweeper.sweep()
            return ledger.redis.llen(FINALIZE_QUEUE) == 2

        wait_until(asked_twice, description="a second look is asked for", seconds=5)

    def test_a_run_on_the_hub_that_is_done_is_published_without_a_wave(self, ledger: Ledger, sweeper: Sweeper) -> None:
        hub_run = on_the_hub(ledger, shards=1)
        done_on_the_hub(ledger, hub_run, 0)

        sweeper.sweep()
        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 1

    def test_a_cancelled_run_is_left_alone(self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper) -> None:
        ledger.cancel(spec.run_id)

        sweeper.sweep()

        assert queue_length(ledger.redis, spec.queue) == 0

    def test_a_sweeper_of_one_run_leaves_others_alone(
        self, app: Celery, ledger: Ledger, settings: Settings, spec: RunSpec
    ) -> None:
        other = a_spec(output_uri="memory://other", dtype="float16")
        ledger.create_run(other, [A], now=2.0)

        Sweeper(app, ledger, settings, only_run=other.run_id).sweep()

        assert (queue_length(ledger.redis, spec.queue), queue_length(ledger.redis, other.queue)) == (0, 1)

    def test_a_run_that_cannot_be_read_stops_no_other(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper, caplog: pytest.LogCaptureFixture
    ) -> None:
        newer = a_spec(output_uri="memory://newer")
        ledger.create_run(newer, [A], now=2.0)
        ledger.redis.hset(f"shardsift:run:{newer.run_id}", "spec", '{"of": "another release"}')

        sweeper.sweep()

        assert queue_length(ledger.redis, spec.queue) == 3
        assert f"The sweep of run {newer.run_id} failed" in caplog.text

    def test_two_sweepers_send_each_shard_once(
        self, app: Celery, ledger: Ledger, settings: Settings, spec: RunSpec
    ) -> None:
        sweepers = [Sweeper(app, ledger, settings) for _ in range(2)]
        for sweeper in sweepers:
            sweeper.start()

        wait_until(lambda: queue_length(ledger.redis, spec.queue) >= 3, description="all shards are sent", seconds=10)
        for sweeper in sweepers:
            sweeper.stop()

        assert queue_length(ledger.redis, spec.queue) == 3

    def test_a_sweeper_survives_a_restart_of_redis(
        self, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = tmp_path_factory.mktemp("r")
        settings = Settings(redis_url=f"unix://{folder}/s", sweep_seconds=0.05)
        spec = a_spec()
        with redis_at(folder):
            wait_until(lambda: answers(folder), description="Redis answers", seconds=10)
            ledger = Ledger.connect(settings)
            sweeper = Sweeper(make_app("test", settings), ledger, settings)
            sweeper.start()
        with caplog.at_level(logging.WARNING):
            wait_until(lambda: "Redis does not answer" in caplog.text, description="a sweep fails", seconds=10)

        with redis_at(folder):
            wait_until(lambda: answers(folder), description="Redis answers again", seconds=10)
            ledger.create_run(spec, [A, B], now=1.0)
            wait_until(lambda: queue_length(ledger.redis, spec.queue) == 2, description="the sweep goes on", seconds=10)
            sweeper.stop()


def on_the_hub(ledger: Ledger, *, shards: int) -> RunSpec:
    """A run of `shards` shards that would be published to the Hub."""
    spec = a_spec(output_uri="hf://datasets/org/out")
    ledger.create_run(spec, [a_shard(f"hub/{number}") for number in range(shards)], now=1.0)
    return spec


def done_on_the_hub(ledger: Ledger, spec: RunSpec, number: int) -> None:
    shard = a_shard(f"hub/{number}")
    ledger.complete(claimed(ledger, spec, shard), a_receipt(spec.run_id, shard))


def answers(folder: Path) -> bool:
    with redis.Redis(unix_socket_path=f"{folder}/s") as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def redis_at(folder: Path) -> AbstractContextManager[Child]:
    """A Redis on a socket that stays the same."""
    command = [find_redis_server(), "--port", "0", "--unixsocket", f"{folder}/s", "--dir", str(folder), "--save", ""]
    return running(command, log=folder / "log", stop_seconds=10)
