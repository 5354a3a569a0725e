"""A manifest is believed as a whole or not at all, and its digest of the files depends on nothing but them."""

import random
import tracemalloc
from dataclasses import replace

import pytest

from shardsift.fleet.run.model import Model
from shardsift.fleet.run.receipt import Histogram
from shardsift.fleet.run.spec import disclosed_spec
from shardsift.fleet.storage.manifest import Manifest, files_digest, joined, read_manifest
from support.records import a_manifest, a_receipt, a_scoring_receipt, a_shard, a_spec

RUN = a_spec().run_id
A, B = a_shard("crawl/a"), a_shard("crawl/b")
OF_LABELS = tuple(Histogram(bins_per_unit=4, rows_by_bin=bins) for bins in ({1: 9}, {}))
SCORING = a_scoring_receipt(parity=None, refused_dtypes=("bfloat16",), label_histograms=OF_LABELS)
RECEIPTS = (a_receipt(RUN, A), a_receipt(RUN, B, scorings=(SCORING,), errors={}))


def test_the_manifest_of_a_run_that_keeps_each_text_once_has_the_duplicates_and_no_other_has() -> None:
    receipts = [a_receipt(RUN, A, duplicates=2, unique_texts="5-ab"), a_receipt(RUN, B)]

    unique, plain = (read_manifest(a_manifest(RUN, receipts, spec=a_spec(unique=one))) for one in (True, False))

    assert [(one.duplicates, one.unique_texts) for one in unique.receipts] == [(2, "5-ab"), (None, "")]
    assert [(one.duplicates, one.unique_texts) for one in plain.receipts] == [(None, ""), (None, "")]


def flipped(content: bytes, bit: int) -> bytes:
    place = bit // 8
    return content[:place] + bytes([content[place] ^ 1 << bit % 8]) + content[place + 1 :]


def test_a_manifest_says_what_was_written() -> None:
    stored = Model(name="hf://datasets/me/all", revision="sha256-ab", labels=(), scorer="stored-scores")
    spec = disclosed_spec(a_spec(scores_from=stored))
    gpu = replace(RECEIPTS[0].provenance, device="NVIDIA L4", tokens=99)
    receipts = (RECEIPTS[0], replace(RECEIPTS[1], scores_provenance=gpu))
    written = Manifest(
        run_id=RUN,
        spec=spec,
        receipts=receipts,
        left_out=("crawl/c",),
        shards=3,
        card_sha256="ab" * 32,
        command="producer run",
    )

    read = read_manifest(written.to_parquet())

    assert replace(read, receipts=receipts) == written
    assert read.to_parquet() == written.to_parquet()
    assert [
        replace(receipt, data=a.data, scores=a.scores) for receipt, a in zip(read.receipts, receipts, strict=True)
    ] == [*receipts]


def test_a_flipped_bit_is_found_or_changes_nothing_that_is_read() -> None:
    content = a_manifest(RUN, RECEIPTS)
    whole = read_manifest(content)
    bits = random.Random(28).sample(range(len(content) * 8), 600)

    read = [read_manifest(flipped(content, bit)) for bit in bits]

    assert whole is not None
    assert [one for one in read if one not in (None, whole)] == []
    assert read.count(None) > 300


def test_the_receipts_of_many_shards_take_less_than_400_bytes_each() -> None:
    content = a_manifest(RUN, [a_receipt(RUN, a_shard(f"crawl/{number:05}")) for number in range(2000)])
    read_manifest(content)  # imports what it needs

    tracemalloc.start()
    read = read_manifest(content)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held_bytes < 400 * len(read.receipts)


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"PAR1" * 100])
def test_what_is_no_manifest_says_nothing(content: bytes | None) -> None:
    assert read_manifest(content) is None


def test_the_digest_of_the_files_does_not_depend_on_their_order_or_on_who_made_them() -> None:
    a, b = RECEIPTS
    later = replace(b, provenance=replace(b.provenance, worker="w2", attempt=2, finished_at=2e9))

    assert files_digest([later, a]) == files_digest([a, b])


@pytest.mark.parametrize("change", [{"sha256": "cd" * 32}, {"path": "data/c.parquet"}])
@pytest.mark.parametrize("which", ["data", "scores"])
def test_the_digest_of_the_files_changes_with_their_content_and_place(which: str, change: dict[str, str]) -> None:
    a, b = RECEIPTS
    other = replace(b, **{which: replace(getattr(b, which), **change)})

    assert len({files_digest([a, other]), files_digest([a, b]), files_digest([a])}) == 3


def test_lines_over_stored_scores_keep_their_scorers_when_a_run_of_a_model_extends_their_dataset() -> None:
    stored = Model(name="hf://datasets/me/all", revision="sha256-ab", labels=(), scorer="stored-scores")
    gpu = replace(RECEIPTS[0].provenance, device="NVIDIA L4", tokens=99)
    of_scores, of_model = a_spec(scores_from=stored), a_spec(extends=RUN)
    there = Manifest(
        run_id=RUN, spec=of_scores, receipts=[replace(RECEIPTS[0], scores_provenance=gpu)], shards=1, card_sha256=""
    )
    added = a_receipt(of_model.run_id, B)

    whole = joined(there, Manifest(run_id=of_model.run_id, spec=of_model, receipts=[added], shards=1, card_sha256=""))
    read = read_manifest(whole.to_parquet())

    assert read is not None
    assert [(one.run_id, one.scored_by.device) for one in read.receipts] == [
        (RUN, "NVIDIA L4"),
        (of_model.run_id, "cpu"),
    ]
