"""Load a sequence classifier and its tokenizer, from the Hub or a folder, with transformers.

Some repositories ask for their own code. It is never run: adapters load such weights into small classes of ours.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from transformers import (
    AutoModelForSequenceClassification,
    DebertaV2Config,
    DebertaV2Model,
    DebertaV2PreTrainedModel,
    PreTrainedConfig,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.deberta_v2.modeling_deberta_v2 import ContextPooler

from shardsift.worker.scoring import ModelError
from shardsift.worker.scoring.backends.packed import positions_before_the_first
from shardsift.worker.scoring.tokenizing.processes import read_tokenizer

_UNLIMITED = 1 << 30  # tokens
_REST_OF_ERROR = re.compile(r"\n\s*\n|\nException raised from ")
_TEXT_PARTS = ("text_encoder", "decoder", "generator", "text_config")  # as in transformers' `get_text_config`
_NO_PARSER = "`tiktoken` is required"  # transformers says this even if protobuf or sentencepiece is missing


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    model: Any
    tokenizer: Any
    revision: str | None  # as requested
    max_tokens: int
    outputs: int
    read_tokenizer: Callable[[], Any] | None = None  # reads an equal tokenizer in another process


def saved_model(model: str, revision: str | None, **placing: Any) -> SavedModel:
    """Load a classifier, by default onto the CPU and in the number format of its files.

    `placing` has more arguments for `from_pretrained`. Never runs code from the Hub. Raises ModelError for anything
    but a sequence classifier with head and tokenizer.
    """
    try:
        config, _ = PreTrainedConfig.get_config_dict(model, revision=revision)
        adapter = next((adapter for adapter in _ADAPTERS if adapter.serves(config)), None)
        classifier = AutoModelForSequenceClassification
        asked: dict[str, Any] = {"dtype": "auto", **placing}
        if adapter:
            classifier = adapter.classifier
            asked["config"] = adapter.config(config)
        loaded, info = classifier.from_pretrained(
            model,
            revision=revision,
            output_loading_info=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # reported below
            **asked,
        )
        # With an adapter, the type in config.json may be unknown to transformers.
        read = partial(read_tokenizer, model, revision, by_files_alone=adapter is not None)
        tokenizer = read()
    except Exception as error:  # model classes raise any error for files that do not fit
        hint = (
            " For a *.model file of SentencePiece: pip install protobuf sentencepiece"
            if _NO_PARSER in str(error)
            else ""
        )
        raise ModelError(f"The model {model} does not load as a sequence classifier: {_reason(error)}{hint}") from error
    for weights, saved, configured in sorted(info["mismatched_keys"]):
        raise ModelError(
            f"The model {model} does not load: {weights} has the shape {_shape(saved)}, and by its config.json "
            f"{_shape(configured)}. Correct config.json, most often num_labels, id2label or vocab_size."
        )
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise ModelError(
            f"The model {model} has no trained classification head (missing: {missing}). Fine-tune one first."
        )
    check_tokenizer(model, tokenizer)
    _settle(loaded.config)
    # A decoder's head reads the last token before padding, or with a padding token of -1 the last token of a text.
    agree_on_padding(loaded, tokenizer, otherwise=-1)
    return SavedModel(
        model=loaded.eval(),
        tokenizer=tokenizer,
        revision=revision,  # transformers 5 does not return the commit; an old config.json may lie
        max_tokens=(adapter.max_tokens or loaded.config.max_position_embeddings)
        if adapter
        else tokens_taken(tokenizer, loaded),
        outputs=loaded.config.num_labels,
        read_tokenizer=read,
    )


def _reason(error: Exception) -> str:
    """Return the first paragraph of an error, without the trace that torch's C++ adds."""
    return " ".join(_REST_OF_ERROR.split(str(error))[0].split())


def _shape(sizes: Any) -> str:
    return " × ".join(map(str, sizes))


def _settle(config: Any) -> None:
    """Make the model return named outputs, and delete parts of its config that have the wrong type."""
    config.return_dict = True
    for part in _TEXT_PARTS:
        if not isinstance(getattr(config, part, None), PreTrainedConfig | None):
            delattr(config, part)


def check_tokenizer(name: str, tokenizer: Any) -> None:
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):  # made by transformers if there are no files
        raise ModelError(f"The model {name} has no tokenizer. Save its tokenizer files beside the model.")


def agree_on_padding(model: Any, tokenizer: Any, *, otherwise: int | None = None) -> None:
    """Set a padding token in the tokenizer and the model if they have none within the model's vocabulary.

    The tokenizer gets its end-of-sequence token, as for GPT-2 and Llama. The model gets the id `otherwise`. If that is
    None, it gets the tokenizer's padding token, because training needs the same one in both.
    """
    config = model.config.get_text_config()  # transformers reads the padding token from it
    vocabulary, pad_id = getattr(config, "vocab_size", None) or _UNLIMITED, config.pad_token_id
    if tokenizer.pad_token is None or tokenizer.pad_token_id >= vocabulary:
        tokenizer.pad_token = tokenizer.eos_token
    if pad_id is None or not 0 <= pad_id < vocabulary:
        config.pad_token_id = tokenizer.pad_token_id if otherwise is None else otherwise


