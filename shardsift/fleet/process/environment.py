"""Remove environment variables that are meant for other programs, before libraries read them in our processes.

For example, hosts of Airflow or Django often set CELERY_BROKER_URL, and training launchers set
ACCELERATE_MIXED_PRECISION. Such variables could redirect our messages, or change the scores or the output of a command.
"""

import os
import re
import sys

# By library. Variables that users set for a run stay: HF_…, CUDA_VISIBLE_DEVICES, threads, caches, proxies, AWS_….
_OTHERS = re.compile(
    "|".join(
        (
            "CELERY_.*|C_[A-Z_]+|MP_LOG|MP_MAIN_FILE|NOSETPS|USE_FAST_LOCALS|TIMER_DEBUG|AUTOSCALE_KEEPALIVE|EVENTLET_NOBLOCK",
            "KOMBU_.*|DISABLE_TRACEBACKS|PICKLE_PROTOCOL",
            # billiard: a command that is started by a Celery task inherits these.
            "REMAP_SIGTERM|FORKED_BY_MULTIPROCESSING|MULTIPROCESSING_FORKING_DISABLE|_MP_FORK_.*|DJANGO_.*",
            "FLOWER_.*",  # Kubernetes sets FLOWER_PORT in each pod if there is a service called flower
            "(?i:PROMETHEUS_MULTIPROC_DIR)",
            "HUGGINGFACE_CO_STAGING",
            "FSSPEC_(HF|FILE|LOCAL)(_.*)?",  # variables for buckets stay
            "TERMINAL_WIDTH",  # typer; COLUMNS has the same effect
            # These change number formats, kernels or code without the knowledge of the parity gate and the run's spec.
            "NVIDIA_TF32_OVERRIDE|(DNNL|ONEDNN)_DEFAULT_FPMATH_MODE|XLA_(USE|DOWNCAST)_BF16",
            "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|TORCH_FORCE_(NO_)?WEIGHTS_ONLY_LOAD|TORCH_DEVICE_BACKEND_AUTOLOAD",
            "TORCHINDUCTOR_(?!CACHE_DIR|COMPILE_THREADS).*|TORCHDYNAMO_.*|TORCH_COMPILE_.*|PYTORCH_JIT.*|TRITON_INTERPRET",
            "USE_HUB_KERNELS|TRANSFORMERS_(SDPA_FORCE_GQA|DISABLE_TORCH_CHECK)",
            "(ACCELERATE|FSDP|MEGATRON_LM|PARALLELISM_CONFIG|FP8)_.*",  # a launcher's RANK and WORLD_SIZE stay
        )
    )
)


def is_for_others(name: str) -> bool:
    return _OTHERS.fullmatch(name) is not None


def leave_out_others() -> None:
    """Remove environment variables that are meant for other programs, such as CELERY_BROKER_URL, from this process.

    Its child processes do not get them either. Call it before libraries load and read them.
    """
    for name in filter(is_for_others, list(os.environ)):
        del os.environ[name]


def keep_docstrings() -> None:
    """Restart this process without PYTHONOPTIMIZE if it is 2.

    Our help and transformers need the docstrings that it removes.
    """
    if sys.flags.optimize > 1 and "PYTHONOPTIMIZE" in os.environ:
        del os.environ["PYTHONOPTIMIZE"]
        os.execv(sys.executable, sys.orig_argv)
