"""Variables of other programs do not reach the libraries that would read them in a process of ours."""

import ast
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from shardsift.fleet.process.environment import is_for_others, leave_out_others

_READERS = (
    *("celery", "kombu", "billiard", "flower", "redis"),
    *("prometheus_client", "typer", "fsspec", "duckdb", "pyarrow"),
)
# What a library reads and we leave: of the terminal and the system, or without effect on a run.
_LEFT = {"TERM", "ITERM_PROFILE", "PWD", "COMP_CWORD", "COMP_WORDS", "XDG_CONFIG_HOME", "FORCE_COLOR", "PY_COLORS"}
_LEFT |= {"GITHUB_ACTIONS", "TYPER_STANDARD_TRACEBACK", "TYPER_USE_RICH", "PYDANTIC_DISABLE_PLUGINS"}
_LEFT |= {"_TYPER_COMPLETE_ARGS", "_TYPER_COMPLETE_FISH_ACTION", "_TYPER_COMPLETE_WORD_TO_COMPLETE"}
_LEFT |= {
    "_TYPER_FORCE_DISABLE_TERMINAL",
    "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION",
    "_TYPER_STANDARD_TRACEBACK",
    "NUMBER_OF_PROCESSORS",
}
_LEFT |= {"PROMETHEUS_DISABLE_CREATED_SERIES", "PROMETHEUS_LEGACY_NAME_VALIDATION", "FSSPEC_CONFIG_DIR", "NO_WORKER"}
_LEFT |= {"ARROW_HOME", "ARROW_PRE_0_15_IPC_FORMAT", "ARROW_PRE_1_0_METADATA_VERSION", "PKG_CONFIG"}
_LEFT |= {"HTTP_ACCEPT", "HTTP_ACCEPT_ENCODING", "PATH_INFO", "QUERY_STRING", "REQUEST_METHOD"}  # of a WSGI request
_OTHER_TRANSPORTS = ("SLMQ", "SL_", "PUBSUB_")  # of kombu, of which we use Redis


def _names_read_by(library: str) -> Iterator[str]:
    """The variables that a library's own code reads by a literal name, outside its tests."""
    folder = Path(str(import_module(library).__file__)).parent
    for file in folder.rglob("*.py"):
        if {"tests", "testing"} & set(file.relative_to(folder).parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("environ.get", "getenv")):
                name: ast.AST = node.args[0]
            elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
                name = node.slice
            else:
                continue
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isupper():
                yield name.value


@pytest.mark.parametrize("library", _READERS)
def test_each_variable_that_a_library_reads_is_left_out_or_known_to_be_harmless(library: str) -> None:
    names = {name for name in _names_read_by(library) if not name.startswith(_OTHER_TRANSPORTS)}

    assert {name for name in names if not is_for_others(name)} <= _LEFT


@pytest.mark.parametrize(
    "name",
    [
        *(
            "CELERY_BROKER_URL",
            "C_FORCE_ROOT",
            "DJANGO_SETTINGS_MODULE",
            "FORKED_BY_MULTIPROCESSING",
            "PICKLE_PROTOCOL",
        ),
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
