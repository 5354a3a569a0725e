"""Recipes: the options that the authors of popular classifiers recommend. Needs no torch and no network.

A recipe belongs to a name on the Hub, never to a folder. The user's own options take precedence.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from shardsift.fleet.run.choices import Function
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model

Evidence = Literal["checked", "from its card"]
_ABOUT = "model", "checked", "url", "note", "int_score", "zero_shot"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model and its options, by their names in `RunOptions`. None means that the recipe does not set the option.

    If `checked` is "checked", a test compares our scores with those of the source's code, on a small random model of
    this architecture. Otherwise the options were only read from the source, which is `url` or the model's card.
    """

    model: str  # its name on the Hub
    checked: Evidence = "from its card"
    url: str = ""  # the source, if not the model's card
    note: str = ""  # differences from the authors' use that remain
    int_score: bool = False  # add FineWeb-Edu's rounded score
    zero_shot: bool = False  # for runs with --labels
    text_column: str | None = None
    max_tokens: int | None = None
    passages: str | None = None
    function_to_apply: Function | None = None
    min_score: float | None = None
    hypothesis_template: str | None = None

    @property
    def source(self) -> str:
        return self.url or f"https://huggingface.co/{self.model}"

    @property
    def options(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _ABOUT}
        return {name: value for name, value in values.items() if value is not None}


def recipe_of(model: str) -> Recipe | None:
    return _BY_NAME.get(model.lower())


def recipe_for(model: Model, *, has_labels: bool) -> Recipe | None:
    """Return the recipe of a model for this task: zero-shot if `has_labels`. A folder has none."""
    recipe = None if model.is_folder or model.scorer != SEQUENCE_CLASSIFIER else recipe_of(model.name)
    return recipe if recipe and recipe.zero_shot == has_labels else None


def adds_int_score(model: Model, function: Function) -> bool:
    """Return whether to add the rounded score, as the model's authors do. Only a raw score can be rounded."""
    recipe = recipe_for(model, has_labels=False)
    return recipe is not None and recipe.int_score and function == "none" and len(model.labels) == 1


