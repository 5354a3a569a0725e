"""Labels of one's own, templates, windows and two models: a killed worker's shard has the same bytes as an undisturbed one."""

from pathlib import Path

import pytest

from support.fleet import Fleet
from support.injected_faults import InjectedFaults
from support.nli import nli_classifier
from support.outputs import data_digests, published_rows

SAVE = "shardsift.fleet.ledger.ledger:Ledger.save_scores"
READINGS = {
    "zero-shot": ("--labels", "climate change,food,code", "--where", "nli_label <> 'food'"),
    "windows": (
        "--max-tokens",
        "24",
        "--passages",
        "stride:16:mean",
        "--where",
        "nli_score_entailment > 0.3",
    ),
    "zero-shot in windows": (
        *("--labels", "climate change,food,code", "--multi-label"),
        *("--max-tokens", "48", "--passages", "stride:16", "--keep-all"),
    ),
    "finepdfs": ("--max-tokens", "24", "--passages", "finepdfs", "--where", "nli_score_entailment > 0.3"),
    "template": ("--text-column", "{url}\\n\\n{text}", "--max-tokens", "48", "--keep-all"),
}


@pytest.fixture(scope="module")
def nli(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nli_classifier(tmp_path_factory.mktemp("nli") / "model", "BERT")


def published(fleet: Fleet, shards: Path, output: Path, *reading: str, **models: Path) -> Path:
    named = [word for name, model in models.items() for word in ("--model", f"{name}={model}")]
    sent = fleet.producer("enqueue", *("--input", shards, *named, "--output", output, "--dtype", "float32", *reading))
    assert sent.returncode == 0, sent.stderr
    run_id = sent.stdout.strip()
    workers = {"SHARDSIFT_DTYPE": "float32", "SHARDSIFT_LEASE_SECONDS": "4"}
    with (
        fleet.finalizer(),
        fleet.worker(*models.values(), environment=workers),
        fleet.worker(*models.values(), name="w2", environment=workers),
    ):
        fleet.wait_until_published(run_id, seconds=240)
    return output


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())
def test_a_killed_workers_shard_has_the_bytes_of_an_undisturbed_run(
    reading: tuple[str, ...], fleet: Fleet, small_shards: Path, nli: Path, tmp_path: Path
) -> None:
    check(fleet, small_shards, tmp_path, *reading, nli=nli)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_so_has_that_of_two_models(
    fleet: Fleet, small_shards: Path, nli: Path, tiny_model: Path, tmp_path: Path
) -> None:
    where = ("--where", "nli_label <> 'neutral' or edu_score >= 3")

    check(fleet, small_shards, tmp_path, *where, nli=nli, edu=tiny_model)


def check(fleet: Fleet, small_shards: Path, tmp_path: Path, *reading: str, **models: Path) -> None:
    faults = InjectedFaults(tmp_path / "orders", window_rows=8)  # without the stand-in: only a model reads texts so
    fleet.environment |= faults.environment
    undisturbed = published(fleet, small_shards, tmp_path / "undisturbed", *reading, **models)
    faults.at(SAVE, "after", "kill", times=3)
    fleet.environment |= faults.environment

    disturbed = published(fleet, small_shards, tmp_path / "disturbed", *reading, **models)

    assert faults.fired() == 3
    assert data_digests(disturbed) == data_digests(undisturbed)
    assert len(published_rows(disturbed)) > 0
