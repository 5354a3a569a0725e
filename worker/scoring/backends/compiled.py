"""Compile a model in place with torch.compile. If that cannot work here, log a warning and leave the model as it is."""

import logging

import torch

logger = logging.getLogger(__name__)


def compile_in_place(module: torch.nn.Module, device: torch.device) -> None:
    """The model compiles on its first call, for all input sizes at once. That takes a minute or two."""
    if not _compiles(device):
        return
    import torch._inductor.config as inductor

    inductor.freezing = device.type == "cpu"  # packs the weights for the CPU's matrix units
    module.compile(dynamic=True)


def is_compiled(module: torch.nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None


def _compiles(device: torch.device) -> bool:
    """Compile a trivial function. Only a trial shows whether the C++ compiler, Triton and their dependencies work."""
    try:
        torch.compile(torch.sin)(torch.ones(8, device=device))
    except Exception as error:  # each missing part raises its own exception type
        reason = str(error).strip().splitlines()
        logger.warning("Continuing without --compile: %s", reason[0] if reason else type(error).__name__)
        return False
    return True
