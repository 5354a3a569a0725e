"""A run takes evidence for its own scores and its own threshold alone, and the file has no texts and no paths."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import Model
from shardsift.producer.evidence.evidence import evidence_for, evidence_in, write_evidence
from support.evidence import a_line, an_evidence
from support.records import a_receipt, a_shard, a_spec

SPEC = a_spec()
OTHER = Model(name="me/other", revision="1", labels=("LABEL_0",))
RECEIPTS = [a_receipt("labelled-run", a_shard())]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "evidence.json"
    write_evidence(an_evidence(SPEC, RECEIPTS), file)
    return file


def test_a_file_says_what_was_measured_without_the_place_of_the_run(file: Path) -> None:
    read = evidence_for(str(file), SPEC)

    assert read == an_evidence(SPEC, RECEIPTS)
    assert (read.run_id, read.model) == ("labelled-run", "HuggingFaceFW/fineweb-edu-classifier@4567def")
    assert "/home/me" not in file.read_text()
    assert read.to_json() == file.read_text()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"dtype": "auto"},
        {"scores_from": Model(name="/home/me/kept", revision="sha256-ab", labels=(), scorer="stored-scores")},
    ],
)
def test_evidence_counts_for_any_run_with_these_scores_and_this_threshold(file: Path, change: dict[str, Any]) -> None:
    assert evidence_for(str(file), a_spec(**change)) is not None


def test_the_threshold_of_a_filter_that_excludes_it_is_the_next_score(file: Path) -> None:
    above = float(np.nextafter(np.float32(3), np.float32(4)))
    write_evidence(an_evidence(SPEC, RECEIPTS, thresholds=[a_line(above)]), file)

    assert evidence_for(str(file), a_spec(where="score > 3")) is not None


def test_a_model_in_a_folder_is_the_same_wherever_the_folder_is(file: Path) -> None:
    here, there = (
        a_spec(model=Model(name=f"{home}/mine", revision="sha256-ab", labels=("LABEL_0",))) for home in ("/a", "/b")
    )
    write_evidence(an_evidence(here, RECEIPTS), file)

    assert evidence_for(str(file), there) is not None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"where": None}, "about a threshold of score, and the filter of this run is not one: none"),
        ({"where": "int_score >= 3"}, "is not one: int_score >= 3"),
        ({"where": "score > 3"}, "no figures for score >= 3.00000023"),  # some rows may have a score of 3
        ({"where": "score >= 2.7"}, "no figures for score >= 2.7.*producer evaluate … --at 2.7 --output FILE"),
        ({"model": OTHER}, "about scores by HuggingFaceFW/fineweb-edu-classifier@4567def, and score of .* me/other@1"),
        ({"max_tokens": 128}, "score of this run is by that model with other options"),
    ],
)
def test_evidence_for_other_scores_or_another_filter_is_refused(file: Path, change: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        evidence_for(str(file), a_spec(**change))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\xfe", b"shard,row,label\na,1,1\n"])
def test_another_file_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)

    with pytest.raises(UsageError, match="evidence.json is no evidence. Name a file that `producer evaluate"):
        evidence_for(str(file), SPEC)


def test_a_missing_or_mistyped_figure_is_no_evidence() -> None:
    text = an_evidence(SPEC, RECEIPTS).to_json()

    assert evidence_in(text.replace('"rows_kept": 1000', '"rows_kept": "1000"')) is None
    assert evidence_in(text.replace('"positive"', '"negative"')) is None
    assert evidence_in(None) is None


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        evidence_for(str(tmp_path / "none.json"), SPEC)


def test_an_older_file_is_replaced_and_one_that_cannot_be_written_leaves_nothing(file: Path, tmp_path: Path) -> None:
    newer = an_evidence(SPEC, RECEIPTS, thresholds=[a_line(3, rows_kept=7)])

    write_evidence(newer, file)
    for wrong in (tmp_path, tmp_path / "none" / "evidence.json", file / "evidence.json"):
        with pytest.raises(UsageError, match="cannot be written"):
            write_evidence(newer, wrong)

    assert evidence_in(file.read_text()) == newer
    assert [*tmp_path.iterdir()] == [file]
