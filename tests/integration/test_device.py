"""The device for scoring is the requested one, or the worker refuses."""

import logging
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from shardsift.worker.scoring import ModelError
from shardsift.worker.scoring.device import choose_allocator, choose_device
from shardsift.worker.scoring.gpu_notes import GpuNotes
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


# --- the allocator --------------------------------------------------------------------------------------------------------


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Let processes that try an allocation fail if their setting has this word. Returns the log of their settings."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    log, program = tmp_path / "settings", tmp_path / "python"

    def fail_with(word: str) -> Path:
        refused = "echo RuntimeError: CUDA driver error: operation not supported >&2; exit 1"
        program.write_text(
            f"#!/bin/sh\necho $PYTORCH_ALLOC_CONF >> {log}\ncase $PYTORCH_ALLOC_CONF in *{word}*) {refused};; esac\n"
        )
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return log

    return fail_with


TRUE, FALSE = "expandable_segments:True", "expandable_segments:False"


@pytest.mark.parametrize(
    ("fails_with", "release", "chosen", "tried"),
    [
        ("nothing", "6.8.0", TRUE, [TRUE]),
        ("True", "6.8.0", FALSE, [TRUE, FALSE]),
        ("nothing", "6.6.87.2-microsoft-standard-WSL2", FALSE, [FALSE]),
        ("segments", "6.8.0", None, [TRUE, FALSE, TRUE, FALSE]),
    ],
    ids=["it works", "it fails", "on WSL", "nothing can be allocated now"],
)
def test_expandable_segments_are_used_where_an_allocation_with_them_works_which_is_tried_once(
    fails_with: str,
    release: str,
    chosen: str | None,
    tried: list[str],
    allocations: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    log = allocations(fails_with)
    monkeypatch.setattr(platform, "release", lambda: release)

    for _ in range(2):
        monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)  # as in another process
        choose_allocator(GpuNotes(folder=tmp_path / "gpu"))
        assert os.environ.get("PYTORCH_ALLOC_CONF") == chosen

    assert log.read_text().split() == tried


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_the_users_own_setting_of_the_allocator_stays(
    name: str, allocations: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = allocations("nothing")
    monkeypatch.setenv(name, "max_split_size_mb:128")

    choose_allocator(GpuNotes())

    ours = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    assert {other: os.environ[other] for other in ours if other in os.environ} == {name: "max_split_size_mb:128"}
    assert not log.exists()
