"""The labels of a zero-shot run: read from the options, or refused in one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.options import ScoreOptions, scoring_of, split_at_commas
from shardsift.fleet.run.scoring import ZeroShot

NLI = Model(name="org/nli", revision="1", labels=("contradiction", "neutral", "Entailment"))
CLASSIFIER = Model(name="org/topics", revision="1", labels=("sport", "politics"))


def zero_shot(options: ScoreOptions, model: Model) -> ZeroShot | None:
    return scoring_of(model, options, text_columns=("text",)).zero_shot


def test_labels_are_taken_as_they_are_named() -> None:
    found = zero_shot(ScoreOptions(labels=(" sport", "politics ", "food, drink")), NLI)

    assert found == ZeroShot(labels=("sport", "politics", "food, drink"))
    assert found.hypotheses[2] == "This example is food, drink."


def test_commas_are_between_labels_and_may_be_in_the_name_of_a_file() -> None:
    assert split_at_commas(["a,b", "c"]) == ["a", "b", "c"]
    assert split_at_commas(["@a,b.txt"]) == ["@a,b.txt"]


def test_a_file_has_a_label_on_each_line_or_is_named(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    options = ScoreOptions(labels=(f"@{file}",), multi_label=True)
    file.write_text("sport\n\nfood, drink and travel\n日本\n", encoding="utf-8")

    assert zero_shot(options, NLI) == ZeroShot(labels=("sport", "food, drink and travel", "日本"), multi_label=True)
    for content, says in (
        (b"\xff\xfe", f"{file} cannot be read: 'utf-8' codec"),
        (b"\n \n", f"no labels in --labels @{file}"),
    ):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=says):
            zero_shot(options, NLI)


@pytest.mark.parametrize(
    ("labels", "multi_label", "function"),
    [(("a", "b"), False, "softmax"), (("a", "b"), True, "sigmoid"), (("a",), False, "sigmoid")],
)
def test_logits_become_scores_as_in_the_pipeline(labels: tuple[str, ...], multi_label: bool, function: str) -> None:
    assert ZeroShot(labels=labels, multi_label=multi_label).function == function


def test_a_classifier_keeps_its_own_labels() -> None:
    assert zero_shot(ScoreOptions(), CLASSIFIER) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": ("a", "@labels.txt")}, "--labels @labels.txt goes with no other label"),
        ({"labels": ("", " ")}, "There are no labels in --labels"),
        ({"labels": ("a", "b", "a")}, "The label 'a' is there twice"),
        ({"labels": ("@/nowhere/labels.txt",)}, "@/nowhere/labels.txt cannot be read: No such file"),
        ({"labels": ("a",), "hypothesis_template": "About {"}, "--hypothesis-template needs one {}"),
        ({"hypothesis_template": "{}"}, "--hypothesis-template is for --labels"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("{}", r"\{\}")) as refused:
        zero_shot(ScoreOptions(**changes), NLI)

    assert "\n" not in str(refused.value)


def test_models_that_take_no_labels_and_those_that_lack_them_are_refused() -> None:
    with pytest.raises(UsageError, match="is for the scorer sequence-classifier, not for word-count"):
        zero_shot(ScoreOptions(labels=("a",)), replace(NLI, scorer="word-count"))
    with pytest.raises(UsageError, match="none of its outputs is called entailment; they are sport, politics"):
        zero_shot(ScoreOptions(labels=("a",)), CLASSIFIER)
    with pytest.raises(UsageError, match="chooses from labels that you name: add --labels"):
        zero_shot(ScoreOptions(), replace(NLI, name="MoritzLaurer/deberta-v3-large-zeroshot-v2.0"))
