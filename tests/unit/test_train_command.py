"""The command of a model's card trains what the options say."""

from shardsift.worker.training.options import TrainOptions


def test_the_command_has_each_option_that_is_not_the_default() -> None:
    options = TrainOptions(
        data="labelled.parquet",
        base_model="me/encoder",
        output="out",
        validation="unseen.parquet",
        held_out=0.1,
        full=True,
        accumulate=4,
        loader_processes=4,
    )

    assert options.command == [
        *("worker", "train", "--base-model", "me/encoder", "--output", "out", "--data", "labelled.parquet"),
        *("--validation", "unseen.parquet", "--held-out", "0.1"),
        *("--full", "--accumulate", "4"),
    ]
