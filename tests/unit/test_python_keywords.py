"""The Python API has the command line's options, by the same names: what is added to one cannot be missing in the other."""

import inspect
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import typer

import shardsift
from fleet.errors import UsageError
from fleet.process.command_line import keywords_told, with_keywords
from producer.cli import cli
from producer.keywords import RunKeywords, keyword, run_options
from producer.planning.options import RunOptions
from worker.api.score import LoadOptions
from worker.api.train import TrainKeywords, train_options
from worker.cli import cli as worker_cli
from worker.training.options import TrainOptions

OF_THE_COMMAND_LINE_ONLY = {
    "as_json",  # a returned object has `as_json()`
    "dry_run",
    "wait",  # `status` waits
}
OF_PYTHON_ONLY = {"progress", "redis_url"}


def options_of(command: str, program: typer.Typer = cli) -> set[str]:
    """The names of a command's options, as keyword arguments."""
    found = typer.main.get_command(program).commands[command].params  # type: ignore[attr-defined]
    return {option.opts[0].removeprefix("--").replace("-", "_").replace("json", "as_json") for option in found}


@pytest.mark.parametrize("name", ["run", "enqueue", "verify"])
def test_each_option_of_a_command_is_a_keyword_argument(name: str) -> None:
    keywords = set(inspect.signature(getattr(shardsift, name)).parameters)

    assert keywords - OF_PYTHON_ONLY == options_of(name) - OF_THE_COMMAND_LINE_ONLY


def test_each_option_of_worker_train_is_a_keyword_argument_with_its_default_and_type() -> None:
    parameters = inspect.signature(shardsift.train).parameters
    assert set(parameters) - OF_PYTHON_ONLY == options_of("train", worker_cli) - OF_THE_COMMAND_LINE_ONLY
    assert {*TrainKeywords.__annotations__, "base_model", "output"} == set(inspect.signature(TrainOptions).parameters)

    types = get_type_hints(TrainOptions, include_extras=True)
    for field in inspect.signature(TrainOptions).parameters.values():
        assert parameters[field.name].default == field.default
        assert accepts(parameters[field.name].annotation, get_args(types[field.name])[0]), field.name


@pytest.mark.parametrize("name", ["run", "enqueue"])
def test_defaults_and_types_are_those_of_the_options(name: str) -> None:
    parameters = inspect.signature(getattr(shardsift, name)).parameters
    for field in inspect.signature(RunOptions).parameters.values():
        parameter = parameters[keyword(field.name)]
        kind = get_args(get_type_hints(RunOptions, include_extras=True)[field.name])[0]

        assert parameter.default == field.default
        assert accepts(parameter.annotation, kind), field.name


def accepts(annotation: Any, kind: Any) -> bool:
    """Whether an annotation is the same, or also takes paths or a single value."""
    single = str if get_origin(kind) is tuple else kind
    return annotation == kind or single in get_args(annotation) or {*get_args(kind)} < {*get_args(annotation)}


def test_type_checkers_see_the_same_keywords() -> None:
    assert set(RunKeywords.__annotations__) == {keyword(name) for name in inspect.signature(RunOptions).parameters}
    loading = list(inspect.signature(shardsift.load_scorer).parameters.values())[1:]
    shown = inspect.signature(shardsift.score).parameters.values()
    assert [one for one in shown if one in loading] == loading
    assert get_type_hints(LoadOptions) == {parameter.name: parameter.annotation for parameter in loading}


def test_help_tells_what_each_option_means() -> None:
    text = inspect.getdoc(shardsift.run) or ""

    assert "\nlimit_rows: Stop after N rows in total.\n" in text
    assert "instead of crawl" in text
    assert "--" not in text
    of_train = inspect.getdoc(shardsift.train) or ""
    assert "\naccumulate: Batches of a step. 4 with batch_rows 8 train as batch_rows 32, in less memory.\n" in of_train
    assert "--" not in of_train


def test_paths_and_single_inputs_are_taken() -> None:
    one, two = (run_options({"input": given}) for given in (Path("a"), ["a", Path("b")]))

    assert (one.input_uris, two.input_uris) == (("a",), ("a", "b"))
    assert run_options({"output": Path("out"), "model": Path("m")}) == RunOptions(output_uri="out", models=("m",))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dtype": "bf16"}, "dtype='bf16' is wrong: Input should be 'auto', "),
        ({"limit_rows": 0}, "limit_rows=0 is wrong: the least is 1"),
        ({"min_score": "high"}, "min_score='high' is wrong: Input should be a valid number"),
        ({"text_column": 3}, "text_column=3 is wrong: Input should be a valid string"),
        ({"input": 3}, "input=3 is wrong"),
        ({"input": ["a", 3]}, "input=.* is wrong"),
    ],
)
def test_a_wrong_value_is_refused_by_its_keyword(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run_options(given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"data": 3}, "^data=3 is wrong: Input should be a valid string"),
        ({"epochs": 0}, "^epochs=0 is wrong: the least is 0.001"),
        ({"held_out": 2}, "^held_out=2 is wrong: the most is 0.9"),
        ({"device": "gpu"}, "^device='gpu' is wrong: "),
        ({"dtype": "float8"}, "^dtype='float8' is wrong: Input should be 'auto', "),
    ],
)
def test_a_wrong_value_of_a_training_is_refused_by_its_keyword(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        shardsift.train(base_model="m", output="o", **given)


def test_paths_and_unknown_keywords_of_a_training() -> None:
    chosen = train_options({"base_model": Path("m"), "output": Path("o"), "data": "d", "label_with": Path("kept")})

    assert (chosen.base_model, chosen.output, chosen.data) == ("m", "o", "d")
    assert chosen.label_with == str(Path("kept").absolute())  # a folder, and not the id of a run
    with pytest.raises(TypeError, match="There is no option 'batch_size'. The options are: base_model, output, data, "):
        shardsift.train(base_model="m", output="o", batch_size=8)  # type: ignore[call-arg]


def test_an_unknown_keyword_is_a_type_error_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match="There is no option 'inputs'. The options are: crawl, dataset, input, "):
        run_options({"inputs": "a"})


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
