"""The dataset card says what was filtered, with what and how, and names no folder of the machine."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shardsift.fleet.run.model import Model
from shardsift.fleet.run.receipt import Histogram, Parity, Receipt
from shardsift.fleet.run.scoring import ZeroShot
from shardsift.fleet.run.spec import Shard
from shardsift.producer.publishing.card import CardFacts, dataset_card
from shardsift.producer.scores.distribution import histograms_of, score_picture, score_table
from support.evidence import a_line, an_evaluation, an_evidence
from support.finalizer_runs import A, B, C, FinalizerRun
from support.golden import check_golden
from support.records import a_receipt, a_scoring_receipt, a_shard, a_spec

BEGAN = 1_735_682_500.0  # two hours before 2025


class TestCard:
    @pytest.mark.usefixtures("pictures")
    def test_the_picture_of_a_card_is_the_same_for_the_same_scores_and_the_tables_stay(self, run: FinalizerRun) -> None:
        run.do(A, B)
        run.fail(C)

        run.finalize(without_failed=True)

        picture, card = (run.out / "scores.png").read_bytes(), (run.out / "README.md").read_text()
        assert picture == score_picture(run.spec, list(run.ledger.receipts(run.run_id)))
        assert b"matplotlib" not in picture.lower()
        shown, _, tables = card.partition("<details>\n<summary>The same as text</summary>\n\nRows that were read")
        assert "## Scores\n\n![" in shown
        assert shown.rstrip().endswith("](scores.png)")
        assert score_table(histograms_of(run.spec, list(run.ledger.receipts(run.run_id)))["score"]) in tables
        assert run.findings() == []

        run.ledger.retry(run.run_id)
        run.do(C)
        run.finalize()
        assert (run.out / "scores.png").read_bytes() != picture

    def test_a_filter_of_any_characters_is_shown_as_it_is_and_ends_no_block(self) -> None:
        where = "url NOT LIKE '%\n```\n%' AND a = 'x|`y'"
        facts = CardFacts(command=f"producer run --where {shlex.quote(where)}")

        card = dataset_card(a_spec(where=where), [a_receipt("r", A)], facts).decode()

        assert "| Filter | ```` url NOT LIKE '% ``` %' AND a = 'x\\|`y' ```` |" in card
        assert card.count("````bash\n") == 1
        assert "those for which ```` url NOT LIKE '% ``` %' AND a = 'x|`y' ````" in card

    def test_a_card_of_several_labels_shows_how_the_scores_are_spread_that_the_filter_compares(self) -> None:
        model = Model(name="me/topics", revision="89ab", labels=("food", "code"))
        spread = Histogram(bins_per_unit=20, rows_by_bin={10: 3, 15: 5})

        tables = {
            where: re.findall(
                "^`(.*)`:$", dataset_card(a_spec(model=model, where=where), [scored]).decode(), re.MULTILINE
            )
            for where in ("Score > 0.5", "score_food > 0.5", None)
            for scored in [scored_by(A, histogram=spread, label_histograms=(spread, spread))]
        }

        labels = ["score_food", "score_code"]
        assert tables == {"Score > 0.5": ["score", *labels], "score_food > 0.5": labels, None: labels}


def scored_by(shard: Shard, **changes: Any) -> Receipt:
    return replace(a_receipt("r", shard), scorings=(a_scoring_receipt(**changes),))


def made(receipt: Receipt, device: str, seconds: float, tokens: int) -> Receipt:
    """A receipt of a large shard with the time that a device took."""
    how = replace(receipt.provenance, device=device, started_at=BEGAN, finished_at=BEGAN + seconds, tokens=tokens)
    return replace(receipt, provenance=how, rows_in=80_000, rows_kept=79_990, rows_dropped=0, rows_errored=10)


def of_fineweb() -> bytes:
    """One model over a dataset of the Hub, with the picture, two devices and the worst of two trials of a number format."""
    coarse = Parity(rows=16, max_error=0.02, p999_error=0.02, flipped_share=0.0625)
    fine = Parity(rows=1024, max_error=0.001, p999_error=0.0009, flipped_share=0.0)
    first, second = a_shard(), a_shard("CC-MAIN-2024-10/000_00001")
    receipts = [
        made(scored_by(first, parity=fine), "NVIDIA L4", 7200.0, 5_000_000),
        made(scored_by(second, parity=coarse, dtype="bfloat16"), "NVIDIA T4", 800.0, 1_000_000),
    ]
    return dataset_card(a_spec(output_uri="hf://datasets/me/kept@strict"), receipts, CardFacts(has_picture=True))


def of_several_models() -> bytes:
    """Two models, of which one judges labels, over three sources, without the shards that failed."""
    (edu,) = a_spec(score_column="edu_score", int_score=False, max_tokens=512, function_to_apply="sigmoid").scorings
    nli = Model(name="me/nli", revision="89ab", labels=("contradiction", "entailment"))
    labels = ZeroShot(labels=("food", "code"), multi_label=True)
    (topic,) = a_spec(score_column="topic_score", int_score=False, model=nli, zero_shot=labels).scorings
    sources = ("hf://datasets/me/one@ab/*.parquet", "hf://datasets/me/other@cd/*.parquet", "/home/me/web")
    where = "rows.edu_score > 3 AND 'topic_score' <> id"
    spec = a_spec(crawl=None, input_uris=sources, where=where, scorings=(edu, topic), only_columns=True)
    scored = (a_scoring_receipt(), a_scoring_receipt(parity=None))
    return dataset_card(spec, [replace(a_receipt("r", A), scorings=scored)], CardFacts(left_out=2))


def of_a_local_folder() -> bytes:
    """All rows of files of two formats, read whole in passages by a model from a folder, in mixed number formats."""
    model = Model(name="/home/me/secret/mine", revision="sha256-abc", labels=("good", "bad"))
    spread = Histogram(bins_per_unit=20, rows_by_bin={10: 3, 15: 5})
    spreads = {"histogram": spread, "label_histograms": (spread, spread)}
    receipts = [
        replace(scored_by(A, **spreads), source_uri="file:///me/web/a.jsonl.gz"),
        scored_by(B, refused_dtypes=("float16", "bfloat16"), faulty_ways=("graphed",), **spreads),
        replace(scored_by(B, **spreads), shard="b.part-00001", source_changed=True),
    ]
    reading = {"passages": "stride:256", "function_to_apply": "softmax", "int_score": False}
    return dataset_card(a_spec(crawl=None, input_uris=("/home/me/web",), model=model, where=None, **reading), receipts)


def of_a_judged_filter() -> bytes:
    """Evidence by the labels of a model, for each value of a column, of rows of another run, and names of any characters."""
    model = Model(name="/models/5 * 3 <b>, my_set [v2] & C#", revision="sha256-abc", labels=("LABEL_0",))
    spec = a_spec(crawl=None, input_uris=("/home/me/web/a.parquet",), model=model)
    values = {"it's | a `b`": a_line(3, recall={"value": 1.0, "low": 0.5, "high": 1.0}), "": a_line(3, good_lost=1_234)}
    labels = an_evaluation()["labels"] | {"weighted": False}
    changes = {"judge": "gpt-`5`", "within": "topic", "values": values, "labels": labels}
    evidence = an_evidence(spec, [a_receipt("other", B)], **changes)
    return dataset_card(spec, [a_receipt("r", A)], CardFacts(evidence=evidence))


def of_scores_alone() -> bytes:
    """Scores of files in two subsets, of which one has only shards that failed."""
    spec = a_spec(where="false", crawl=None, input_uris=("/home/me/*.jsonl.gz",), subsets=("crawl", "failed"))
    receipt = replace(scored_by(A), rows_in=1000, rows_kept=0, rows_dropped=999, rows_errored=1)
    return dataset_card(spec, [receipt])


@pytest.mark.parametrize(
    "card", [of_fineweb, of_several_models, of_a_local_folder, of_a_judged_filter, of_scores_alone]
)
def test_a_card_says_what_was_read_with_what_and_how_and_names_no_folder(card: Callable[[], bytes]) -> None:
    text = card().decode()

    check_golden("cards", card.__name__, text)
    assert "/home/me" not in text


def test_a_card_names_the_worst_values_of_a_column_that_has_many() -> None:
    values = {f"value {place}": a_line(3) for place in range(25)}
    evidence = an_evidence(a_spec(), [a_receipt("other", B)], within="topic", values=values)

    text = dataset_card(a_spec(), [a_receipt("r", A)], CardFacts(evidence=evidence)).decode()

    assert "By `topic`, with a `score` of at least 3, the worst 20 of 25 values:" in text
    assert "value 19" in text
    assert "value 20" not in text
