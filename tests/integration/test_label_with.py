"""A small model learns the labels and scores that an earlier run has published, of the texts that the run has scored."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.worker.training.labelled import label_source, read_labelled, read_split
from shardsift.worker.training.train import train
from shardsift.worker.training.train_options import TrainOptions
from support.labelled import write_topics
from support.models import tiny_classifier
from support.nli import nli_classifier
from support.outputs import published_rows
from support.small_run import Runs

LABELS = ("climate change", "technology", "health")
ROWS = 96

pytestmark = pytest.mark.usefixtures("one_thread", "pictures")


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Columns `text` and `topic`."""
    file = write_topics(tmp_path_factory.mktemp("topics") / "topics.parquet", rows=ROWS)
    pq.write_table(pq.read_table(file).drop_columns(["label"]), file)
    return file


@pytest.fixture(scope="module")
def teacher(topics: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tells three topics apart."""
    folder = tmp_path_factory.mktemp("teacher")
    base, output = tiny_classifier(folder / "base"), folder / "large"
    spec = TrainOptions(
        data=str(topics), label_column="topic", base_model=str(base), output=str(output), dtype="float32"
    )
    train(spec, device="cpu")
    return output


def spec_of(run: Path, base: Path, tmp_path: Path, **options: Any) -> TrainOptions:
    spec = TrainOptions(label_with=str(run), base_model=str(base), output=str(tmp_path / "small"), dtype="float32")
    return dataclasses.replace(spec, **options)


def test_the_scores_of_a_model_with_one_output_are_learned_as_numbers(
    runs: Runs, shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """The student has the teacher's encoder, so it can give exactly the teacher's scores."""
    run = runs.publish(shards, "labelled")

    report = train(spec_of(run, tiny_model, tmp_path), device="cpu")

    scores = published_rows(run)["score"].to_numpy()
    assert report.classes == ()
    assert report.rows == len(scores) == ROWS
    assert report.held_out.mae is not None
    assert report.held_out.mae < 0.2 * np.std(scores)


def test_the_labels_of_a_model_with_several_are_learned_as_classes_of_the_rows_that_the_run_kept(
    runs: Runs, topics: Path, teacher: Path, tmp_path: Path
) -> None:
    run = runs.by(teacher).publish(topics, where="label <> 'sport'")
    spec = spec_of(run, teacher, tmp_path)

    split = read_split(spec, label_source(spec))

    kept = published_rows(run)
    assert split.rows == kept.num_rows < ROWS
    assert split.target.classes == tuple(sorted(set(kept["label"].to_pylist()))) == ("biology", "cooking")


def test_a_zero_shot_run_says_itself_which_texts_and_labels_to_learn(
    runs: Runs, tiny_model: Path, tmp_path: Path
) -> None:
    titles = [f"Title {row} about sea level and ships" for row in range(40)]
    texts = ["" if row % 4 == 0 else f"Post {row} says more of it." for row in range(40)]
    pq.write_table(pa.table({"title": titles, "selftext": texts}), tmp_path / "posts.parquet")
    zero_shot = runs.by(topic=nli_classifier(tmp_path / "nli", "BERT"))
    run = zero_shot.publish(tmp_path / "posts.parquet", labels=LABELS, text_column="title,selftext")

    rows = read_labelled(label_source(spec_of(run, tiny_model, tmp_path)))

    kept = published_rows(run)
    assert rows.texts.to_pylist()[:2] == [titles[0], f"{titles[1]}\n\n{texts[1]}"]
    assert rows.labels.to_pylist() == kept["topic_label"].to_pylist()


def test_texts_are_put_together_by_the_runs_template(runs: Runs, topics: Path, teacher: Path, tmp_path: Path) -> None:
    run = runs.by(teacher).publish(topics, "labelled", text_column="{topic}: {text}")
    spec = spec_of(run, teacher, tmp_path)

    train(spec, device="cpu")

    assert read_labelled(label_source(spec)).texts[0].as_py().startswith("biology: the ")
    card = (tmp_path / "small" / "README.md").read_text()
    assert "producer run --input ./shards --text-column '{topic}: {text}' --model small" in card
    assert f"the labels of `{teacher.name}`" in card
    assert "worker train --base-model large --output small --label-with labelled" in card
    assert str(tmp_path) not in card


def test_of_a_run_with_several_models_one_must_be_named(
    runs: Runs, topics: Path, tiny_model: Path, teacher: Path, tmp_path: Path
) -> None:
    run = runs.by(edu=tiny_model, topic=teacher).publish(topics)
    spec = spec_of(run, tiny_model, tmp_path)

    for wrong in (None, "toxicity"):
        with pytest.raises(
            UsageError, match=r"has 2 models. Name what to learn with --label-column: edu_score or topic_label\."
        ):
            label_source(dataclasses.replace(spec, label_column=wrong))

    named = dataclasses.replace(spec, label_column="topic_label")
    assert read_split(named, label_source(named)).target.classes


@pytest.mark.parametrize("given", [{}, {"data": "x.parquet", "label_with": "labelled"}])
def test_labels_come_from_files_or_from_a_run(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="either --data FILES or --label-with OUTPUT"):
        label_source(TrainOptions(base_model="x", output="small", **given))