def filled(recipe: Recipe, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe's options that the user did not give and that do not contradict the user's.

    `chosen` has the user's options, by their names in `RunOptions`; None means not given. Leaves out options that are
    not in `chosen` at all.
    """
    used = {name: value for name, value in recipe.options.items() if name in chosen and chosen[name] is None}
    if chosen.get("text_pair_column") is not None:
        used.pop("passages", None)
    has_function = chosen.get("function_to_apply") not in (None, "none")
    if has_function or any(chosen.get(other) not in (None, False) for other in ("where", "keep_all")):
        used.pop("min_score", None)
    return used


def recipe_line(model: str, used: Mapping[str, Any]) -> str:
    return f"Recipe of {model}: {as_arguments(used)} ({_BY_NAME[model.lower()].checked})."


def as_arguments(options: Mapping[str, Any]) -> str:
    """Write options as on the command line: `--max-tokens 512 --min-score 3`."""
    return " ".join(f"--{name.replace('_', '-')} {quoted(_shown(value))}" for name, value in options.items())


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def quoted(text: str) -> str:
    return shlex.quote(text.replace("\n", "\\n"))


def _edu(model: str, *, checked: Evidence = "checked", url: str = "") -> Recipe:
    """Make a recipe for a raw score from 0 to 5. It adds the rounded score, and keeps rows from 3 on."""
    return Recipe(
        model=model, checked=checked, url=url, int_score=True, min_score=3.0, note="Adds int_score, the rounded score."
    )


def _finepdfs(model: str, *, checked: Evidence = "checked") -> Recipe:
    """Make a recipe that reads 2,046 tokens of the first and of the last 10,000 characters. The higher score counts.

    The English models are ModernBERT, the others mmBERT.
    """
    return Recipe(model=model, checked=checked, max_tokens=2048, passages="finepdfs")


def _nvidia(model: str, max_tokens: int, note: str = "") -> Recipe:
    return Recipe(model=model, checked="checked", max_tokens=max_tokens, function_to_apply="softmax", note=note)


def _weborganizer(model: str, text_column: str | None = None, checked: Evidence = "checked") -> Recipe:
    return Recipe(model=model, checked=checked, text_column=text_column, max_tokens=8192, function_to_apply="softmax")


def _zero_shot(model: str) -> Recipe:
    return Recipe(model=model, zero_shot=True, hypothesis_template="This text is about {}", note="Needs --labels.")


_CURATOR = "https://github.com/NVIDIA-NeMo/Curator/blob/main/nemo_curator/stages/text/classifiers"
_DETOXIFY = "https://github.com/unitaryai/detoxify/blob/master/detoxify/detoxify.py"
_FIRST_2000 = "NeMo Curator reads the first 2,000 characters only."
_FIRST_6000 = "NeMo Curator reads the first 6,000 characters only."
_STACK_EDU = ("c", "cpp", "java", "javascript", "python", "rust", "shell", "typescript")
_URL_AND_TEXT = "{url}\n\n{text}"

RECIPES = (
    _edu("HuggingFaceFW/fineweb-edu-classifier"),
    _edu("nvidia/nemocurator-fineweb-mixtral-edu-classifier", url=f"{_CURATOR}/fineweb_edu.py"),
    _edu("nvidia/nemocurator-fineweb-nemotron-4-edu-classifier", url=f"{_CURATOR}/fineweb_edu.py"),
    _edu("HuggingFaceTB/finemath-classifier", checked="from its card"),
    *(_edu(f"HuggingFaceTB/stack-edu-classifier-{language}", checked="from its card") for language in _STACK_EDU),
    _finepdfs("HuggingFaceFW/finepdfs_edu_classifier_eng_Latn"),
    _finepdfs("HuggingFaceFW/finepdfs_edu_classifier_deu_Latn", checked="from its card"),
    _finepdfs("HuggingFaceFW/finepdfs_edu_classifier_vie_Latn", checked="from its card"),
    _finepdfs("HuggingFaceFW/finepdfs_edu_classifier_v2_eng_Latn"),
    _finepdfs("HuggingFaceFW/finepdfs_dclm_classifier_eng_Latn"),
    _finepdfs("HuggingFaceFW/finepdfs_ocr_quality_classifier_eng_Latn"),
    Recipe(model="mdonigian/fineweb-edu-topic-classifier", max_tokens=512, function_to_apply="sigmoid"),
    _weborganizer("WebOrganizer/TopicClassifier", _URL_AND_TEXT),
    _weborganizer("WebOrganizer/FormatClassifier", _URL_AND_TEXT),
    _weborganizer("WebOrganizer/TopicClassifier-NoURL"),
    _weborganizer("WebOrganizer/FormatClassifier-NoURL"),
    _nvidia("nvidia/quality-classifier-deberta", 1024, _FIRST_6000),
    _nvidia("nvidia/content-type-classifier-deberta", 1024, _FIRST_6000),
    _nvidia("nvidia/domain-classifier", 512, _FIRST_2000),
    _nvidia("nvidia/multilingual-domain-classifier", 512, _FIRST_2000),
    Recipe(
        model="utter-project/EuroFilter-v1",
        max_tokens=512,
        note="The second output, binary_logits, is left out. Which output is the score is inferred from the card.",
    ),
    Recipe(model="unitary/toxic-bert", function_to_apply="sigmoid", url=_DETOXIFY),
    Recipe(model="unitary/unbiased-toxic-roberta", function_to_apply="sigmoid", url=_DETOXIFY),
    Recipe(model="protectai/deberta-v3-base-prompt-injection-v2", max_tokens=512, function_to_apply="softmax"),
    _zero_shot("MoritzLaurer/deberta-v3-large-zeroshot-v2.0"),
    _zero_shot("MoritzLaurer/bge-m3-zeroshot-v2.0"),
)
_BY_NAME = {recipe.model.lower(): recipe for recipe in RECIPES}
