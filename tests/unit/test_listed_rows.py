"""Which rows a drop list has, and how its file is read."""

import gzip
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsift.fleet.errors import ShardError, ShardsiftError, UsageError
from shardsift.fleet.inputs.drop_lists import LoadedList, check_list_columns, described_list, host_of, loaded_lists
from shardsift.fleet.run.spec import DropList
from shardsift.producer.planning.choice import read_lists
from support.records import a_spec

VALUES = ["7", "grüße", "doc 1", "0123"]


def a_list(*values: str) -> LoadedList:
    described = DropList(uri="optout.txt", column="url", sha256="", values=len(values))
    return LoadedList(described, frozenset(values))


def has(listed: LoadedList, value: str | None) -> bool:
    return listed.rows_in(pa.table({"url": pa.array([value], pa.string())})).tolist() == [0]


class TestTheHostOfAUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "https://example.com",
            "http://www.example.com:8080/x?y#z",
            "HTTPS://WWW.Example.COM./x",
            "  https://example.com\n",
            "//cdn.example.com/x.js",
            "https://me@other.org:1@example.com/",
            "https://example.com?https://other.org/",
            "https://example.com\\@other.org/",
            "https://exam%70le.com/",
            "https://ｅｘａｍｐｌｅ。com/",
        ],
    )
    @pytest.mark.parametrize("listed", ["example.com", "Example.com.", "*.example.com", ".example.com"])
    def test_a_listed_domain_means_its_pages_and_subdomains(self, url: str, listed: str) -> None:
        assert has(a_list(listed, "x"), url)

    @pytest.mark.parametrize(
        "value",
        [
            "https://notexample.com/",
            "https://example.com.evil.org/",
            "https://example.com@other.org/",
            "https:///example.com",
            "https://other.org/?https://example.com",
            "www.example.com",  # no URL: compared as it is
            "https://" + "a" * 2000 + "ü.example.com/",
            "",
            None,
        ],
    )
    def test_no_other_value_is_taken_for_it(self, value: str | None) -> None:
        assert not has(a_list("example.com"), value)

    @pytest.mark.parametrize("listed", ["bücher.de", "BÜCHER.de", "xn--bcher-kva.de", "bu\u0308cher.de"])
    @pytest.mark.parametrize("host", ["bücher.de", "www.BÜCHER.DE", "xn--bcher-kva.de", "XN--Bcher-KVA.de:80"])
    def test_an_international_name_is_the_same_in_each_form(self, listed: str, host: str) -> None:
        assert has(a_list(listed), f"https://{host}/x")

    def test_a_host_alone_means_no_domain_above_it_and_a_top_level_domain_nothing_below_it(self) -> None:
        assert not has(a_list("www.example.com"), "https://example.com/")
        assert not has(a_list("com"), "https://example.com/")
        assert has(a_list("localhost"), "http://localhost:80/x")
        assert has(a_list("[2001:db8::1]"), "http://[2001:DB8::1]:80/x")

    @given(
        st.lists(st.text("ab.", min_size=1, max_size=6), min_size=1, max_size=5),
        st.from_regex(r"\Ahttps?://(u(:p)?@)?[abAB]{1,2}(\.[ab]{1,2}){0,3}(:[0-9]{1,2})?(/[ab.@:/]*)?\Z"),
    )
    def test_it_is_what_pythons_own_parser_finds(self, listed: list[str], url: str) -> None:
        host = urlsplit(url).hostname or ""
        names = {name.strip(".") for name in listed if re.fullmatch(r"\.?[ab]+(\.[ab]+)*\.?", name)}

        assert host_of(url) == host
        assert has(a_list(*listed), url) == any(
            host == name or ("." in name and host.endswith(f".{name}")) for name in names
        )


class TestOtherValues:
    def test_values_are_compared_as_they_are(self) -> None:
        listed = a_list("Doc1", "https://Example.com/x", "me@example.com")

        assert [
            has(listed, value)
            for value in ("Doc1", "doc1", "https://Example.com/x", "https://Example.com/x/", "https://me@example.com/")
        ] == [True, False, True, False, False]

    @pytest.mark.parametrize("kind", [pa.int32(), pa.uint64()])
    def test_whole_numbers_are_compared_by_their_digits(self, kind: pa.DataType) -> None:
        numbers = pa.array([7, None, 70, 7], kind)

        for column in (numbers, numbers.dictionary_encode()):
            rows = pa.table({"url": column})
            check_list_columns(a_spec(drop_lists=(a_list("7").described,)), rows.schema)
            assert a_list("7", "070").rows_in(rows).tolist() == [0, 3]

    def test_a_dictionary_of_texts_and_several_chunks_are_looked_up_in_order(self) -> None:
        texts = pa.chunked_array([["a", "b"], [], ["b", None]]).cast(pa.dictionary(pa.int32(), pa.large_string()))

        assert a_list("b").rows_in(pa.table({"url": texts})).tolist() == [1, 2]


