"""A sequence classifier and its tokenizer, as they were saved: a Hub name or folder becomes a model of transformers."""

from dataclasses import dataclass
from typing import Any

from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedConfig

from worker.scoring import ModelError
from worker.scoring.adapters import adapter_of
from worker.scoring.backends.packed import positions_before_the_first

_UNLIMITED = 1 << 30  # tokens


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A model and its tokenizer as they were saved."""

    model: Any
    tokenizer: Any
    revision: str | None  # as it was asked for
    max_tokens: int
    outputs: int


def saved_model(model: str, revision: str | None, **placing: Any) -> SavedModel:
    """Load a classifier in its own number format onto the CPU, or as `placing`, arguments of `from_pretrained`, says.

    Code from the Hub is never run. Raises ModelError for what is no sequence classifier, or has no head or no tokenizer.
    """
    try:
        config, _ = PreTrainedConfig.get_config_dict(model, revision=revision)
        adapter = adapter_of(config)
        classifier, of_tokenizer = AutoModelForSequenceClassification, {}
        asked: dict[str, Any] = {"dtype": "auto", **placing}
        if adapter:  # a tokenizer is chosen by its own files, because its type may be unknown to transformers
            classifier = adapter.classifier()
            asked["config"] = adapter.config(config)
            of_tokenizer = {"config": PreTrainedConfig()}
        loaded, info = classifier.from_pretrained(
            model, revision=revision, output_loading_info=True, trust_remote_code=False, **asked
        )
        tokenizer = AutoTokenizer.from_pretrained(model, revision=revision, trust_remote_code=False, **of_tokenizer)
    except Exception as error:  # every model class has its own ways to fail on files that are not its own
        raise ModelError(f"The model {model} does not load as a sequence classifier: {error}") from error
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise ModelError(
            f"The model {model} has no trained classification head (missing: {missing}). Fine-tune one first."
        )
    check_tokenizer(model, tokenizer)
    agree_on_padding(loaded, tokenizer)
    return SavedModel(
        model=loaded.eval(),
        tokenizer=tokenizer,
        revision=revision,  # transformers 5 does not tell the commit, and in an old config.json is that of another model
        max_tokens=(adapter.max_tokens or loaded.config.max_position_embeddings)
        if adapter
        else tokens_taken(tokenizer, loaded),
        outputs=loaded.config.num_labels,
    )


def check_tokenizer(name: str, tokenizer: Any) -> None:
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):  # transformers makes one if there are no files
        raise ModelError(f"The model {name} has no tokenizer. Save its tokenizer files beside the model.")


def agree_on_padding(model: Any, tokenizer: Any) -> None:
    if tokenizer.pad_token is None:  # GPT-2's and Llama's have none; any will do, since attention leaves it out
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def tokens_taken(tokenizer: Any, model: Any) -> int:
    """The longest input that tokenizer and positions both allow."""
    positions = getattr(model.config, "max_position_embeddings", None) or 0
    allowed = positions - positions_before_the_first(model) if positions > 0 else _UNLIMITED
    return int(min(tokenizer.model_max_length, allowed, _UNLIMITED))
