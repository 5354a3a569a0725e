"""A training of the fleet whose model goes to a repository of the Hub: reserved when it is sent, and known when it is there."""

from itertools import count
from pathlib import Path

import pytest

from fleet.broker import make_app
from fleet.errors import UsageError
from fleet.ledger import Claim, Ledger, Refusal
from fleet.receipt import Provenance
from fleet.settings import Settings
from fleet.storage.model_output import model_output
from fleet.training.data import training_data
from fleet.training.model import MARK, TrainedModel
from fleet.training.options import TrainOptions
from fleet.training.receipt import TrainReceipt
from fleet.training.task import WHOLE
from fleet.training.trained import model_of
from hubserver import HubServer
from producer.training.enqueue import enqueue_training
from producer.training.plan import plan_training
from producer.training.status import training_status
from support import hub_fleet
from support.hub_client import write
from support.hub_fleet import Client
from support.labelled import write_topics

hub_fleets, running_fleet, running_hub = hub_fleet.hub_fleets, hub_fleet.running_fleet, hub_fleet.running_hub
hub, worker = hub_fleet.hub, hub_fleet.worker
_numbers = count()

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def repo() -> str:
    """The name of a repository that does not exist."""
    return f"worker/trained-{next(_numbers)}"


@pytest.fixture
def options(repo: str, tmp_path: Path) -> TrainOptions:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    data = write_topics(tmp_path / "topics.parquet", rows=30)
    return TrainOptions(data=str(data), label_column="topic", base_model=str(tmp_path / "base"), output=f"hf://{repo}")


# --- what processes do that use the Hub --------------------------------------------------------------------------------


def enqueue(redis_url: str, options: TrainOptions) -> str:
    settings = Settings(redis_url=redis_url)
    ledger = Ledger.connect(settings).trainings
    with make_app("test", settings) as app:
        return enqueue_training(plan_training(options), ledger, app, resend_seconds=60)


def word(redis_url: str, training_id: str) -> str:
    return training_status(Ledger.connect(Settings(redis_url=redis_url)).trainings, training_id).word


def publish(claim: Claim, folder: Path) -> None:
    """What a worker does at the end, without the model's weights."""
    model = TrainedModel(
        training_id=claim.run_id, rows=30, device="cpu", seconds=1.0, figures={}, lines=(("accuracy", "75.0%"),)
    )
    write(folder / "model.safetensors", b"weights" * 100)
    write(folder / MARK, model.to_json())
    model_output(claim.spec.spec.output_uri).store(folder, "abc")


def record(redis_url: str, claim: Claim) -> int:
    """What the next attempt does that finds the model. Returns the bytes of its files."""
    model, output = model_of(claim.spec.spec), model_output(claim.spec.spec.output_uri)
    assert model
    made = Provenance(worker="w1", attempt=1, device="cpu", versions={}, started_at=1.0, finished_at=2.0)
    receipt = TrainReceipt(output_uri="", size_bytes=output.size_bytes(), model=model, provenance=made)
    Ledger.connect(Settings(redis_url=redis_url)).trainings.complete(claim, receipt)
    return receipt.size_bytes


def claimed(ledger: Ledger, training_id: str) -> Claim:
    claim = ledger.trainings.claim(training_id, WHOLE, "w1@box/1")
    assert isinstance(claim, Claim)
    return claim


# --- the tests ---------------------------------------------------------------------------------------------------------


def test_the_repository_is_private_and_empty_before_a_worker_trains(
    hub: HubServer, worker: Client, ledger: Ledger, redis_url: str, options: TrainOptions, repo: str
) -> None:
    training_id = worker.call(enqueue, redis_url, options)

    assert hub.is_private(repo, "model")
    assert hub.files(repo, repo_type="model").keys() <= {".gitattributes"}
    assert worker.call(enqueue, redis_url, options) == training_id
    assert ledger.trainings.run_ids() == [training_id]


def test_a_token_that_may_not_write_is_told_before_anything_is_sent(
    hub: HubServer, worker: Client, ledger: Ledger, redis_url: str, options: TrainOptions
) -> None:
    with pytest.raises(UsageError, match="must be a model repository that HF_TOKEN can write"):
        worker.call(enqueue, redis_url, options, token=hub.token("reader", write=False))

    assert ledger.trainings.run_ids() == []


