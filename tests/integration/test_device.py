"""The device for scoring is the requested one, or the worker refuses."""

import logging
from pathlib import Path

import pytest
import torch

from shardsift.worker.scoring import ModelError
from shardsift.worker.scoring.device import choose_device
from support.nvidia_smi import install_nvidia_smi

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture(autouse=True)
def no_sign_of_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@no_gpu
@pytest.mark.parametrize("name", ["cuda", "cuda:3"])
def test_a_gpu_that_is_not_here_is_not_replaced_by_the_cpu(name: str) -> None:
    with pytest.raises(ModelError, match=f"There is no device {name} for torch .* finds 0 GPUs"):
        choose_device(name)


def test_the_cpu_is_used_if_it_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    assert choose_device("cpu").type == "cpu"


@no_gpu
def test_a_machine_without_a_gpu_scores_on_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    assert choose_device("auto").type in ("cpu", "mps")
    assert not caplog.messages


@no_gpu
@pytest.mark.parametrize("sign", ["nvidia-smi lists 1 GPUs", "CUDA_VISIBLE_DEVICES=0"])
def test_torch_with_cuda_refuses_a_machine_that_has_lost_its_gpu_and_torch_for_the_cpu_warns(
    sign: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if sign.startswith("nvidia-smi"):
        install_nvidia_smi(tmp_path)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(ModelError, match=f"{sign}, but torch .* finds no GPU.*SHARDSIFT_DEVICE=cpu"):
        choose_device("auto")
    monkeypatch.setattr(torch.version, "cuda", None)
    with caplog.at_level(logging.WARNING):
        assert choose_device("auto").type in ("cpu", "mps")

    assert sign in caplog.text