def tokens_taken(tokenizer: Any, model: Any) -> int:
    """Return the maximum number of tokens that tokenizer and model allow.

    Raises ModelError if the tokenizer's limit is not a positive number, or if special tokens alone reach the maximum.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 0
    allowed = positions - positions_before_the_first(model) if positions > 0 else _UNLIMITED
    own = tokenizer.model_max_length  # any value from tokenizer_config.json
    if isinstance(own, bool) or not isinstance(own, (int, float)) or not own > 0:
        raise ModelError(f"The tokenizer has model_max_length={own!r}, which is no number of tokens.")
    taken, added = int(min(own, allowed, _UNLIMITED)), tokenizer.num_special_tokens_to_add()
    if taken <= added:
        raise ModelError(
            f"The model's limit of tokens is {taken}, and its tokenizer adds {added} to each text, so that no room is left. "
            "Correct model_max_length in tokenizer_config.json, or max_position_embeddings in config.json."
        )
    return taken


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A way to load a repository's weights into classes of transformers, or into a small class of ours.

    `config` raises ModelError for an unsupported version of transformers, or an unsupported setting in the repository.
    """

    serves: Callable[[Mapping[str, Any]], bool]  # whether a config.json asks for this adapter
    config: Callable[[Mapping[str, Any]], Any]  # config.json → the config of the class
    classifier: Any  # a class with transformers' `from_pretrained`
    max_tokens: int | None = None  # the limit in the authors' code, with special tokens; None: the model's positions


# NVIDIA's DeBERTa classifiers: a linear layer `fc` on the last state of the first token.
#
# The repository's config.json only names a backbone and the labels. Its weights are `model.*`, for the backbone, and
# `fc.*`. Source: the code on the card of https://huggingface.co/nvidia/quality-classifier-deberta, and NeMo Curator's
# nemo_curator/stages/text/classifiers/base.py, which reads up to 1,024 tokens of a text.

# DeBERTa v3 only has relative positions, and treats distances above 512 tokens like 512.
_CONTEXT_TOKENS = 1_024
_DEBERTA_V3_BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "layer_norm_eps": 1e-7,
    "type_vocab_size": 0,
}
_BACKBONES: dict[str, dict[str, Any]] = {
    "microsoft/deberta-v3-base": {**_DEBERTA_V3_BASE, "vocab_size": 128_100},
    "microsoft/mdeberta-v3-base": {**_DEBERTA_V3_BASE, "vocab_size": 251_000},
}


class FirstTokenClassifier(DebertaV2PreTrainedModel):
    base_model_prefix = "model"

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        self.model = DebertaV2Model(config)
        self.fc = torch.nn.Linear(config.hidden_size, len(config.id2label or ()))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any) -> Any:
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.fc(states[:, 0]))


def _first_token_config(config: Mapping[str, Any]) -> DebertaV2Config:
    backbone = config["base_model"]
    if backbone not in _BACKBONES:
        raise ModelError(f"its backbone {backbone!r} is not known; known are {' and '.join(_BACKBONES)}")
    settings = config if "hidden_size" in config else _BACKBONES[backbone]
    return DebertaV2Config(**{**settings, "id2label": config["id2label"]})


FIRST_TOKEN = Adapter(
    serves=lambda config: {"base_model", "fc_dropout", "id2label"} <= config.keys(),
    config=_first_token_config,
    classifier=FirstTokenClassifier,
    max_tokens=_CONTEXT_TOKENS,
)


# Load models of the type `new`, such as the WebOrganizer classifiers, as transformers' `gte`, the same network.
#
# transformers renames the weights itself, so only the config is converted: NTK scaling of the rotary embedding divides
# the frequencies of a larger base by a constant, which is transformers' linear scaling with that base.
# Sources: modeling.py of https://huggingface.co/Alibaba-NLP/new-impl, docs/source/en/model_doc/gte.md of transformers.

_SAME = {
    "layer_norm_type": "layer_norm",
    "position_embedding_type": "rope",
    "logn_attention_scale": False,
    "pack_qkv": True,
}
_NOT_OF_GTE = {*_SAME, "auto_map", "model_type", "rope_theta", "rope_scaling", "logn_attention_clip1", "unpad_inputs"}
_DEFAULT_THETA = 10_000.0  # default of the type `new`


def _new_config(config: Mapping[str, Any]) -> Any:
    if NEW.classifier is None:
        raise ModelError(f"transformers {transformers.__version__} has no gte; install a newer one")
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


NEW = Adapter(
    serves=lambda config: config.get("model_type") == "new",
    config=_new_config,
    classifier=getattr(transformers, "GteForSequenceClassification", None),
)


# utter-project/EuroFilter-v1: mDeBERTa with two heads on one pooled state, `regressor` and `binary_classifier`.
#
# Only the score of `regressor`, from 0 to 5, is served; it is `logits` in the repository's code. `binary_logits` are
# left out, because all outputs of a model must be of one kind. Source: modeling_custom.py of the repository.

_CODE = "modeling_custom.DebertaV2ForSequenceClassification"


class RegressorOfTwoHeads(DebertaV2PreTrainedModel):
    _keys_to_ignore_on_load_unexpected = ["position_embeddings", "binary_classifier"]

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        self.deberta = DebertaV2Model(config)
        self.pooler = ContextPooler(config)
        self.regressor = torch.nn.Linear(self.pooler.output_dim, 1)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any) -> Any:
        states = self.deberta(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.regressor(self.pooler(states)))


def _is_two_heads(config: Mapping[str, Any]) -> bool:
    code = (config.get("auto_map") or {}).get("AutoModelForSequenceClassification", "")
    return config.get("model_type") == "deberta-v2" and str(code).endswith(_CODE)


def _two_heads_config(config: Mapping[str, Any]) -> DebertaV2Config:
    kept = {name: value for name, value in config.items() if name not in ("auto_map", "id2label", "label2id")}
    return DebertaV2Config(**{**kept, "num_labels": 1})


TWO_HEADS = Adapter(
    serves=_is_two_heads,
    config=_two_heads_config,
    classifier=RegressorOfTwoHeads,
)

_ADAPTERS = (FIRST_TOKEN, NEW, TWO_HEADS)
