"""A classifier that is fitted on a frozen encoder tells unseen texts apart, and loads like any model folder."""

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline
from typer.testing import CliRunner

import shardsift.worker.training.base_model
from shardsift.fleet.errors import UsageError
from shardsift.producer.cli import cli
from shardsift.producer.local.demo_data import write_labelled
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.worker.training.base_model import verified_demo_encoder
from shardsift.worker.training.labelled import label_source, read_split
from shardsift.worker.training.train import train
from shardsift.worker.training.train_options import DEMO_ENCODER, TrainOptions
from shardsift.worker.training.train_report import TrainReport, model_card, next_step
from support.families import family_classifier
from support.labelled import write_topics
from support.models import tiny_classifier
from support.processes import call_command, run_command

pytestmark = pytest.mark.usefixtures("one_thread", "pictures")


def spec_of(data: Path, output: Path, **options: Any) -> TrainOptions:
    spec = TrainOptions(data=str(data), base_model=DEMO_ENCODER, output=str(output), dtype="float32")
    return dataclasses.replace(spec, **options)


@pytest.fixture
def tiny_base(tmp_path: Path) -> str:
    """A random encoder of which all layers but the last count as trained."""
    return str(tiny_classifier(tmp_path / "base"))


@pytest.mark.slow  # it runs the real encoder
def test_a_classifier_on_the_demos_encoder_tells_unseen_texts_apart(tmp_path: Path) -> None:
    write_topics(tmp_path / "topics.parquet", rows=60)

    report = train(spec_of(tmp_path / "topics.parquet", tmp_path / "model", label_column="topic"), device="cpu")

    assert report.held_out.macro.f1 > 0.8
    answers = pipeline("text-classification", str(tmp_path / "model"), device="cpu")(
        ["the enzyme of a cell", "bake the dough in butter", "the striker scored a goal"]
    )
    assert [answer["label"] for answer in answers] == ["biology", "cooking", "sport"]


@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_integers_are_classes_if_the_task_says_so(classes: int, tiny_base: str, tmp_path: Path) -> None:
    labels = pa.array(np.arange(60) % classes * 9, pa.int32())  # 0, 9 and 18, which are no indices
    pq.write_table(pa.table({"text": [f"text {label}" for label in labels], "label": labels}), tmp_path / "l.parquet")
    spec = spec_of(tmp_path / "l.parquet", tmp_path / "model", base_model=tiny_base, task="classification")

    report = train(spec, device="cpu")

    assert report.held_out.macro.accuracy == 1.0
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert model.config.id2label == {index: str(9 * index) for index in range(classes)}
    assert model.config.problem_type == "single_label_classification"