def write(folder: Path, name: str) -> Path:
    """A list of VALUES, with some twice, in the format that the name says."""
    file = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"other": [1] * 5, "v": pa.array([*VALUES, "7"]).dictionary_encode()}), file)
        return file
    if ".csv" in name:
        text = 'other,v\n1,7\n1,grüße\n1," doc 1"\n1,0123\n1,\n'
    elif ".jsonl" in name:
        text = '{"v": 7, "other": 1}\n{"v": "grüße"}\n{"v": "doc 1"}\n{"v": "0123"}\n{"v": null}\n'
    else:
        text = "\ufeff7\r\n  grüße\n\n7\ndoc 1\t\n0123"
    content = text.encode()
    if name.endswith(".gz"):
        content = gzip.compress(content[:20]) + gzip.compress(content[20:])
    if name.endswith(".zst"):
        content = pa.compress(content, "zstd", asbytes=True)
    file.write_bytes(content)
    return file


class TestItsFile:
    @pytest.mark.parametrize(
        "name",
        [*("l.txt", "l", "l.txt.gz", "l.txt.zst"), *("l.csv", "l.csv.gz", "l.jsonl", "l.jsonl.zst", "l.parquet")],
    )
    def test_each_format_gives_the_same_values(self, tmp_path: Path, name: str) -> None:
        file = write(tmp_path, name)
        field = "" if name.startswith(("l.txt", "l ")) or name == "l" else ":v"

        (described,) = read_lists([f"{file}{field}=id"])
        (listed,) = loaded_lists((described,))

        assert (described.uri, described.column, described.values) == (str(file), "id", 4)
        rows = pa.table({"id": ["", "grüße", "doc", *VALUES]})
        assert listed.rows_in(rows).tolist() == [1, 3, 4, 5, 6]

    @pytest.mark.parametrize(
        ("given", "file", "field", "column"),
        [
            ("a.txt=url", "a.txt", None, "url"),
            ("year=2024/a.csv:the name=my url", "year=2024/a.csv", "the name", "my url"),
            ("memory://b/a.jsonl:meta=url", "memory://b/a.jsonl", "meta", "url"),
        ],
    )
    def test_file_and_columns_are_read_from_the_option(
        self, given: str, file: str, field: str | None, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        content = {"a.txt": b"x\n", "year=2024/a.csv": b"the name\nx\n"}.get(file, b'{"meta": "x"}\n')
        if file.startswith("memory"):
            import fsspec

            with fsspec.open(file, "wb") as opened:
                opened.write(content)
        else:
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_bytes(content)

        (found,) = read_lists([given])

        assert (found.uri.removeprefix(f"{tmp_path}/"), found.field, found.column) == (file, field, column)
        assert found.option.removeprefix(f"{tmp_path}/") == given

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ("optout.txt", "write FILE=COLUMN or FILE:COLUMN=COLUMN, like optout.txt=url"),
            ("=url", "write FILE=COLUMN"),
            ("{}/nowhere.txt=url", r"nowhere\.txt: No such file"),
            ("{}/l.csv=url", r"Name the column of the file that has the values, like --drop-list .*l\.csv:domain=url"),
            ("{}/l.csv:w=url", "has no column of the run, which reads w; it has: other, v"),
            ("{}/l.parquet:others=url", r'no field "others"; they have: other, v\. Did you mean "other"\?'),
            ("{}/l.jsonl:w=url", "there are no values in it"),
            ("what://bucket/l.txt=url", "cannot be read"),
            ("{}/empty.txt=url", "there are no values in it"),
            ("{}/latin.txt=url", "not UTF-8. It is a text file with one value a line, or for FILE:COLUMN a file whose"),
            ("{}/broken.parquet:v=url", "not a readable Parquet file"),
            ("{}/reals.parquet:v=url", "values are texts or whole numbers, and this column has double"),
            ("s3://me:secret@bucket/l.txt=url", "carries a password"),
        ],
    )
    def test_a_list_that_cannot_be_used_is_refused_in_a_sentence(self, tmp_path: Path, given: str, says: str) -> None:
        for name in ("l.csv", "l.parquet", "l.jsonl"):
            write(tmp_path, name)
        (tmp_path / "empty.txt").write_text("\n \n")
        (tmp_path / "latin.txt").write_bytes("grüße".encode("latin-1"))
        (tmp_path / "broken.parquet").write_bytes(b"PAR1")
        pq.write_table(pa.table({"v": [1.5]}), tmp_path / "reals.parquet")

        with pytest.raises(UsageError, match=says):
            read_lists([given.format(tmp_path)])

    def test_a_column_that_the_input_lacks_or_that_holds_no_values_is_refused(self) -> None:
        schema = pa.schema({"text": pa.string(), "url": pa.list_(pa.string())})

        with pytest.raises(UsageError, match=r"--drop-list optout\.txt=url: values are texts .* has list<"):
            check_list_columns(a_spec(drop_lists=(a_list("x").described,)), schema)
        with pytest.raises(UsageError, match="has no column 'id'; it has: text, url"):
            check_list_columns(a_spec(drop_lists=(replace(a_list("x").described, column="id"),)), schema)

    def test_a_file_that_changed_since_is_an_error_that_says_what_to_do_and_a_loaded_list_stays(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "optout.txt"
        file.write_text("a\n")
        first = described_list(str(file), None, "url")
        kept = loaded_lists((first,))
        file.write_text("b\n")

        with pytest.raises(ShardError, match=r"optout\.txt changed since .*Restore the file, then run `producer"):
            loaded_lists((replace(first, column="other"),))
        assert loaded_lists((first,)) is kept

    def test_a_file_that_is_gone_is_one_of_our_errors(self, tmp_path: Path) -> None:
        with pytest.raises(ShardsiftError, match="No such file"):
            loaded_lists((replace(a_list("x").described, uri=str(tmp_path / "gone")),))
