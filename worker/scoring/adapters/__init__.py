"""Classifiers whose repositories ask for code of their own. Small classes of ours load their weights; that code is never run."""

from collections.abc import Mapping
from typing import Any

from worker.scoring.adapters.adapter import Adapter
from worker.scoring.adapters.first_token import FIRST_TOKEN
from worker.scoring.adapters.new import NEW
from worker.scoring.adapters.two_heads import TWO_HEADS

_ADAPTERS = (FIRST_TOKEN, NEW, TWO_HEADS)


def adapter_of(config: Mapping[str, Any]) -> Adapter | None:
    """The adapter of a model with this config.json; None if transformers loads it without one."""
    return next((adapter for adapter in _ADAPTERS if adapter.serves(config)), None)
