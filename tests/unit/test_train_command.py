"""The command of a model's card gives the spec that it was trained with."""

import typer

from worker.cli import cli
from worker.training.spec import FullTraining, TrainSpec, train_command

SPEC = TrainSpec(
    data_uri="labelled.parquet",
    base_model="me/encoder",
    output_uri="out",
    class_weights="balanced",
    validation_uri="unseen.parquet",
    held_out_share=0.1,
    full=FullTraining(accumulation_steps=4, patience=3),
)


def test_the_command_has_each_option_that_is_not_the_default() -> None:
    assert train_command(SPEC) == [
        *("worker", "train", "--data", "labelled.parquet", "--base-model", "me/encoder", "--output", "out"),
        *("--class-weights", "balanced", "--validation", "unseen.parquet", "--held-out", "0.1"),
        *("--full", "--accumulate", "4", "--patience", "3"),
    ]


def test_worker_train_knows_every_option_of_a_spec() -> None:
    changed = TrainSpec(
        **{name: "x" for name in ("data_uri", "text_column", "label_column", "base_model", "output_uri")},
        label_with="x",
        min_label_score=0.5,
        task="classification",
        class_weights="balanced",
        dtype="float32",
        max_tokens=1,
        threshold=1.0,
        validation_uri="x",
        held_out_share=0.1,
        seed=1,
        full=FullTraining(
            epochs=1.0,
            learning_rate=1.0,
            batch_rows=1,
            accumulation_steps=2,
            weight_decay=1.0,
            warmup_share=0.5,
            checkpoint_steps=1,
            patience=1,
        ),
    )
    command = typer.main.get_command(cli).commands["train"]  # type: ignore[attr-defined]
    known = {name for option in command.params for name in option.opts}

    assert {part for part in train_command(changed) if part.startswith("--")} <= known
