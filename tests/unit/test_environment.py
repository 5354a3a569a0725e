"""Variables of other programs do not reach the libraries that would read them in a process of ours."""

import os

import pytest

from shardsift.fleet.process.environment import is_for_others, leave_out_others


@pytest.mark.parametrize(
    "name",
    [
        *("CELERY_BROKER_URL", "CELERY_CONFIG_MODULE", "C_FORCE_ROOT", "DJANGO_SETTINGS_MODULE", "KOMBU_LOG_DEBUG"),
        *("FORKED_BY_MULTIPROCESSING", "_MP_FORK_LOGFILE_", "REMAP_SIGTERM", "PICKLE_PROTOCOL"),
        *("FLOWER_PORT", "prometheus_multiproc_dir", "HUGGINGFACE_CO_STAGING", "FSSPEC_HF_ENDPOINT", "TERMINAL_WIDTH"),
        *("NVIDIA_TF32_OVERRIDE", "DNNL_DEFAULT_FPMATH_MODE", "TORCHINDUCTOR_USE_FAST_MATH", "TORCH_COMPILE_DISABLE"),
        *("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "USE_HUB_KERNELS", "ACCELERATE_MIXED_PRECISION", "XLA_USE_BF16"),
    ],
)
def test_a_variable_of_another_program_is_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")

    leave_out_others()

    assert name not in os.environ


@pytest.mark.parametrize(
    "name",
    [
        *("REDIS_URL", "SHARDSIFT_MODEL", "HF_TOKEN", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
        *("HTTPS_PROXY", "FSSPEC_S3_ENDPOINT_URL", "RANK", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "COLUMNS"),
    ],
)
def test_a_variable_that_users_set_for_a_run_stays(name: str) -> None:
    assert not is_for_others(name)
