"""The sheet of rows to label comes back as it was written, also from a spreadsheet, and says what is wrong with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.producer.evidence.sheet import Labels, good_rows, read_labels, refuse_existing, write_sheet
from shardsift.producer.evidence.strata import Stratum

LOW, HIGH = Stratum(low=-np.inf, high=2.5), Stratum(low=2.5, high=np.inf)
SHARDS = ("000_00000", "2024-10", "2024-10-01T00:00:00", "007", "1e5", "true", "CC/000_00000.part-00001")
TEXTS = (
    *("plain", "", "  spaces  ", "-1", "1,5", "true", "=1+1", "2024-10-01", "semi;colon", "tab\there", "'single"),
    *('"', '""', 'a "quote", and a comma', "two\nlines\n", "crlf\r\nx", "a\rcr", '\\back\\"slash', "ünï ☃ 𝕏", "\ufeff"),
    *("nul\x00", "x" * 3_000_000),
)


def sheet(texts: tuple[str, ...] = TEXTS, **columns: Any) -> pa.Table:
    rows = range(len(texts))
    own = {
        "shard": [SHARDS[row % len(SHARDS)] for row in rows],
        "row": [row * 2**40 for row in rows],
        "stratum": [(LOW, HIGH)[row % 2].name for row in rows],
        "weight": [100 / (row + 3) for row in rows],
        "text": pa.array(texts, pa.large_string()),
        "date": ["2024-10-01"] * len(texts),
        "label": pa.nulls(len(texts), pa.string()),
    }
    return pa.table({**own, **columns})


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".ndjson", ".parquet", ".CSV"])
def test_a_sheet_comes_back_as_it_was_written(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"day=1/it's [1] 100%{ending}"
    file.parent.mkdir()

    write_sheet(sheet(), file)

    assert read_labels(file).table.to_pydict() == sheet().to_pydict()
    with pytest.raises(UsageError, match=r"exists, and may have labels\. Name another --output, or remove it\."):
        write_sheet(sheet(), file)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("beginning", [b"", b"\xef\xbb\xbf"])
def test_a_csv_as_spreadsheets_save_it_has_the_same_rows(tmp_path: Path, delimiter: str, beginning: bytes) -> None:
    """With another delimiter, a byte order mark, CRLF, and no quotes but where they are needed."""
    texts = ("plain; a, b\tc", "two\nlines", 'a "quote"', "ünï", "one,", "6 texts;")
    written = pa.BufferOutputStream()
    options = pyarrow.csv.WriteOptions(delimiter=delimiter, quoting_style="needed", include_header=False)
    labelled = sheet(texts, label=["1", " 0 ", "", None, "0", "1 "])
    pyarrow.csv.write_csv(labelled, written, options)
    head = delimiter.join(labelled.column_names).encode()
    lines = written.getvalue().to_pybytes().replace(b"two\nlines", b"two\x01lines").replace(b"\n", b"\r\n")
    (tmp_path / "labels.csv").write_bytes(beginning + head + b"\r\n" + lines.replace(b"\x01", b"\n"))

    found = read_labels(tmp_path / "labels.csv")

    assert found.table.drop_columns("label").to_pydict() == sheet(texts).drop_columns("label").to_pydict()
    assert found.labels.to_pylist() == [1, 0, None, None, 0, 1]


@pytest.mark.parametrize(
    ("said", "threshold", "positive", "good"),
    [
        (["1", " 0", ""], None, "label = 1", [1, 0, None]),
        (["true", "FALSE ", "True"], 3.0, "label", [1, 0, 1]),
        (["3", "2.9 ", " 5"], 3.0, "label >= 3", [1, 0, 1]),
        ([" good", "bad ", " "], None, "label = 'good'", [1, 0, None]),
        (["4", "2", ""], 3.0, "label > 3.5 OR label IS NULL", [1, 0, None]),
    ],
)
def test_labels_are_numbers_truth_values_grades_or_words(
    tmp_path: Path, said: list[str | None], threshold: float | None, positive: str, good: list[int | None]
) -> None:
    for ending in (".csv", ".jsonl", ".parquet"):
        write_sheet(sheet(("a", "b", "c"), label=said), tmp_path / f"labels{ending}")
        labels = read_labels(tmp_path / f"labels{ending}")

        found, condition = good_rows(labels, positive if "'" in positive or " OR " in positive else None, threshold)

        assert condition == positive
        assert [None if np.isnan(one) else int(one) for one in found] == good


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False, None]),
        pa.array(["1", "0", None]).dictionary_encode(),
        pa.array(["1", "0", ""], pa.string_view()),
        pa.array([1, 0, None], pa.decimal128(9, 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_labels_of_a_parquet_file_may_have_any_plain_type(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(sheet(("a", "b", "c"), label=column), tmp_path / "labels.parquet")

    found, _ = good_rows(read_labels(tmp_path / "labels.parquet"), None, None)

    assert [*found[:2], np.isnan(found[2])] == [1, 0, True]


def test_json_lines_may_have_labels_of_several_types(tmp_path: Path) -> None:
    write_sheet(sheet(("a", "b", "c"), label=pa.nulls(3)), tmp_path / "labels.jsonl")
    lines = (tmp_path / "labels.jsonl").read_text().replace('"label":null', '"label":%s')
    (tmp_path / "labels.jsonl").write_text(lines % ("1", "true", '"0"'))

    assert read_labels(tmp_path / "labels.jsonl").labels.to_pylist() == [True, True, False]


def labels_of(tmp_path: Path, **columns: Any) -> Labels:
    file = tmp_path / "labels.csv"
    file.unlink(missing_ok=True)
    write_sheet(sheet(("a", "b", "c"), **columns), file)
    return read_labels(file)


def test_a_row_that_is_there_twice_counts_once_unless_its_labels_disagree(tmp_path: Path) -> None:
    twice = {"shard": ["a", "b", "a"], "row": [7, 7, 7]}

    assert labels_of(tmp_path, **twice, label=["", "0", "1"]).labels.to_pylist() == [0, 1]
    assert labels_of(tmp_path, **twice, label=["1", "0", "1.0"]).table["shard"].to_pylist() == ["a", "b"]
    with pytest.raises(UsageError, match=r"^labels.csv labels row 7 of a twice, as 1\.0 and 0\.0\. Decide on one\.$"):
        labels_of(tmp_path, **twice, label=["1", "", "0"])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("label", ["1", "nan", "0"], "labels.csv has a label that is NaN. Leave the label of a row empty"),
        ("label", ["", " ", None], "labels.csv has no label yet. Fill its column label."),
        ("label", ["good", "bad", ""], "Say with --positive which labels are good, such as --positive"),
        ("weight", ["1", None, "2"], 'The column "weight" of FILE is empty in some rows.'),
        ("row", ["1", "2.5", "3"], "The column \"row\" of FILE cannot be read: Failed to parse string: '2.5'"),
        ("stratum", [LOW.name, None, LOW.name], "'None' is no stratum of `producer sample`. Leave this column"),
    ],
)
def test_what_is_wrong_in_a_column_is_told(tmp_path: Path, column: str, values: list[str], message: str) -> None:
    columns = {"label": ["1", "0", ""], column: values}

    with pytest.raises(UsageError) as refused:
        good_of(tmp_path, **columns)

    assert str(refused.value).replace(str(tmp_path / "labels.csv"), "FILE").startswith(message)


def good_of(tmp_path: Path, **columns: Any) -> list[tuple[Stratum, float]]:
    labels = labels_of(tmp_path, **columns)
    return [*zip(labels.strata, good_rows(labels, None, None)[0].tolist(), strict=True)]


def test_without_a_threshold_grades_need_a_condition_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    labels = labels_of(tmp_path, label=["1", "2", "5"])

    with pytest.raises(UsageError, match="^Say with --positive which labels are good"):
        good_rows(labels, None, None)
    with pytest.raises(UsageError, match=r'there is no column "grade"; there are: label\.'):
        good_rows(labels, "grade >= 3", None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"PK", r"a\.xlsx has no ending of a format of sheets\. Name a file that ends in \.csv, \.jsonl"),
        ("no.csv", None, r"no\.csv cannot be read: No such file or directory\."),
        ("a.csv", b"", r"a\.csv cannot be read: Empty CSV file"),
        ("a.csv", b"shard,row,label\na,1,1\na,2,0,5\n", "cannot be read: .* Expected 3 columns, got 4: a,2,0,5"),
        ("a.csv", "shard;row\nä;1\n".encode("cp1252"), r"a\.csv is not UTF-8\. Save it as UTF-8\."),
        ("a.csv", b"shard,row,label\na,1,1\n", r'no column "stratum"; .* Add --unweighted if all rows had'),
        ("a.jsonl", b'{"shard": "a"\n', r"a\.jsonl cannot be read: .*Malformed JSON"),
        ("a.parquet", b"PAR1", r"a\.parquet cannot be read: "),
    ],
)
def test_a_file_that_is_no_sheet_is_told(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(UsageError, match=message):
        read_labels(tmp_path / name)


def test_where_a_sheet_cannot_be_written_is_told_before_rows_are_drawn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^There is no folder .*/none\. Make it, or name another --output\."):
        refuse_existing(tmp_path / "none/labels.csv")
    with pytest.raises(UsageError, match="has no ending of a format of sheets"):
        refuse_existing(tmp_path / "labels.txt")


def test_a_sheet_without_weights_is_one_stratum_of_all_rows(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("shard,row,label\na,1,1\na,2,0\n")

    assert read_labels(tmp_path / "labels.csv", is_weighted=False).strata == [Stratum(low=-np.inf, high=np.inf)] * 2