@pytest.fixture(scope="module")
def topics(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> TrainReport:
    """A classifier of topics that reads 8 tokens of a text."""
    folder = tmp_path_factory.mktemp("topics")
    data, base = write_topics(folder / "topics.parquet", rows=60), tiny_classifier(folder / "base")
    options = spec_of(data, folder / "model", base_model=str(base), label_column="topic", max_tokens=8, seed=7)
    return train(options, device="cpu")


def test_the_card_has_figures_a_picture_and_commands(topics: TrainReport) -> None:
    folder = Path(topics.options.output)

    card = ModelCard.load(folder / "README.md")

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert topics.classes == tuple(model.config.id2label.values()) == ("biology", "cooking", "sport")
    assert (card.data.library_name, card.data.pipeline_tag) == ("transformers", "text-classification")
    assert (card.data.license, card.data.base_model) == (None, None)  # not known, and not on the Hub
    assert f"| accuracy | {topics.held_out.macro.accuracy:.1%} |" in card.text
    options = "--base-model base --output model --data topics.parquet --label-column topic --max-tokens 8 --seed 7"
    assert f"worker train {options} --dtype float32" in card.text
    assert "producer run --input ./shards --max-tokens 8 --model model --output ./kept --keep-all" in card.text
    assert str(folder.parent) not in card.text
    assert "(confusion.png)" in card.text
    assert (folder / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_the_card_names_the_demos_encoder_as_the_hub_does_and_no_signature_of_an_address(topics: TrainReport) -> None:
    signed = "https://bucket.s3.amazonaws.com/topics.parquet?X-Amz-Credential=me&X-Amz-Signature=s3cret"
    options = dataclasses.replace(topics.options, base_model=DEMO_ENCODER, data=signed, validation=signed)
    source = dataclasses.replace(topics.source, shown=signed)

    card = ModelCard(model_card(dataclasses.replace(topics, options=options, source=source)))

    assert card.data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert "the base model is `sentence-transformers/all-MiniLM-L6-v2`." in card.text
    assert "--base-model demo" in card.text  # the command that trains it again
    assert "s3cret" not in card.content
    assert "`topics.parquet?***`" in card.text


def test_other_users_may_read_the_model_if_the_umask_allows_it(topics: TrainReport) -> None:
    os.umask(umask := os.umask(0))
    assert {file.stat().st_mode & 0o777 for file in Path(topics.options.output).iterdir()} == {0o666 & ~umask}


def test_all_but_the_last_layer_stays_frozen_and_the_tokenizer_unchanged(tmp_path: Path) -> None:
    folders = family_classifier("RoBERTa", tmp_path / "base", labels=3), tmp_path / "model"
    write_labelled(tmp_path / "l.parquet", rows=20, seed=0)

    train(spec_of(tmp_path / "l.parquet", tmp_path / "model", base_model=str(tmp_path / "base")), device="cpu")

    base, trained = (AutoModelForSequenceClassification.from_pretrained(folder).state_dict() for folder in folders)
    changed = {name for name, weights in base.items() if not torch.equal(weights, trained[name])}
    assert changed == {"classifier.out_proj.weight", "classifier.out_proj.bias"}
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in folders)
    assert before("The same ids.", padding=False) == after("The same ids.", padding=False)


def test_an_encoder_without_trained_weights_below_the_head_is_refused(tmp_path: Path) -> None:
    base = family_classifier("BERT", tmp_path / "bert")
    AutoModel.from_pretrained(base, add_pooling_layer=False).save_pretrained(base)
    write_labelled(tmp_path / "l.parquet", rows=20, seed=0)

    with pytest.raises(UsageError, match=r"has no weights for bert\.pooler\.dense\.bias.* Add --full"):
        train(spec_of(tmp_path / "l.parquet", tmp_path / "out", base_model=str(base)), device="cpu")

    assert not (tmp_path / "out").exists()


TEXTS = [f"text {number}" for number in range(20)]
CLASSES = {"text": TEXTS, "label": ["a", "b"] * 10}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"text": [1], "label": [1.0]}, {}, 'column "text" holds int64, not text'),
        ({"text": ["a"], "label": [[1]]}, {}, 'column "label" of .* holds list.*, not numbers or texts'),
        ({"text": ["a", None], "label": [1.0, 2.0]}, {}, "Row 1 of .* has no text"),
        ({"text": ["a", "b"], "label": [1, None]}, {}, 'Row 1 of .* has no label in "label"'),
        ({"text": ["a", "b"], "label": [1.0, float("nan")]}, {}, "Row 1 of .* has no finite number"),
        ({"text": ["a"] * 5, "label": [1.0] * 5}, {}, "has 5 rows, too few to train on. Give 20 or more"),
        ({"text": TEXTS, "label": ["good"] * 20}, {}, "All labels of .* are good"),
        (
            {"text": TEXTS, "label": [0.5, 1.0] * 10},
            {"threshold": 3.0},
            "labels are 0.5 to 1, all on one side of the threshold 3",
        ),
        ({"text": TEXTS, "label": [0.5, 1.0] * 10}, {"task": "classification"}, "are double, and classes are texts"),
        (CLASSES, {"task": "regression"}, "are string, not numbers"),
        ({"text": TEXTS, "label": ["a", *"b" * 19]}, {}, "These classes have a single row: a. Each needs two"),
        (CLASSES, {"held_out": 0.01}, "1 of 20 rows would be held out, .* 2 classes"),
        (CLASSES, {"threshold": 1.0}, "--threshold is for labels that are numbers"),
        (CLASSES, {"base_model": "./nowhere"}, "There is no model folder .*nowhere"),
        (CLASSES, {"max_tokens": 9000}, "takes 3 to 512 tokens, not 9000"),
        (CLASSES, {"batch_rows": 8}, "--batch-rows is for training all weights. Add --full"),
        (CLASSES, {"full": True, "learning_rate": -1.0}, "--learning-rate is a number above 0"),
    ],
)
def test_what_cannot_be_learned_or_trained_is_one_clear_error(
    columns: dict[str, list[Any]], options: dict[str, Any], message: str, tiny_base: str, tmp_path: Path
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "l.parquet")

    with pytest.raises(UsageError, match=message):
        train(spec_of(tmp_path / "l.parquet", tmp_path / "out", **{"base_model": tiny_base, **options}), device="cpu")

    assert not (tmp_path / "out").exists()


