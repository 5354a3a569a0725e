"""Read a model's config.json as transformers does, but without importing it. Checks the type of each value.

Values that transformers does not accept raise UsageError and no other exception.
"""

import json
import math
from pathlib import Path
from typing import Any

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.choices import Function

THRESHOLD = "shardsift_threshold"  # the lowest score of rows to keep, written by `worker train`
_DEFAULT_LABELS = 2  # as in transformers, if a config names no labels
_MOST_LABELS = 1_000_000
_TEXT_PARTS = ("text_encoder", "decoder", "generator", "text_config")  # as in transformers' `get_text_config`


def read_object(file: Path, name: str) -> dict[str, Any]:
    """Read a JSON object from a model's file. Raises UsageError if it cannot be read."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"The {file.name} of {name} cannot be read ({error.strerror}). Let this user read it."
        ) from error
    except (ValueError, RecursionError) as error:  # not text, not JSON, or nested too deeply
        raise UsageError(f"The {file.name} of {name} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"The {file.name} of {name} cannot be read: it is not a JSON object.")
    return found


def has_two_heads(config: dict[str, Any]) -> bool:
    """Return whether the config is that of EuroFilter, which has two heads. A worker serves only one of them."""
    code = _object(config, "auto_map").get("AutoModelForSequenceClassification")
    return str(code).endswith("modeling_custom.DebertaV2ForSequenceClassification")


def labels_of(config: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return the name of each output. A name that is not a string is given as JSON.

    Raises UsageError if the model is not a sequence classifier, or if its labels are invalid.
    """
    _check_architecture(config, name)
    named, count = config.get("id2label"), config.get("num_labels", _DEFAULT_LABELS)
    if named is not None:
        try:
            of_output = {int(output): label for output, label in named.items()}
        except (AttributeError, ValueError) as error:
            wrong = f"The config.json of {name} has id2label={_shown(named)}, which names no outputs by their numbers."
            raise UsageError(wrong) from error
        count = len(of_output) if config.get("num_labels") is None else count
        if count == len(of_output) > 0:
            labels = (of_output[output] for output in sorted(of_output))
            return tuple(label if isinstance(label, str) else json.dumps(label) for label in labels)
    if not isinstance(count, int) or not 0 < count <= _MOST_LABELS:
        raise UsageError(f"The config.json of {name} has num_labels={_shown(count)}, which is no number of outputs.")
    return tuple(
        f"LABEL_{i}" for i in range(count)
    )  # also if num_labels differs from the number of names, as in transformers


def _check_architecture(config: dict[str, Any], name: str) -> None:
    architectures = config.get("architectures")
    given = architectures if isinstance(architectures, list) else [architectures]
    named = [" ".join(str(one).split()) for one in given if one]
    is_classifier = any("ForSequenceClassification" in one for one in named)
    if named and not is_classifier and "fc_dropout" not in config:  # worker/scoring/saved_model.py loads these
        raise UsageError(
            f"{name} is not a sequence classifier: its config.json says {', '.join(named)}. "
            "Name a model whose architecture ends in ForSequenceClassification."
        )


def function_of(config: dict[str, Any], *, outputs: int) -> Function:
    """Return the function that transformers' text-classification pipeline applies to the logits.

    For a single output, returns "none" instead, unless the config says `multi_label_classification`.
    """
    problem = config.get("problem_type")
    if problem == "multi_label_classification":
        return "sigmoid"
    return "softmax" if outputs > 1 and problem != "regression" else "none"


def threshold_in(config: dict[str, Any]) -> float | None:
    threshold = config.get(THRESHOLD)
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
        return None
    try:
        return float(threshold) if math.isfinite(threshold) else None
    except OverflowError:
        return None


def most_tokens_in(config: dict[str, Any]) -> int | None:
    if "fc_dropout" in config:  # loaded by worker/scoring/saved_model.py, which reads longer texts
        return None
    most = sizes_in(config).get("max_position_embeddings")
    return most if isinstance(most, int) else None


def sizes_in(config: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes in a config, such as `hidden_size`, and the type of the network.

    If a config describes several networks, returns those of the one that reads the text. Leaves out values that are not
    sizes.
    """
    parts = [part for name in _TEXT_PARTS if (part := _object(config, name))]
    text = parts[0] if len(parts) == 1 else config
    sizes = {name: value for name, value in text.items() if type(value) is int and 0 < value < 1 << 40}
    kind = {"model_type": str(text.get("model_type")), "is_encoder_decoder": text.get("is_encoder_decoder") is True}
    return {**sizes, **kind}


def _object(config: dict[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _shown(value: Any) -> str:
    return json.dumps(value)[:100]
