"""A shard that a stopped worker left is continued from its checkpoint, with the bytes that it has when nothing stops it."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardsift.fleet.errors import Stopped
from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.run.receipt import Receipt
from shardsift.worker.scoring.load import load_classifier
from support.claimed_shards import Office, StopsAfter, one_shard
from support.line_files import write_as_lines, write_file
from support.models import overflowing_classifier, plain_scorer
from support.nli import nli_classifier

ROWS, WINDOW_ROWS = 100, 16
LABELS = {"labels": ("climate change", "food", "code")}


@pytest.fixture(scope="module")
def nli(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nli_classifier(tmp_path_factory.mktemp("nli") / "model", "BERT")


def worked(office: Office, claim: Claim, *, stop_after: int = 0) -> tuple[Receipt | None, int]:
    """Score a shard in small windows. Returns its receipt, unless it was stopped, and the number of batches."""
    desk = office.desk(replace(claim, spec=replace(claim.spec, window_rows=WINDOW_ROWS)))
    device = StopsAfter(office.scorer.backend, desk.stopping, batches=stop_after)
    desk.scorer = replace(office.scorer, backend=device)
    with suppress(Stopped):
        return desk.work(), device.done
    assert desk.produced() == []
    return None, device.done


def check_resumed(office: Office, folder: Path, **options: Any) -> Receipt:
    """Stop a worker midway, let another go on, and compare with a worker that is not stopped."""
    undisturbed, disturbed = (office.claim(folder, **options).claim for _ in range(2))
    expected, batches = worked(office, undisturbed)

    stopped, _ = worked(office, disturbed, stop_after=batches // 2)
    receipt, batches_of_the_rest = worked(office, disturbed)

    assert stopped is None
    assert batches_of_the_rest < batches
    assert expected
    assert receipt
    assert (receipt.data.sha256, receipt.scores.sha256) == (expected.data.sha256, expected.scores.sha256)
    assert receipt.errors == expected.errors
    assert receipt.scorings == expected.scorings
    return receipt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A shard of a hundred rows in seven windows."""
    texts = [f"A text {row} " + "with more words " * (row % 20) for row in range(ROWS)]
    return one_shard(tmp_path / "in", pa.table({"text": texts, "url": [f"http://a.b/{row}" for row in range(ROWS)]}))


@pytest.mark.parametrize("ending", [".parquet", ".jsonl.zst", ".csv.gz"])
def test_a_resumed_shard_has_the_bytes_of_one_that_was_not_stopped_in_each_format(
    ending: str, office: Office, folder: Path, tmp_path: Path
) -> None:
    check_resumed(office, folder if ending == ".parquet" else write_as_lines(folder, tmp_path / "lines", ending))


def test_a_resumed_shard_has_the_bytes_of_an_undisturbed_one_with_its_bad_rows(office: Office, tmp_path: Path) -> None:
    lines = [f'{{"text": "text {row}"}}'.encode() if row % 7 else b"<html>" for row in range(ROWS)]
    write_file(tmp_path / "in/a.jsonl", b"\n".join(lines))

    assert check_resumed(office, tmp_path / "in", max_bad_rows=0.2).errors == {"not valid JSON": 15}


@pytest.mark.parametrize(
    "reading",
    [
        {"max_tokens": 24, "passages": "stride:16:mean"},
        pytest.param({"max_tokens": 24, "passages": "finepdfs"}, marks=pytest.mark.slow),
        {"max_tokens": 48, "text_column": "{url}\n\n{text}"},
        {**LABELS, "multi_label": True, "max_tokens": 48, "passages": "stride:16"},
        LABELS,
    ],
    ids=["windows", "finepdfs", "template", "zero-shot in windows", "zero-shot"],
)
def test_a_resumed_shard_has_the_bytes_of_one_that_was_not_stopped_however_its_texts_are_read(
    reading: dict[str, Any], ledger: Ledger, folder: Path, nli: Path, tmp_path: Path
) -> None:
    scorer = plain_scorer(nli, threads=1)

    check_resumed(Office(ledger, scorer, nli, tmp_path), folder, **reading)


def test_a_resumed_shard_has_the_bytes_of_one_that_was_not_stopped_for_two_models(
    office: Office, folder: Path, tiny_model: Path
) -> None:
    check_resumed(office, folder, models=(f"one={tiny_model}", f"other={tiny_model}"))


def test_a_receipt_counts_the_rows_that_overflow_in_float16_also_after_a_stop(
    ledger: Ledger, tiny_model: Path, shards: Path, tmp_path: Path
) -> None:
    model = overflowing_classifier(tmp_path / "model", tiny_model, factor=1e4)
    scorer = load_classifier(str(model), "float16", device="cpu", parity_rows=0, threads=1, max_batch_tokens=1_024)

    receipt = check_resumed(Office(ledger, scorer, model, tmp_path), shards)

    assert receipt.rows_errored == 0
    assert 0 < receipt.scorings[0].rows_in_float32 < receipt.rows_in
