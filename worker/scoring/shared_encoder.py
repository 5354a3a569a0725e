"""Run classifiers that have the same encoder together: the encoder once, then the head of each.

Such classifiers were trained as heads on one frozen encoder, for example FineWeb-Edu's and NeMo Curator's on
snowflake-arctic-embed-m.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from shardsift.worker.scoring.backends import Backend
from shardsift.worker.scoring.backends.cpu import plain_weights
from shardsift.worker.scoring.backends.packed import Packed
from shardsift.worker.scoring.backends.padded import Padded, is_compiled
from shardsift.worker.scoring.tokenizing.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class JointBackend:
    """Computes the logits of several classifiers side by side. Modules that they share run once for each batch."""

    backends: tuple[Padded | Packed, ...]
    parts: tuple[str, ...]  # paths of the shared modules: the whole encoder, or all of it except its pooler

    @property
    def name(self) -> str:
        return self.backends[0].name

    def logits(self, batch: Tokens) -> torch.Tensor:
        with self._parts_run_once():
            return torch.cat([backend.logits(batch) for backend in self.backends], dim=1)

    def hold_once(self) -> None:
        """Give all models the first model's copy of the shared modules, which frees the other copies."""
        first, *others = (backend.model for backend in self.backends)
        for other in others:
            for part in self.parts:
                other.set_submodule(part, first.get_submodule(part))

    @contextmanager
    def _parts_run_once(self) -> Iterator[None]:
        """Compute each of `parts` once during a block: the first model computes it, and the others reuse its result."""
        replaced = []
        for part in self.parts:
            results: list[Any] = []
            for module in {backend.model.get_submodule(part) for backend in self.backends}:
                module.forward = _first_result(module.forward, results)
                replaced.append(module)
        try:
            yield
        finally:
            for module in replaced:
                del module.forward


def joint_backend(backends: Sequence[Backend]) -> JointBackend | None:
    """Make the backend of models whose encoders have equal weights. Returns None if they differ.

    Poolers may differ, because each is trained together with its head. Also returns None if a model is compiled, or
    can only run batches of texts of equal length.
    """
    plain = tuple(one for one in backends if isinstance(one, Packed) or (isinstance(one, Padded) and not one.by_length))
    models = [backend.model for backend in plain]
    if len(models) < len(backends) or any(map(is_compiled, models)) or len({type(model) for model in models}) > 1:
        return None
    first, *others = models
    parts: tuple[str, ...] = (first.base_model_prefix,)
    if getattr(first.base_model, "pooler", None) is not None:
        names = [name for name, _ in first.base_model.named_children() if name != "pooler"]
        parts = tuple(f"{first.base_model_prefix}.{name}" for name in names)
    are_equal = all(
        _have_equal_weights(first.get_submodule(part), other.get_submodule(part)) for part in parts for other in others
    )
    return JointBackend(backends=plain, parts=parts) if are_equal else None


def _have_equal_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(
        tensor.dtype == theirs[name].dtype and torch.equal(plain_weights(tensor), plain_weights(theirs[name]))
        for name, tensor in ours.items()
    )


def _first_result(forward: Callable[..., Any], results: list[Any]) -> Callable[..., Any]:
    def computed_once(*args: Any, **kwargs: Any) -> Any:
        if not results:
            results.append(forward(*args, **kwargs))
        return results[0]

    return computed_once
