"""An output belongs to one run: data of another run or of somebody else is refused and left alone."""

import re
from contextlib import suppress
from pathlib import Path

import fsspec
import pytest
from huggingface_hub import HfApi, HfFileSystem

from hubserver import HubServer
from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import MANIFEST_PATH
from support.output_runs import RUN, SPEC, A, Place, without_the_hub
from support.outputs import Published
from support.records import a_spec

OTHER = a_spec(where=None)


class TestABucketOnTheHub:
    @pytest.mark.parametrize("public", [False, True])
    def test_a_bucket_that_is_not_there_is_made_and_keeps_its_visibility(self, bucket: str, public: bool) -> None:
        output = FolderOutput(f"{bucket}/kept", RUN)
        output.check_free(SPEC)
        assert not HfFileSystem().exists(bucket)

        output.reserve(SPEC, public=public)
        FolderOutput(f"{bucket}/kept", RUN).reserve(SPEC, public=not public)

        assert HfApi().bucket_info(bucket.removeprefix("hf://buckets/")).private is not public
        assert Published(f"{bucket}/kept").hidden_paths() == {f".shardsift/{RUN}/spec.json"}

    def test_a_bucket_that_does_not_answer_is_not_taken_for_free(self, bucket: str, running_hub: HubServer) -> None:
        FolderOutput(bucket, RUN).reserve(SPEC)
        running_hub.fault("/paths-info", status=403)

        with pytest.raises(ShardError, match="the Hub refuses this"):
            FolderOutput(bucket, "other").check_free(OTHER)

    def test_a_bucket_that_may_not_be_written_is_named(self, bucket: str, running_hub: HubServer) -> None:
        running_hub.fault("/batch", status=403)

        with pytest.raises(UsageError, match=r"the Hub refuses this .* Choose an --output that can be written"):
            FolderOutput(bucket, RUN).reserve(SPEC)

    def test_a_bucket_that_was_deleted_is_no_fault_of_the_shard(self, bucket: str, tmp_path: Path) -> None:
        with pytest.raises(ShardError, match="shows no such repository or bucket") as refused:
            Place(Published(bucket), tmp_path).stage(A)

        assert refused.value.of_machine


class TestReserving:
    def test_the_same_run_may_reserve_again_before_and_after_it_published(self, place: Place) -> None:
        place.reserve()
        place.publish(place.stage(A))
        before = place.files.visible()

        place.reserve()

        assert place.files.visible() == before

    def test_an_output_of_another_run_is_refused_until_that_run_gives_it_up(self, place: Place) -> None:
        other = open_output(place.uri, OTHER.run_id)

        for refused in (other.check_free, other.reserve):
            with pytest.raises(UsageError, match=f"(holds the data of|is reserved by) another run, {RUN}"):
                refused(OTHER)
        place.output.withdraw()
        place.output.withdraw()
        other.reserve(OTHER)

        with pytest.raises(UsageError, match=f"another run, {OTHER.run_id}"):
            place.reserve()
        assert place.files.visible() == {}

    def test_an_output_that_another_run_has_published_is_refused(self, place: Place) -> None:
        place.publish(place.stage(A))
        place.output.tidy([])

        with pytest.raises(UsageError, match=f"holds the data of another run, {RUN}") as refused:
            open_output(place.uri, OTHER.run_id).reserve(OTHER)
        assert str(refused.value).endswith(f": producer refilter {place.uri} --keep-all --output URI")

    def test_looking_whether_an_output_is_free_reserves_nothing(self, empty: Place) -> None:
        empty.output.check_free(SPEC)

        open_output(empty.uri, OTHER.run_id).reserve(OTHER)

    @pytest.mark.parametrize(
        ("path", "content", "says"),
        [
            *(
                (path, b"theirs", r"holds data, but no manifest\.parquet")
                for path in ("data/a", "scores/a", MANIFEST_PATH)
            ),
            ("scores.png", b"theirs", r"has a scores\.png, which the card of the dataset would replace"),
            *(
                ("README.md", card, r"has a README\.md, which the card of the dataset would replace")
                for card in (b"# My notes", b"---\nlicense: mit\n---\n# My notes", b"\xff")
            ),
        ],
    )
    def test_files_of_somebody_else_are_refused(self, empty: Place, path: str, content: bytes, says: str) -> None:
        empty.files.write(path, content)

        with pytest.raises(UsageError, match=says):
            empty.reserve()

        assert empty.files.visible() == {path: content}

    @pytest.mark.parametrize(
        ("path", "content"),
        [("notes.txt", b"mine"), *(("README.md", card) for card in (b"", b" \n", b"---\nlicense: mit\n---\n"))],
    )
    def test_other_files_and_an_empty_card_are_no_hindrance(self, empty: Place, path: str, content: bytes) -> None:
        empty.files.write(path, content)

        empty.reserve()

        assert empty.files.visible() == {path: content}