def test_a_repository_of_somebody_else_is_never_written(
    hub: HubServer, worker: Client, ledger: Ledger, redis_url: str, options: TrainOptions, repo: str, tmp_path: Path
) -> None:
    hub.create_repo(repo, repo_type="model")
    write(tmp_path / "theirs" / "README.md", b"# Theirs\n")
    hub.add_folder(repo, tmp_path / "theirs", repo_type="model")

    with pytest.raises(UsageError, match=f"hf://{repo} already holds files. Name another repository"):
        worker.call(enqueue, redis_url, options)

    assert ledger.trainings.run_ids() == []
    assert len(hub.commits(repo, repo_type="model")) == 2


def test_a_repository_with_the_model_of_another_training_is_refused(
    worker: Client, ledger: Ledger, redis_url: str, options: TrainOptions, repo: str, tmp_path: Path
) -> None:
    first = worker.call(enqueue, redis_url, options)
    worker.call(publish, claimed(ledger, first), tmp_path / "partial")
    other = TrainOptions(**{**vars(options), "seed": 1})

    with pytest.raises(UsageError, match=f"hf://{repo} has the model of another training. Name another --output"):
        worker.call(enqueue, redis_url, other)

    assert ledger.trainings.run_ids() == [first]


def test_a_model_that_was_committed_but_not_recorded_is_found(
    worker: Client, ledger: Ledger, redis_url: str, options: TrainOptions, tmp_path: Path
) -> None:
    training_id = worker.call(enqueue, redis_url, options)
    claim = claimed(ledger, training_id)
    worker.call(publish, claim, tmp_path / "partial")  # and then the worker dies

    assert worker.call(record, redis_url, claim) > 700

    assert worker.call(word, redis_url, training_id) == "done"
    assert worker.call(enqueue, redis_url, options) == training_id
    assert ledger.trainings.claim(training_id, WHOLE, "w2@box/2") is Refusal.DONE


def test_a_model_whose_files_were_deleted_is_trained_again(
    hub: HubServer, worker: Client, ledger: Ledger, redis_url: str, options: TrainOptions, repo: str, tmp_path: Path
) -> None:
    training_id = worker.call(enqueue, redis_url, options)
    claim = claimed(ledger, training_id)
    worker.call(publish, claim, tmp_path / "partial")
    worker.call(record, redis_url, claim)
    worker.call(delete_files, repo)
    assert worker.call(word, redis_url, training_id) == "damaged"

    worker.call(enqueue, redis_url, options)

    assert worker.call(word, redis_url, training_id) == "queued"
    worker.call(publish, claimed(ledger, training_id), tmp_path / "again")
    assert MARK in hub.files(repo, repo_type="model")


def test_data_on_the_hub_is_that_of_the_commit_at_which_it_was_enqueued(
    hub: HubServer, worker: Client, options: TrainOptions, repo: str, tmp_path: Path
) -> None:
    hub.create_repo(repo)
    for number in (0, 1):
        write_topics(tmp_path / "labelled" / "data" / f"part-{number}.parquet", rows=30, seed=number)
    commit = hub.add_folder(repo, tmp_path / "labelled")
    options = TrainOptions(**{**vars(options), "data": f"hf://datasets/{repo}"})
    plan = worker.call(plan_training, options)

    write_topics(tmp_path / "labelled" / "data" / "part-1.parquet", rows=30, seed=5)
    hub.add_folder(repo, tmp_path / "labelled")

    assert plan.data.uri == plan.training.spec.data_uri == f"hf://datasets/{repo}@{commit}/"
    assert plan.data.identity.startswith("files:2:")
    assert worker.call(training_data, plan.training.spec) == plan.data
    again = worker.call(plan_training, options)
    assert again.data.identity != plan.data.identity


def delete_files(repo: str) -> None:
    from huggingface_hub import HfApi

    HfApi().delete_files(repo, ["model.safetensors", MARK])
