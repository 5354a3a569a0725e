"""Each line of `worker doctor`, once right and once wrong: a stand-in for nvidia-smi, and a real small model."""

import json
from pathlib import Path

import pytest
import torch

from shardsift.fleet.checks import Result, Verdict, redis_check
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.scorers.kinds import resolve_model
from shardsift.worker.machine_doctor import gpu_checks, model_check, torch_check, worker_checks
from shardsift.worker.scoring.gpus import driver_cuda
from support.diagnoses import diagnosed, not_ok
from support.models import overflowing_classifier
from support.nvidia_smi import install_nvidia_smi, install_script
from support.processes import call_command
from support.records import a_shard, a_spec

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
HERE = Settings()


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the machine's nvidia-smi."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    return tmp_path / "bin"


def torch_line(settings: Settings = HERE) -> Verdict:
    found = diagnosed([torch_check(settings)])
    not_ok(found)
    return found["torch"]


# --- GPUs -------------------------------------------------------------------------------------------------------------


def gpu_line(settings: Settings = HERE) -> Verdict:
    found = diagnosed(gpu_checks(settings))
    not_ok(found)
    return found["gpu"]


def test_a_machine_without_nvidia_smi_is_a_warning_unless_the_cpu_is_meant(programs: Path) -> None:
    assert gpu_line().result is Result.WARNING
    assert gpu_checks(Settings(device="cpu")) == []
    install_nvidia_smi(programs, gpus=3)
    assert gpu_line() == Verdict(check="gpu", result=Result.OK, says="This process may use 3 GPUs.")


def test_a_driver_that_does_not_run_is_wrong(programs: Path) -> None:
    install_script(programs, "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not reach the driver.'; exit 9\n")

    line = gpu_line()

    assert line.result is Result.WRONG
    assert "could not reach the driver" in line.says


@pytest.mark.parametrize(
    ("header", "version"),
    [
        ("| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |", 12),
        ("| NVIDIA-SMI 595.10    KMD Version: 595.10    CUDA UMD Version: 13.2     |", 13),
        ("No devices were found", None),
    ],
)
def test_the_drivers_cuda_version_is_read(programs: Path, header: str, version: int | None) -> None:
    install_script(programs, f"#!/bin/sh\necho '{header}'\n")

    assert driver_cuda() == version


# --- torch --------------------------------------------------------------------------------------------------------------


@no_gpu
@pytest.mark.parametrize(
    ("driver", "of_torch", "says"),
    [
        ("12.4", None, "nvidia-smi lists 1 GPUs, but torch"),
        ("11.4", "12.8", "The driver supports CUDA 11, and torch"),
        ("12.4", "12.8", "finds no GPU"),
    ],
)
def test_torch_that_does_not_fit_the_gpu_or_its_driver_is_wrong_unless_the_cpu_is_meant(
    programs: Path, monkeypatch: pytest.MonkeyPatch, driver: str, of_torch: str | None, says: str
) -> None:
    install_nvidia_smi(programs, cuda=driver)
    monkeypatch.setattr(torch.version, "cuda", of_torch)

    line = torch_line()

    assert line.result is Result.WRONG
    assert says in line.says
    assert torch_line(Settings(device="cpu")).result is Result.OK


# --- the model ----------------------------------------------------------------------------------------------------------


def model_line(monkeypatch: pytest.MonkeyPatch, **fields: object) -> Verdict:
    """Without the check of torch, which it needs."""
    monkeypatch.setenv("SHARDSIFT_WORKER_MODELS", "")  # restored at the end: the check hands its models down
    settings = Settings(device="cpu", **fields)  # type: ignore[arg-type]
    check = model_check(settings)
    found = diagnosed([torch_check(settings), check])
    not_ok(found)
    return found["model"]


@pytest.mark.usefixtures("one_thread")
class TestTheModel:
    def test_a_model_that_scores_differently_in_the_chosen_precision_is_wrong(
        self, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = overflowing_classifier(tmp_path / "overflowing", tiny_model)

        line = model_line(monkeypatch, model=str(model), dtype="float16")

        assert line.result is Result.WRONG
        assert "scores differently in float16" in line.says
        assert "--dtype" in line.says

    def test_without_a_name_that_of_the_oldest_open_run_is_tried_and_told_with_its_parity(
        self, settings: Settings, ledger: Ledger, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SHARDSIFT_WORKER_MODELS", "")
        here = settings.model_copy(update={"device": "cpu"})

        none = diagnosed([redis_check(here), torch_check(here), model_check(here)])["model"]
        spec = a_spec(model=resolve_model("sequence-classifier", str(tiny_model), None), dtype="float32")
        ledger.create_run(spec, [a_shard()], now=0)
        found = diagnosed([redis_check(here), torch_check(here), model_check(here)])["model"]

        assert (none.result, none.mend) == (Result.WARNING, "Name one: worker doctor --model MODEL.")
        assert found.result is Result.OK
        assert f"{tiny_model} is loaded on cpu in float32, padded; its logits of 16 sample texts differ" in found.says

    def test_a_missing_or_broken_model_is_wrong(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))

        missing = model_line(monkeypatch, model=str(tmp_path / "none"))
        broken = model_line(monkeypatch, model=str(tmp_path))

        assert (missing.result, broken.result) == (Result.WRONG, Result.WRONG)
        assert "There is no model folder" in missing.says
        assert "does not load as a sequence classifier" in broken.says


# --- the rest -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_hub")
def test_without_a_redis_the_machine_is_checked_all_the_same(tmp_path: Path) -> None:
    settings = Settings(model="./none", device="cpu", scratch_dir=tmp_path)

    found = diagnosed(worker_checks(settings))

    assert list(found) == ["redis", "hub", "torch", "model"]
    assert found["redis"].result is Result.WARNING
    assert "Set REDIS_URL" in found["redis"].mend


@pytest.mark.usefixtures("no_hub")
def test_the_command_prints_json_and_exits_with_1_if_something_is_wrong(settings: Settings, tmp_path: Path) -> None:
    environment = {
        "REDIS_URL": settings.redis_url or "",
        "SHARDSIFT_DEVICE": "cpu",
        "SHARDSIFT_SCRATCH_DIR": str(tmp_path),
    }

    done = call_command("worker", "doctor", "--json", "--model", tmp_path / "none", environment=environment)

    results = {line["check"]: line["result"] for line in json.loads(done.stdout)}
    assert done.returncode == 1
    assert (results["redis"], results["model"]) == ("ok", "wrong")