@without_the_hub
class TestFoldersAround:
    @pytest.mark.parametrize("below", ["data", "a/b/c/d"])
    def test_an_output_inside_that_of_another_run_is_refused(self, place: Place, below: str) -> None:
        place.publish(place.stage(A))
        before = place.files.visible()
        other = FolderOutput(f"{place.uri}/{below}", "other")
        around = rf"lies inside or around .*out[^ ]*, the output of another run, {RUN}\."

        with pytest.raises(UsageError, match=f"The output {re.escape(other.uri)} {around}"):
            other.reserve(SPEC)
        place.files.delete(".shardsift")  # as a copy of what is published
        with pytest.raises(UsageError, match=around):
            other.reserve(SPEC)

        assert place.files.visible() == before

    @pytest.mark.parametrize("below", ["kept", "2024/kept"])
    def test_an_output_around_that_of_another_run_is_refused(self, empty: Place, below: str) -> None:
        FolderOutput(f"{empty.uri}/{below}", RUN).reserve(SPEC)

        with pytest.raises(UsageError, match=rf"inside or around .*{below}, the output of another run, {RUN}\."):
            FolderOutput(empty.uri, "other").reserve(SPEC)

        assert empty.hidden() == set()

    def test_a_reserved_output_stays_reserved_whatever_is_found_around_it_later(self, empty: Place) -> None:
        output = FolderOutput(f"{empty.uri}/kept", RUN)
        output.reserve(SPEC)
        empty.files.write(".shardsift/other/spec.json", SPEC.to_json())

        output.reserve(SPEC)

        assert Published(output.uri).hidden_paths() == {f".shardsift/{RUN}/spec.json"}


class TestFolders:
    def test_links_are_followed_to_the_output_of_another_run(self, tmp_path: Path) -> None:
        FolderOutput(str(tmp_path / "out"), RUN).reserve(SPEC)
        (tmp_path / "out/data").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "out/data")

        with pytest.raises(UsageError, match=f"lies inside or around {tmp_path}/out, the output of another run"):
            FolderOutput(str(tmp_path / "link"), "other").reserve(SPEC)

    def test_reserving_twice_withdraws_nothing_if_another_run_comes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        uri = "memory://out-reserved-twice"
        FolderOutput(uri, RUN).reserve(SPEC)
        files, move = fsspec.filesystem("memory"), type(fsspec.filesystem("memory")).mv

        def moved(*arguments: object, **options: object) -> None:
            Published(uri).write(".shardsift/other/spec.json", SPEC.to_json())
            move(*arguments, **options)

        monkeypatch.setattr(type(files), "mv", moved)
        with suppress(UsageError):
            FolderOutput(uri, RUN).reserve(SPEC)
        monkeypatch.undo()

        assert files.exists(f"{uri}/.shardsift/{RUN}/spec.json")
        files.rm(uri, recursive=True)

    @pytest.mark.parametrize("name", ["out [1]", "out*", "a?b"])
    def test_a_folder_may_have_any_name(self, tmp_path: Path, name: str) -> None:
        folder = tmp_path / name
        place = Place(Published(str(folder)), tmp_path).reserve()
        place.publish(place.stage(A))
        place.reserve()

        assert (folder / A.data_path).is_file()
        with pytest.raises(UsageError, match="another run"):
            FolderOutput(str(folder), "other").reserve(SPEC)

    def test_an_output_below_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")

        with pytest.raises(UsageError, match="Choose an --output that can be written"):
            FolderOutput(str(tmp_path / "file/out"), RUN).reserve(SPEC)

    @pytest.mark.parametrize("uri", ["nosuch://bucket/out", "s3a4://bucket"])
    def test_an_unknown_kind_of_output_is_refused(self, uri: str) -> None:
        with pytest.raises(UsageError, match=f"{uri} cannot be used"):
            open_output(uri, RUN)
