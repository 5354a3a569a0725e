"""Recipes set the options that the user left at their defaults, for models on the Hub."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

from shardsift.fleet.run.choices import is_passages
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.options import recipe_options
from shardsift.fleet.run.recipes import RECIPES, Recipe, adds_int_score, as_arguments, recipe_line
from shardsift.fleet.run.text import columns_of
from shardsift.producer.planning.options import RunOptions

EDU = "HuggingFaceFW/fineweb-edu-classifier"
TOPICS = "WebOrganizer/TopicClassifier"
PDFS = "HuggingFaceFW/finepdfs_edu_classifier_eng_Latn"
NLI = "MoritzLaurer/deberta-v3-large-zeroshot-v2.0"
ROOT = Path(__file__).parents[2]
CHECKED_BY = {  # the test → beginnings of models' names
    "integration/test_recipe_scores.py": ("HuggingFaceFW/fineweb-edu-classifier", "nvidia/nemocurator-fineweb-"),
    "integration/test_finepdfs.py": (
        *("HuggingFaceFW/finepdfs_edu_classifier_eng_Latn", "HuggingFaceFW/finepdfs_edu_classifier_v2_eng_Latn"),
        *("HuggingFaceFW/finepdfs_dclm", "HuggingFaceFW/finepdfs_ocr"),
    ),
    "integration/test_adapters.py": (
        "WebOrganizer/",
        "nvidia/quality",
        "nvidia/content",
        "nvidia/domain",
        "nvidia/multi",
    ),
}


def model_of(name: str, **changes: Any) -> Model:
    return Model(**{"name": name, "revision": "1", "labels": ("LABEL_0",)} | changes)


def used(model: str | Model, **given: Any) -> dict[str, Any]:
    """The options of the recipe that a run with these options uses."""
    return recipe_options(model_of(model) if isinstance(model, str) else model, RunOptions(**given))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.model)
class TestEachRecipe:
    def test_a_recipe_sets_options_of_a_run_with_its_model_to_values_that_they_take(self, recipe: Recipe) -> None:
        types = get_type_hints(RunOptions, include_extras=True)

        assert recipe.options
        for name, value in recipe.options.items():
            kind, *_ = get_args(types[name])
            assert TypeAdapter(kind).validate_python(value, strict=True) == value
            assert getattr(RunOptions(), name) is None
        assert is_passages(recipe.passages or "head")
        assert columns_of(recipe.text_column or "{text}")
        assert "{}" in (recipe.hypothesis_template or "{}")
        assert used(recipe.model, labels=("a", "b") if recipe.zero_shot else ()) == recipe.options

    def test_a_recipe_is_called_checked_if_a_test_compares_its_scores_with_the_authors_code(
        self, recipe: Recipe
    ) -> None:
        tests = [test for test, names in CHECKED_BY.items() if recipe.model.startswith(names)]

        assert (recipe.checked == "checked") == bool(tests)
        assert all((ROOT / "tests" / test).is_file() for test in tests)


def test_no_model_has_two_recipes() -> None:
    names = [recipe.model.lower() for recipe in RECIPES]

    assert len(names) == len(set(names)) >= 20


TOPIC_TEXT = {"text_column": "{url}\n\n{text}"}
OF_TOPICS = {"max_tokens": 8192, "function_to_apply": "softmax"}


@pytest.mark.parametrize(
    ("model", "given", "recipe"),
    [
        (PDFS, {"max_tokens": 512}, {"passages": "finepdfs"}),
        (PDFS, {"text_pair_column": "summary"}, {"max_tokens": 2048}),  # passages are of a single text
        (TOPICS, {"text_column": "{title}"}, OF_TOPICS),
        (TOPICS, {"function_to_apply": "none"}, {**TOPIC_TEXT, "max_tokens": 8192}),
        (NLI, {"labels": ("a",), "hypothesis_template": "About {}."}, {}),
        (EDU, {"min_score": 2.0}, {}),
        (EDU, {"function_to_apply": "sigmoid"}, {}),
    ],
)
def test_the_users_option_wins_and_the_others_are_still_the_recipes(
    model: str, given: dict[str, Any], recipe: dict[str, Any]
) -> None:
    assert used(model, **given) == recipe


def test_a_function_of_the_user_leaves_out_the_rounded_score_which_is_for_raw_ones() -> None:
    model = Model(name=EDU, revision="1", labels=("LABEL_0",))

    assert [adds_int_score(model, function) for function in ("none", "sigmoid")] == [True, False]
    assert not adds_int_score(replace(model, revision="sha256-1"), "none")  # a folder
    assert not adds_int_score(replace(model, name=PDFS), "none")


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (model_of(PDFS), {"labels": ("a",)}),  # another task
        (model_of(EDU, scorer="own"), {}),
        (model_of("me/fineweb-edu-classifier"), {}),
        (model_of(f"/models/{EDU}", revision="sha256-1"), {}),
    ],
)
def test_no_recipe_is_used_for_another_task_or_another_model_of_that_name(model: Model, given: dict[str, Any]) -> None:
    assert used(model, **given) == {}


def test_the_user_is_told_the_options_as_arguments_of_a_shell() -> None:
    assert recipe_line(PDFS, used(PDFS, max_tokens=512)) == f"Recipe of {PDFS}: --passages finepdfs (checked)."
    assert as_arguments(used(TOPICS)) == (
        "--text-column '{url}\\n\\n{text}' --max-tokens 8192 --function-to-apply softmax"
    )
