"""The Python API takes the command line's options by the same names."""

import inspect
from dataclasses import MISSING
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

import shardsift
from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.keywords import keywords_of, options_from
from shardsift.fleet.run.options import ScoreKeywords, ScoreOptions, split_at_commas
from shardsift.producer.cli import cli
from shardsift.producer.planning.options import (
    Ranking,
    RankingKeywords,
    RefilterKeywords,
    RefilterOptions,
    RunKeywords,
    RunOptions,
)
from shardsift.worker.cli import cli as worker_cli
from shardsift.worker.training.train_options import TrainKeywords, TrainOptions

OF_THE_COMMAND_LINE_ONLY = {
    "as_json",  # a returned object has `as_json()`
    "dry_run",
    "preview",
    "wait",  # `status` waits
}
OF_PYTHON_ONLY = {"progress", "redis_url"}


def options_of(command: str, program: typer.Typer) -> set[str]:
    """The names of a command's options, as keyword arguments."""
    found = typer.main.get_command(program).commands[command].params  # type: ignore[attr-defined]
    return {option.opts[0].removeprefix("--").replace("-", "_").replace("json", "as_json") for option in found}


@pytest.mark.parametrize(
    ("name", "kind", "program"),
    [
        ("run", RunOptions, cli),
        ("enqueue", RunOptions, cli),
        ("refilter", RefilterOptions, cli),
        ("train", TrainOptions, worker_cli),
    ],
)
def test_each_option_of_a_command_is_a_keyword_with_help(name: str, kind: type[Any], program: typer.Typer) -> None:
    keywords = set(inspect.signature(getattr(shardsift, name)).parameters) - OF_PYTHON_ONLY
    text = inspect.getdoc(getattr(shardsift, name)) or ""

    assert keywords == options_of(name, program) - OF_THE_COMMAND_LINE_ONLY
    assert all(f"\n{keyword}: " in text for keyword in keywords_of(kind))
    assert "--" not in text


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [
        (RunOptions, RunKeywords),
        (RefilterOptions, RefilterKeywords),
        (Ranking, RankingKeywords),
        (ScoreOptions, ScoreKeywords),
        (TrainOptions, TrainKeywords),
    ],
)
def test_each_option_has_a_type_for_python(kind: type[Any], keywords: Any) -> None:
    required = {name for name, (field, _) in keywords_of(kind).items() if has_no_default(kind, field)}

    assert set(get_type_hints(keywords)) == set(keywords_of(kind))
    assert keywords.__required_keys__ == required


def has_no_default(kind: type[Any], field: str) -> bool:
    return kind.__dataclass_fields__[field].default is MISSING


@pytest.mark.parametrize(
    ("name", "given", "same"),
    [
        ("columns", ["id", "meta:json"], "id,meta:json"),
        ("text_column", ["title", "body"], "title,body"),
    ],
)
def test_a_list_is_what_the_command_line_parts_at_commas(name: str, given: Any, same: str) -> None:
    assert options_from(RunOptions, {name: given}) == options_from(RunOptions, {name: same})


def test_a_name_with_a_comma_in_a_list_is_refused_as_it_would_be_two() -> None:
    with pytest.raises(UsageError, match=r"columns=\['a,b'\] is wrong: the name 'a,b' has a comma"):
        options_from(RunOptions, {"columns": ["a,b"]})


def test_paths_and_single_inputs_are_taken() -> None:
    here = str(Path("a").absolute())
    one, two = (options_from(RunOptions, {"input": given}) for given in ("a", ["b", Path("a")]))

    assert (one.input_uris, two.input_uris) == (("a",), ("b", here))
    assert options_from(RunOptions, {"output": Path("a"), "dtype": None}) == RunOptions(output_uri=here)
    assert options_from(RunOptions, {"crawl": "a"}).crawls == ("a",)
    assert options_from(RunOptions, {"crawl": ["a", "b"]}).crawls == ("a", "b")
    assert options_from(RunOptions, {"labels": iter(["a", "b"])}).labels == ("a", "b")
    assert options_from(RunOptions, {"drop_list": {Path("a.csv:b"): "url"}}).drop_lists == ("a.csv:b=url",)


@pytest.mark.parametrize(("given", "labels"), [("a,b", ("a", "b")), (["a, b"], ("a, b",)), ("@a,b", ("@a,b",))])
def test_labels_in_one_text_are_parted_at_commas_as_on_the_command_line(given: Any, labels: tuple[str, ...]) -> None:
    assert options_from(RunOptions, {"labels": given}, labels=split_at_commas).labels == labels


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dtype": "bf16"}, "dtype='bf16' is wrong: Input should be 'auto', "),
        ({"rows_per_task": -1}, "rows_per_task=-1 is wrong: the least is 1"),
        ({"max_bad_rows": 2}, "max_bad_rows=2 is wrong: the most is 1"),
        ({"min_score": "high"}, "min_score='high' is wrong: Input should be a valid number"),
        ({"input": ["a", 3]}, "input=.* is wrong"),
        ({"input": []}, "input is empty"),
        ({"labels": {"a"}}, r"labels=\{'a'\} is wrong: a set has no order\. Pass a list\."),
    ],
)
def test_a_wrong_value_is_refused_by_its_keyword(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        options_from(RunOptions, given)


def test_an_unknown_keyword_is_a_type_error_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"There is no option 'text_colum'\. Did you mean 'text_column'\?"):
        shardsift.run(text_colum="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"There is no option 'qqq'\. The options are: crawl, input, "):
        shardsift.run(qqq="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"There is no option 'limit_rows'\. The options are: min_score, "):
        shardsift.refilter("./kept", output="./best", min_score=3, limit_rows=9)  # type: ignore[call-arg]


@pytest.mark.parametrize("workers", [0, 1.5, "2"])
def test_workers_are_a_whole_number(workers: Any) -> None:
    with pytest.raises(UsageError, match=f"^workers={workers!r} is wrong: it is a whole number, and the least is 1"):
        shardsift.run(workers=workers)


@pytest.mark.parametrize("place", [None, 3, ["./a", "./b"]])
def test_what_is_no_path_uri_or_run_is_reported(place: Any) -> None:
    for call in (shardsift.scores, shardsift.verify, shardsift.refilter):
        with pytest.raises(UsageError, match="is no path, URI or id of a run: pass one text or Path"):
            call(place)


def test_what_is_no_id_of_a_run_is_told() -> None:
    for call in (shardsift.status, shardsift.pause, shardsift.resume, shardsift.cancel, shardsift.retry):
        with pytest.raises(UsageError, match="^run_id=3 is wrong: it is the id of a run as a text, or its unique"):
            call(3)  # type: ignore[operator]


def test_options_of_a_training_that_are_missing_are_named() -> None:
    with pytest.raises(TypeError, match="^Name base_model and output, which have no default"):
        shardsift.train()  # type: ignore[call-arg]


def test_a_machine_without_torch_is_told_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(shardsift.UsageError, match=r"needs torch.* pip install 'shardsift\[worker\]'"):
        shardsift.load_scorer(tmp_path)
