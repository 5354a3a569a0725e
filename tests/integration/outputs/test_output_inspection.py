"""Inspecting a published output finds damage of each file, the manifest and the card, and foreign files."""

from dataclasses import dataclass

import pytest

from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.storage.inspection import Finding, Problem, lines_of
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from support.output_runs import RUN, A, B, Place
from support.outputs import Published
from support.records import a_manifest, a_receipt


@dataclass(frozen=True, kw_only=True)
class Case:
    place: Place
    receipts: list[Receipt]

    @property
    def files(self) -> Published:
        return self.place.files

    def findings(self, *, hashes: bool = False) -> list[Finding]:
        return self.place.output.inspect(self.receipts, hashes=hashes)


@pytest.fixture
def case(place: Place) -> Case:
    """Two published shards."""
    receipts = [place.stage(shard) for shard in (A, B)]
    place.publish(*receipts)
    return Case(place=place, receipts=receipts)


@pytest.mark.parametrize(("path", "shard"), [(A.data_path, A.name), (B.scores_path, B.name)])
@pytest.mark.parametrize(
    ("damage", "problem"),
    [("delete", Problem.MISSING), ("truncate", Problem.SIZE), ("flip", Problem.SHA256)],
)
def test_damaged_files_and_shards_are_named(case: Case, path: str, shard: str, damage: str, problem: Problem) -> None:
    getattr(case.files, damage)(path)

    (finding,) = case.findings(hashes=True)

    assert finding == Finding(path=path, shard=shard, problem=problem)
    assert finding.is_mendable
    has_digests = case.place.uri.startswith("hf://datasets/")
    assert case.findings() == ([] if problem is Problem.SHA256 and not has_digests else [finding])  # without reading it


@pytest.mark.parametrize("path", ["data/crawl/theirs.parquet", "scores/notes.txt"])
def test_a_file_among_the_data_that_no_receipt_names_is_foreign(case: Case, path: str) -> None:
    for other in (path, "notes.txt", "images/plot.png", ".git/HEAD"):
        case.files.write(other, b"theirs")

    (finding,) = case.findings()

    assert finding == Finding(path=path, problem=Problem.FOREIGN)
    assert not finding.is_mendable


@pytest.mark.parametrize(
    ("run_id", "problem", "said"),
    [(RUN, Problem.SHA256, "it lists other files"), ("theirs", Problem.FOREIGN, "theirs")],
)
def test_a_manifest_of_other_receipts_or_runs_is_found(case: Case, run_id: str, problem: Problem, said: str) -> None:
    case.files.write(MANIFEST_PATH, a_manifest(run_id, [a_receipt(run_id, A)]))

    (finding,) = case.findings()

    assert (finding.path, finding.problem) == (MANIFEST_PATH, problem)
    assert said in str(finding)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (MANIFEST_PATH, b"PAR1"),
        (CARD_PATH, b""),
        (CARD_PATH, b"# Card\0\0\0"),
        (CARD_PATH, b"\xff\xfe\x00"),
    ],
)
def test_a_manifest_or_card_that_is_damaged_is_unreadable(case: Case, path: str, content: bytes) -> None:
    case.files.write(path, content)

    (finding,) = case.findings()

    assert (finding.path, finding.problem) == (path, Problem.UNREADABLE)


def test_many_findings_are_ten_lines_and_a_count() -> None:
    findings = [Finding(path=f"data/{number}", problem=Problem.MISSING) for number in range(1_212)]

    lines = lines_of(findings)

    assert len(lines) == 11
    assert lines[0] == "data/0 is missing"
    assert lines[-1] == "and 1,202 more"
