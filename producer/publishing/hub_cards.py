"""Read licence, language and tasks from the Hub's cards of the source and models. Skips unreadable cards."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import HfApi

from shardsift.fleet.errors import ShardsiftError
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.storage.errors import translated
from shardsift.producer.publishing.card_markdown import hub_dataset
from shardsift.producer.publishing.card_models import is_hub_model

_CARRIED = (
    "license",
    "license_name",
    "license_link",
    "language",
    "multilinguality",
    "task_categories",
    "task_ids",
    "tags",
)
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class HubCards:
    source: Mapping[str, Any] = field(default_factory=dict)  # metadata by name
    model_licences: Mapping[str, str] = field(default_factory=dict)  # by model name


NO_CARDS = HubCards()


def read_hub_cards(spec: RunSpec) -> HubCards:
    """Read the cards of the input dataset and the models, at the revisions that the run used.

    Skips cards that cannot be read, so that they do not stop a publication.
    """
    licences = {
        scoring.model.name: _metadata("model", scoring.model.name, scoring.model.revision).get("license")
        for scoring in spec.scorings
        if is_hub_model(scoring.model)
    }
    dataset = hub_dataset(spec)
    found = _metadata("dataset", *dataset) if dataset else {}
    return HubCards(
        source={name: found[name] for name in _CARRIED if found.get(name)},
        model_licences={name: words(licence) for name, licence in licences.items() if licence},
    )


def words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _metadata(kind: str, name: str, revision: str | None) -> dict[str, Any]:
    """Read a card's metadata. Empty if this fails, or if the repository is private, because our card may be public."""
    ask: Any = HfApi().dataset_info if kind == "dataset" else HfApi().model_info
    try:
        with translated(f"Reading the card of {name}"):
            info = ask(name, revision=revision, timeout=_ANSWER_SECONDS, expand=["cardData", "private"])
            return {} if info.private or info.card_data is None else dict(info.card_data.to_dict())
    except ShardsiftError:
        return {}
