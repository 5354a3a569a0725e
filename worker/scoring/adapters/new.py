"""Models of the type `new`, such as the WebOrganizer classifiers, in transformers' `gte`: the same network by another name.

transformers renames the weights itself. What is left is the config: NTK scaling of the rotary embedding divides the frequencies
of a larger base by a constant, which is transformers' linear scaling with that base.
Sources: modeling.py of https://huggingface.co/Alibaba-NLP/new-impl, docs/source/en/model_doc/gte.md of transformers.
"""

from collections.abc import Mapping
from typing import Any

import transformers

from worker.scoring.adapters.adapter import Adapter
from worker.scoring.errors import ModelError

_SAME = {
    "layer_norm_type": "layer_norm",
    "position_embedding_type": "rope",
    "logn_attention_scale": False,
    "pack_qkv": True,
}
_NOT_OF_GTE = {*_SAME, "auto_map", "model_type", "rope_theta", "rope_scaling", "logn_attention_clip1", "unpad_inputs"}
_DEFAULT_THETA = 10_000.0  # of the type `new`


def _config(config: Mapping[str, Any]) -> Any:
    _check_version()
    for name, value in _SAME.items():
        if config.get(name, value) != value:
            raise ModelError(f"its config.json says {name}={config[name]!r}, and transformers' gte has {value!r} only")
    kept = {name: value for name, value in config.items() if name not in _NOT_OF_GTE}
    return transformers.GteConfig(**kept, rope_parameters=_rope(config))


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    theta, scaling = float(config.get("rope_theta", _DEFAULT_THETA)), config.get("rope_scaling")
    if scaling is None:
        return {"rope_type": "default", "rope_theta": theta}
    if scaling.get("type") != "ntk" or scaling.get("mixed_b") is not None:
        raise ModelError(f"its config.json says rope_scaling={scaling!r}, and only ntk is supported")
    width = config["hidden_size"] // config["num_attention_heads"]
    factor = float(scaling["factor"])
    return {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / width)}


def _classifier() -> Any:
    _check_version()
    return transformers.GteForSequenceClassification


def _check_version() -> None:
    if not hasattr(transformers, "GteForSequenceClassification"):
        raise ModelError(f"transformers {transformers.__version__} has no gte; install a newer one")


NEW = Adapter(
    serves=lambda config: config.get("model_type") == "new",
    config=_config,
    classifier=_classifier,
    max_tokens=lambda config: int(config.max_position_embeddings),
)
