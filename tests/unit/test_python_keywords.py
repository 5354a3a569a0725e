"""The Python API takes the command line's options by the same names, or a value that holds them."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import typer

import shardsift
from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.command_line import keywords_of, keywords_told, options_from, with_keywords
from shardsift.fleet.run.options import split_at_commas
from shardsift.producer.cli import cli
from shardsift.producer.planning.options import RunOptions
from shardsift.worker.cli import cli as worker_cli
from shardsift.worker.training.options import TrainOptions

OF_THE_COMMAND_LINE_ONLY = {
    "as_json",  # a returned object has `as_json()`
    "dry_run",
    "wait",  # `status` waits
}
OF_PYTHON_ONLY = {"progress", "redis_url", "options", "keywords"}


def options_of(command: str, program: typer.Typer) -> set[str]:
    """The names of a command's options, as keyword arguments."""
    found = typer.main.get_command(program).commands[command].params  # type: ignore[attr-defined]
    return {option.opts[0].removeprefix("--").replace("-", "_").replace("json", "as_json") for option in found}


@pytest.mark.parametrize(
    ("name", "kind", "program"),
    [("run", RunOptions, cli), ("enqueue", RunOptions, cli), ("train", TrainOptions, worker_cli)],
)
def test_each_option_of_a_command_is_a_keyword_argument_that_help_explains(
    name: str, kind: type[Any], program: typer.Typer
) -> None:
    own = set(inspect.signature(getattr(shardsift, name)).parameters) - OF_PYTHON_ONLY
    text = inspect.getdoc(getattr(shardsift, name)) or ""

    assert own | set(keywords_of(kind)) == options_of(name, program) - OF_THE_COMMAND_LINE_ONLY
    assert all(f"\n{keyword}: " in text for keyword in keywords_of(kind))
    assert "--" not in text


def test_paths_and_single_inputs_are_taken() -> None:
    here = str(Path("a").absolute())
    one, two = (options_from(None, RunOptions, {"input": given}) for given in ("a", ["b", Path("a")]))

    assert (one.input_uris, two.input_uris) == (("a",), ("b", here))
    assert options_from(None, RunOptions, {"output": Path("a"), "dtype": None}) == RunOptions(output_uri=here)
    assert options_from(None, RunOptions, {"labels": iter(["a", "b"])}).labels == ("a", "b")


@pytest.mark.parametrize(("given", "labels"), [("a,b", ("a", "b")), (["a, b"], ("a, b",)), ("@a,b", ("@a,b",))])
def test_labels_in_one_text_are_parted_at_commas_as_on_the_command_line(given: Any, labels: tuple[str, ...]) -> None:
    assert options_from(None, RunOptions, {"labels": given}, labels=split_at_commas).labels == labels


def test_options_are_taken_as_a_value_too() -> None:
    options = RunOptions(input_uris=("a",))

    assert options_from(options, RunOptions, {}) is options
    with pytest.raises(TypeError, match="Pass RunOptions or keyword arguments, not both"):
        options_from(options, RunOptions, {"input": "b"})
    with pytest.raises(TypeError, match="options is a RunOptions, not a dict"):
        options_from({"input": "b"}, RunOptions, {})  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dtype": "bf16"}, "dtype='bf16' is wrong: Input should be 'auto', "),
        ({"limit_rows": 0}, "limit_rows=0 is wrong: the least is 1"),
        ({"rows_per_task": -1}, "rows_per_task=-1 is wrong: the least is 1"),
        ({"max_bad_rows": 2}, "max_bad_rows=2 is wrong: the most is 1"),
        ({"min_score": "high"}, "min_score='high' is wrong: Input should be a valid number"),
        ({"text_column": 3}, "text_column=3 is wrong: Input should be a valid string"),
        ({"input": 3}, "input=3 is wrong"),
        ({"input": ["a", 3]}, "input=.* is wrong"),
        ({"input": []}, "input is empty"),
        ({"labels": {"a", "b"}}, "labels=.* is wrong"),
    ],
)
def test_a_wrong_value_is_refused_by_its_keyword(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        options_from(None, RunOptions, given)


def test_a_wrong_value_of_a_training_is_refused_by_its_keyword() -> None:
    for given, says in (
        ({"epochs": 0}, "^epochs=0 is wrong: the least"),
        ({"device": "gpu"}, "^device='gpu' is wrong"),
    ):
        with pytest.raises(UsageError, match=says):
            shardsift.train(base_model="m", output="o", **given)


def test_an_unknown_keyword_is_a_type_error_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match="There is no option 'inputs'. The options are: crawl, input, "):
        shardsift.run(inputs="a")


def test_errors_name_options_as_a_python_user_writes_them() -> None:
    with (
        pytest.raises(UsageError, match=r"^Name a string column with text_column\.$"),
        keywords_told(),
    ):
        raise UsageError("Name a string column with --text-column.")


@pytest.mark.parametrize("text", ["a -- b", "half--way", "--- a ---", "producer status x.y-z"])
def test_other_dashes_stay(text: str) -> None:
    assert with_keywords(text) == text


def test_a_machine_without_torch_is_told_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(shardsift.UsageError, match=r"has no torch.* pip install 'shardsift\[worker\]'"):
        shardsift.load_scorer(tmp_path)
