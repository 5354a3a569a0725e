"""What an adapter is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """How to load the weights of a repository into classes of transformers, or into a small class of ours.

    `classifier` returns a class with transformers' `from_pretrained`. It and `config` raise ModelError if this version of
    transformers, or a setting of the repository, is not supported.
    """

    serves: Callable[[Mapping[str, Any]], bool]  # whether a config.json asks for this adapter
    config: Callable[[Mapping[str, Any]], Any]  # config.json → the config of the class
    classifier: Callable[[], Any]
    max_tokens: Callable[
        [Any], int
    ]  # config of the class → tokens that the authors' code reads, special tokens included
