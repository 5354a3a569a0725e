"""Load the model to train, with a new last layer for what it is to learn. Knows nothing of texts or labels."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from fleet.errors import UsageError
from fleet.model import with_revision
from worker.scoring.errors import ModelError
from worker.scoring.quiet import quiet_transformers
from worker.scoring.saved_model import agree_on_padding, check_tokenizer, tokens_taken
from worker.training.targets import Target


class BaseModelError(UsageError):
    """This model cannot be trained so. The message says why."""


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
            raise BaseModelError(
                f"{type(self.model).__name__} has no last linear layer to fit. Add --full to train it."
            )
        return str(found[-1])

    def check_can_be_frozen(self) -> None:
        """Only the last layer is fitted, so all before it must be trained."""
        if self.model.get_submodule(self.head).bias is None:
            raise BaseModelError(
                f"The last layer of {type(self.model).__name__} has no bias to fit. Add --full to train the whole model."
            )
        if before := [name for name in self.untrained if not name.startswith(f"{self.head}.")]:
            raise BaseModelError(
                f"{self.name} has no weights for {', '.join(before)}, whose output the last layer reads. A head fitted to "
                "random weights is useless. Add --full, or name a model that was trained with these layers."
            )


def load_base(base_model: str, target: Target) -> BaseModel:
    """Load a Hub name or folder. Code from the Hub is never run. Raises BaseModelError if it does not load."""
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
    except (
        OSError,
        ValueError,
        ModelError,
    ) as error:  # what transformers raises for a model that it cannot find or load
        raise BaseModelError(f"The base model {name} cannot be loaded: {' '.join(str(error).split())}") from error
    agree_on_padding(model, tokenizer)
    untrained = {*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])}
    return BaseModel(
        name=name, revision=revision, model=model.eval(), tokenizer=tokenizer, untrained=tuple(sorted(untrained))
    )
