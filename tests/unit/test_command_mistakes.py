"""A wrong option, value or path is told with what the user typed and, if one is near, what was probably meant."""

import errno
import runpy
from collections.abc import Callable
from pathlib import Path

import fsspec
import huggingface_hub.constants
import pytest
from typer.testing import CliRunner

from shardsift.fleet.errors import ExitCode, UsageError
from shardsift.fleet.process.command_line import run_command_line
from shardsift.fleet.scorers.sequence_classifier import resolve_classifier
from shardsift.fleet.storage.errors import did_you_mean
from shardsift.producer.cli import cli
from shardsift.producer.planning.destination import place_lines
from shardsift.producer.planning.inputs import list_input


def said(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments, env={"COLUMNS": "300"})
    assert done.exit_code == 2
    return done.stderr


@pytest.mark.parametrize(
    ("option", "meant"),
    [("--inpt", "--input"), ("--threshold", "--min-score")],
)
def test_an_unknown_option_is_reported_with_those_that_are_like_it_or_about_it(option: str, meant: str) -> None:
    message = said("run", option, "3")

    assert f"No such option: {option} (Possible options: " in message
    assert meant in message


def test_files_that_the_shell_made_of_a_glob_are_reported_in_one_line(tmp_path: Path) -> None:
    files = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for file in files:
        Path(file).touch()

    message = told("run", "--model", "m", "--input", *files, "--keep-all")

    assert message.endswith(f"the shell has made 3 of it: quote the glob, --input '{tmp_path}/*.parquet'.")


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("--input", "--model", "m"), "--input has no value: --model follows it."),
        (("-input", "shards"), "There is no option -input. Did you mean --input?"),
        (("--where", "score", ">", "3"), "If it is a part of --where, quote all of it: --where 'score > 3'."),
        (("shards", "--model", "m"), "'shards' belongs to no option. Write a value after its option"),
    ],
)
def test_an_option_without_a_value_and_a_value_of_no_option_are_reported(
    arguments: tuple[str, ...], advice: str
) -> None:
    assert advice in told("run", *arguments)


@pytest.mark.parametrize("name", ["", "default", "Scores", "a/b", "..", ".a", "_a", "a.", "*", "year=2023", "é", "a b"])
def test_what_cannot_name_a_subset_is_reported_by_its_option(name: str) -> None:
    for option, others in (("--subset", ("--input", "shards")), ("--crawl", ())):
        assert f"{option} {name!r} cannot be the name of a subset. Use letters" in told("run", option, name, *others)


def test_a_crawl_twice_or_in_another_subset_is_reported() -> None:
    assert "A crawl is named twice: b, a, b." in told("run", "--crawl", "b", "--crawl", "a", "--crawl", "b")
    assert "Each --crawl is a subset of its own name" in told("run", "--crawl", "a", "--subset", "b")


def told(*arguments: str) -> str:
    """The one line of an error of ours."""
    done = CliRunner().invoke(cli, arguments)
    assert isinstance(done.exception, UsageError)
    return str(done.exception)


@pytest.mark.parametrize(("option", "value"), [("--rows-per-task", "0"), ("--dtype", "flot32")])
def test_a_wrong_value_is_reported_with_its_option(option: str, value: str) -> None:
    message = said("run", option, value)

    assert f"Invalid value for '{option}'" in message
    assert value in message.partition("Invalid value for")[2]


class TestPaths:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "mydata/part-1").mkdir(parents=True)
        (tmp_path / "mydata/a.parquet").touch()
        monkeypatch.chdir(tmp_path)

    @pytest.mark.parametrize(
        ("typed", "meant"),
        [
            ("./mydatta", "mydata"),
            ("mydata/a.parqet", "mydata/a.parquet"),
            ("mydata/prt-1/b.parquet", "mydata/part-1"),
            ("./mydatta/*.parquet", "mydata"),
            ("mydata/*.csv", None),
        ],
    )
    def test_an_input_that_is_not_there_is_reported_with_the_name_that_is_like_it_if_there_is_one(
        self, typed: str, meant: str | None, tmp_path: Path
    ) -> None:
        with pytest.raises(UsageError) as refused:
            list_input(typed)

        assert typed in str(refused.value)
        _, asks, name = str(refused.value).partition(" Did you mean ")
        assert (asks and name) == (f"{tmp_path / meant}?" if meant else "")

    def test_a_model_folder_that_is_not_there_is_reported_with_the_name_that_is_like_it(self, tmp_path: Path) -> None:
        (tmp_path / "mydatas").mkdir()
        (tmp_path / "mydatas/config.json").touch()

        with pytest.raises(UsageError, match=rf"no model folder \./mydat\. .* Did you mean {tmp_path}/mydatas\?"):
            resolve_classifier("./mydat", None)

    def test_an_output_like_a_name_on_the_hub_is_reported_to_be_a_folder(self) -> None:
        assert place_lines("me/kept") == (
            "--output me/kept is a folder here. For a dataset on the Hub, write --output hf://datasets/me/kept.",
        )
        for output in ("mydata/kept", "kept", "./me/kept", "me/kept/again", "hf://datasets/me/kept"):
            assert place_lines(output) == ()


def test_a_local_path_is_not_suggested_for_a_remote_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hf", "s3x"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)

    assert not did_you_mean("hf://datasets/a/b")
    assert not did_you_mean("s3://bucket/x")


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (OverflowError("too large"), ExitCode.UNEXPECTED, "too large\nproducer: this error was not expected."),
        (OSError(errno.ENOSPC, "No space left", "/scores"), 2, "producer: the disk of / is full: no space left."),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 2, "producer: the disk is full: no space left. Free some"),
        (MemoryError("no room\nfor a row"), 2, "producer: out of memory (no room for a row)."),
    ],
)
def test_an_unexpected_error_has_an_exit_code_of_its_own_and_a_lack_of_disk_space_or_memory_is_no_bug(
    error: Exception, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong() -> None:
        raise error

    assert exit_code_of(wrong) == code
    assert says in capsys.readouterr().err


def test_settings_that_a_library_cannot_read_are_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conf.json").write_text("{")
    monkeypatch.setenv("FSSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "abc")
    constants = huggingface_hub.constants.__file__

    for command, says in (
        (
            lambda: runpy.run_path(constants, run_name="huggingface_hub.constants"),
            "variable HF_HUB_DOWNLOAD_TIMEOUT is",
        ),
        (lambda: fsspec.config.set_conf_files(str(tmp_path), {}), f"settings of fsspec in {tmp_path} cannot be read: "),
    ):
        assert exit_code_of(command) == 2
        assert says in capsys.readouterr().err.splitlines()[0]


def exit_code_of(command: Callable[[], object]) -> object:
    with pytest.raises(SystemExit) as ended:
        run_command_line("producer", command)
    return ended.value.code