def test_a_class_that_is_only_measured_on_is_one_clear_error(tmp_path: Path) -> None:
    pq.write_table(pa.table(CLASSES), tmp_path / "l.parquet")
    pq.write_table(pa.table({"text": ["x"], "label": ["c"]}), tmp_path / "v.parquet")

    with pytest.raises(UsageError, match='v.parquet has the class "c", which no row has that is trained on'):
        train(spec_of(tmp_path / "l.parquet", tmp_path / "out", validation=str(tmp_path / "v.parquet")))


def test_a_model_is_never_overwritten(tmp_path: Path) -> None:
    write_labelled(tmp_path / "l.parquet", rows=20, seed=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")

    with pytest.raises(UsageError, match="already exists"):
        train(spec_of(tmp_path / "l.parquet", tmp_path / "mine"))


def test_a_mistake_is_reported_before_torch_is_loaded(tmp_path: Path) -> None:
    pq.write_table(pa.table(CLASSES), tmp_path / "l.parquet")
    command = ["worker", "train", "--data", "l.parquet", "--base-model", "demo", "--output", "out"]

    done = run_command(*command, "--task", "regression", environment={"PYTHONPROFILEIMPORTTIME": "1"}, folder=tmp_path)

    assert done.returncode == 2
    assert 'The labels in "label" are string, not numbers. Use --task classification.' in done.stderr
    imported = {line.rpartition("| ")[2].strip() for line in done.stderr.splitlines()}
    assert "shardsift.worker.cli" in imported
    assert not {"torch", "transformers", "accelerate"} & imported
    assert not (tmp_path / "out").exists()


def test_the_command_prints_all_figures(tiny_base: str, tmp_path: Path) -> None:
    write_labelled(tmp_path / "l.parquet", rows=20, seed=0)
    command = ["worker", "train", "--data", "l.parquet", "--base-model", tiny_base, "--output", "out", "--json"]

    done = call_command(*command, environment={}, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["held_out"]["rows"] == 4


# --- the threshold ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "threshold", "are_classes"), [([0, 1], 0.5, True), ([0.0, 1.0], 0.5, False), ([1, 5], 3.0, False)]
)
def test_the_threshold_is_the_middle_of_the_labels(
    labels: list[float], threshold: float, are_classes: bool, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"text": TEXTS, "label": labels * 10}), tmp_path / "l.parquet")
    options = spec_of(tmp_path / "l.parquet", tmp_path / "out")

    split = read_split(options, label_source(options))

    assert (split.threshold, split.could_be_classes) == (threshold, are_classes)


def test_a_demo_encoder_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counterfeit" / "model").mkdir(parents=True)
    (tmp_path / "counterfeit" / "__init__.py").touch()
    (tmp_path / "counterfeit" / "model" / "model.safetensors").write_bytes(b"not these")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(shardsift.worker.training.base_model, "PACKAGE", "counterfeit")

    with pytest.raises(UsageError, match="are not those of all-MiniLM-L6-v2"):
        verified_demo_encoder()


def test_a_run_uses_the_threshold_and_the_next_command_can_be_pasted(
    tmp_path: Path, tiny_base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    pq.write_table(pa.table({"text": TEXTS, "label": [0, 1] * 10}), tmp_path / "shards" / "l.parquet")
    output, told = tmp_path / "my classifier", list[str]()

    report = train(spec_of(tmp_path / "shards", output, base_model=tiny_base), device="cpu", say=told.append)

    assert "mean absolute error" in str(report)
    assert any("--task classification" in line for line in told)
    options = RunOptions(input_uris=("shards",), models=(str(output),), output_uri="kept")
    assert plan_run(options).spec.where == '"score" >= 0.5'
    said, command = next_step(report).splitlines()
    assert str(output) in said
    dry = CliRunner().invoke(cli, [*shlex.split(command)[1:], "--dry-run", "--json"])
    assert dry.exit_code == 0, dry.output
