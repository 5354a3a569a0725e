"""Run classifiers that have the same encoder at once: the encoder one time, and then the head of each.

Such classifiers are heads that were trained on one frozen encoder, such as FineWeb-Edu's and NeMo Curator's on
snowflake-arctic-embed-m.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from worker.scoring.backends import Backend
from worker.scoring.backends.cpu import plain_weights
from worker.scoring.backends.packed import Packed
from worker.scoring.backends.padded import Padded, is_compiled
from worker.scoring.tokenizing.tokens import Tokens


def shared_parts(backends: Sequence[Backend]) -> list[str]:
    """The paths of the modules that all models have in common: the whole encoder, or all of it but its pooler.

    Empty if their encoders differ. A pooler belongs to the head that it was trained with.
    """
    models = [backend.model for backend in backends if isinstance(backend, (Padded, Packed))]
    if len(models) < len(backends) or any(map(is_compiled, models)) or len({type(model) for model in models}) > 1:
        return []
    first, *others = models
    parts = [first.base_model_prefix]
    if getattr(first.base_model, "pooler", None) is not None:
        names = [name for name, _ in first.base_model.named_children() if name != "pooler"]
        parts = [f"{first.base_model_prefix}.{name}" for name in names]
    are_equal = all(
        _have_equal_weights(first.get_submodule(part), other.get_submodule(part)) for part in parts for other in others
    )
    return parts if are_equal else []


def _have_equal_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(
        tensor.dtype == theirs[name].dtype and torch.equal(plain_weights(tensor), plain_weights(theirs[name]))
        for name, tensor in ours.items()
    )


def hold_once(backends: Sequence[Backend], parts: Sequence[str]) -> None:
    """Let go of further copies of the weights."""
    first, *others = [backend.model for backend in backends if isinstance(backend, (Padded, Packed))]
    for other in others:
        for part in parts:
            other.set_submodule(part, first.get_submodule(part))


def joint_backend(backends: Sequence[Backend], parts: Sequence[str]) -> Backend:
    """A backend with the logits of all, side by side. The `parts` run for the first only."""
    first = backends[0]
    if isinstance(first, Packed):
        return _JointPacked(parts=tuple(backend for backend in backends if isinstance(backend, Packed)))
    assert isinstance(first, Padded)
    return replace(
        first, model=_JointModel([backend.model for backend in backends if isinstance(backend, Padded)], parts)
    )


@dataclass(frozen=True, kw_only=True)
class _JointPacked:
    """Packed classifiers with the encoder of the first."""

    parts: tuple[Packed, ...]

    @property
    def name(self) -> str:
        return self.parts[0].name

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        states = self.parts[0].states(batch)
        return torch.cat([part.head_logits(*states) for part in self.parts], dim=1)


class _JointModel(torch.nn.Module):
    """Calls each model in turn. The modules that they have in common run for the first, and the others get its results."""

    def __init__(self, models: Sequence[Any], parts: Sequence[str]) -> None:
        super().__init__()
        shared = {part: _RunOnce(models[0].get_submodule(part)) for part in parts}
        self.models = torch.nn.ModuleList(_with_modules(model, shared) for model in models)
        self._shared = list(shared.values())

    def forward(self, **inputs: Any) -> SequenceClassifierOutput:
        try:
            logits = [model(**inputs).logits.float() for model in self.models]
        finally:
            for module in self._shared:
                module.forget()
        return SequenceClassifierOutput(logits=torch.cat(logits, dim=1))


class _RunOnce(torch.nn.Module):
    """Keeps the result of a call until `forget`, for further calls with the same first tensor.

    Of the models of one batch, all other inputs follow from the first tensor.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        self.forget()

    def forget(self) -> None:
        self._input: torch.Tensor | None = None
        self._output: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        first = next(value for value in (*args, *kwargs.values()) if torch.is_tensor(value))
        if first is not self._input:
            self._input, self._output = first, self.module(*args, **kwargs)
        return self._output


def _with_modules(model: torch.nn.Module, modules: Mapping[str, torch.nn.Module]) -> torch.nn.Module:
    """A copy of a model that has the same weights, with its encoder or parts of that replaced."""
    twin = _twin(model)
    for path, module in modules.items():
        encoder, _, part = path.partition(".")
        if not part:
            setattr(twin, encoder, module)
            continue
        if getattr(twin, encoder) is getattr(model, encoder):
            setattr(twin, encoder, _twin(getattr(model, encoder)))
        setattr(getattr(twin, encoder), part, module)
    return twin


def _twin(module: torch.nn.Module) -> torch.nn.Module:
    """A module with the same weights and children, which can be replaced in one without the other."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin
