"""torch.compile, in place. Where it cannot work the model runs as it is, and a warning says so."""

import logging

import torch

logger = logging.getLogger(__name__)


def compile_in_place(module: torch.nn.Module, device: torch.device) -> None:
    """Compile at the first call, for all sizes at once, which takes a minute or two."""
    if not _compiles(device):
        return
    import torch._inductor.config as inductor

    inductor.freezing = device.type == "cpu"  # packs the weights for the CPU's matrix units
    module.compile(dynamic=True)


def is_compiled(module: torch.nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None


def _compiles(device: torch.device) -> bool:
    """Try it on a trifle: whether there is a C++ compiler, Triton, and all they need, only a trial tells."""
    try:
        torch.compile(torch.sin)(torch.ones(8, device=device))
    except Exception as error:  # each missing part fails in its own way
        reason = str(error).strip().splitlines()
        logger.warning("Going on without --compile: %s", reason[0] if reason else type(error).__name__)
        return False
    return True
