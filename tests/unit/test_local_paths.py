"""A path of this machine is taken as it is, whatever its name has of a URL, a glob or a home folder."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from shardsift.fleet.inputs.identity import identity_now
from shardsift.fleet.inputs.open_input import list_files, open_input
from shardsift.fleet.process.redact import refuse_secrets
from shardsift.fleet.process.wording import is_url
from shardsift.fleet.run.model import model_names, with_revision
from shardsift.fleet.storage.files import Files
from shardsift.fleet.storage.hub_files import filesystem_of
from shardsift.producer.planning.destination import check_output_place
from shardsift.producer.planning.inputs import absolute_uri, list_input
from shardsift.worker.training.train import ModelFolder, model_output

NAMES = [
    *("a::b", "s3:", "a://b", "a/b::c://d", "a#b", "a?b=c&token=d", "a%20b", "a b ", "a."),
    *("-a", "~", "~root", "x[1]", "*", "a@b", "{a}", "a,b", "naïve"),
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["relative", "absolute", "file"])
def spelled(request: pytest.FixtureRequest) -> str:
    return {"relative": "./", "absolute": f"{Path.cwd()}/", "file": f"file://{Path.cwd()}/"}[request.param]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_written_and_read_where_the_path_says(tmp_path: Path, name: str, spelled: str) -> None:
    files = Files(f"{spelled}{name}")
    files.write("data/x.parquet", b"PAR1", aside=".shardsift/x")

    assert (tmp_path / name / "data/x.parquet").read_bytes() == b"PAR1"
    assert {place.name for place in tmp_path.iterdir()} == {name.split("/")[0]}
    assert files.sizes("data") == {"data/x.parquet": 4}
    assert identity_now(f"{spelled}{name}/data/x.parquet")[1] == 4


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_found_below_a_folder_of_any_name(tmp_path: Path, name: str, spelled: str) -> None:
    file = tmp_path / name / "x.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"text": ["a"]}), file)

    for below in ("", "/", "/x.parquet", "/*.parquet", "/**/*.parquet", "/[xy].parquet"):
        source = list_input(f"{spelled}{name}{below}")

        (shard,) = source.shards
        assert (shard.name, shard.uri) == ("x", f"file://{file}")
        with open_input(shard.uri) as opened:
            assert opened.count_rows() == 1
        assert list_input(*source.uris).shards == source.shards


@pytest.mark.parametrize(
    "name", ["a::b.parquet", "a#b.parquet", "x[1].parquet", "*.parquet", "a?.parquet", "~a.parquet"]
)
def test_a_file_is_found_by_its_name_before_a_glob(tmp_path: Path, name: str) -> None:
    for one in (name, "x1.parquet"):
        (tmp_path / one).write_bytes(b"")

    assert list_files(f"./{name}").uris == [f"file://{tmp_path}/{name}"]


@pytest.mark.parametrize("name", NAMES)
def test_an_output_and_a_model_are_at_their_own_places(tmp_path: Path, name: str, spelled: str) -> None:
    uri = f"{spelled}{name}"

    check_output_place(uri)
    refuse_secrets("--output", uri)
    assert filesystem_of(absolute_uri(uri))[1] == filesystem_of(uri)[1] == str(tmp_path / name)
    output = model_output(uri.removeprefix("file://"))
    assert isinstance(output, ModelFolder)
    assert output.partial.parent == (tmp_path / name).parent
    (tmp_path / name).mkdir(parents=True)
    assert with_revision(uri.removeprefix("file://")) == (uri.removeprefix("file://"), None)
    assert model_names(uri.removeprefix("file://")) == (uri.removeprefix("file://"),)


@pytest.mark.parametrize(
    "path", ["a::b", "./s3://b/x", "/s3://b/x", "~/a://b", "a b://c", "-://", "://x", "file:///a::b"]
)
def test_only_what_begins_with_a_protocol_is_a_url(path: str) -> None:
    assert not is_url(path)
    assert isinstance(filesystem_of(path)[0], LocalFileSystem)


@pytest.mark.parametrize(
    "url", ["hf://datasets/a/b", "s3://b", "S3A://b", "zip://a.parquet::/x.zip", "simplecache::s3://b/x"]
)
def test_a_protocol_makes_a_url(url: str) -> None:
    assert is_url(url)


def test_a_tilde_at_the_start_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/some::home")

    assert filesystem_of("~/x")[1] == absolute_uri("~/x") == "/some::home/x"
