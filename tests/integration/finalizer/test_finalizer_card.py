"""The dataset card says what was filtered, with what and how, and names no folder of the machine."""

import re
import sys
from dataclasses import replace
from typing import Any

import pytest
import yaml

from shardsift.fleet.ledger.records import Description
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.receipt import Histogram, Parity, Receipt, added
from shardsift.fleet.run.scoring import ZeroShot
from shardsift.fleet.run.spec import Shard
from shardsift.producer.publishing.card import Beside, dataset_card
from shardsift.producer.publishing.hub_cards import hub_dataset
from shardsift.producer.scores.distribution import histograms_of, score_picture, score_table
from support.finalizer_runs import A, B, C, FinalizerRun
from support.records import a_receipt, a_scoring_receipt, a_spec


class TestCard:
    def test_the_viewer_finds_both_configs(self, run: FinalizerRun) -> None:
        run.do(A, B, C)
        run.finalize()

        card = front_matter((run.out / "README.md").read_text())

        assert card["configs"] == [
            {
                "config_name": "default",
                "data_files": [{"split": "train", "path": "data/**/*.parquet"}],
                "default": True,
            },
            {"config_name": "scores", "data_files": [{"split": "train", "path": "scores/**/*.parquet"}]},
        ]
        assert card["source_datasets"] == ["HuggingFaceFW/fineweb"]
        assert card["size_categories"] == ["n<1K"]
        for config in card["configs"]:
            assert len(list(run.out.glob(config["data_files"][0]["path"]))) == 3

    def test_of_scores_alone_has_no_other_subset_and_says_so(self) -> None:
        spec = replace(a_spec(), where="false")

        card = dataset_card(spec, [a_receipt(spec.run_id, A, rows_in=1000, rows_kept=0, rows_dropped=999)]).decode()

        (subset,) = front_matter(card)["configs"]
        assert subset == {
            "config_name": "scores",
            "data_files": [{"split": "train", "path": "scores/**/*.parquet"}],
            "default": True,
        }
        assert front_matter(card)["size_categories"] == ["1K<n<10K"]
        assert "The scores of 1,000 rows of [" in card
        assert "filtered with" not in card
        assert "data/**" not in card

    @pytest.mark.usefixtures("pictures")
    def test_its_picture_is_the_same_for_the_same_scores_and_the_tables_stay(self, run: FinalizerRun) -> None:
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

    def test_it_has_tables_alone_if_no_picture_can_be_drawn(
        self, run: FinalizerRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
        run.do(A, B, C)

        run.finalize()

        assert not (run.out / "scores.png").exists()
        card = (run.out / "README.md").read_text()
        assert "\n## Scores\n\nRows that were read, by score." in card
        assert "![" not in card

    def test_it_tells_source_model_filter_and_rows(self) -> None:
        spec = a_spec()

        text = dataset_card(spec, [a_receipt(spec.run_id, shard) for shard in (A, B)]).decode()

        dataset = "[HuggingFaceFW/fineweb](https://huggingface.co/datasets/HuggingFaceFW/fineweb)"
        assert f"| Source | {dataset}, `{spec.input_uris[0]}` at revision `0123abc` |" in text
        model = "[HuggingFaceFW/fineweb-edu-classifier](https://huggingface.co/HuggingFaceFW/fineweb-edu-classifier)"
        assert f"| Model | {model} at revision `4567def` |" in text
        assert '| Filter | `"score" >= 3.0` |' in text
        assert "| Rows in | 20 |" in text
        assert "| Kept | 12 (60.0%) |" in text
        assert "| Dropped | 6 (30.0%) |" in text
        assert "| Not scored | 2 (the `error` column of `scores/` says why) |" in text
        assert "`int_score`: the score clipped to 0…5 and rounded" in text

    def test_what_is_from_several_sources_has_the_licence_of_none(self) -> None:
        others = ("hf://datasets/me/one@ab/*.parquet", "hf://datasets/me/other@cd/*.parquet", "/home/me/web")
        spec = a_spec(crawl=None, input_uris=others)

        text = dataset_card(spec, [a_receipt("r", A)]).decode()

        assert front_matter(text)["source_datasets"] == ["me/one", "me/other"]
        assert hub_dataset(spec) is None
        assert hub_dataset(a_spec(input_uris=others[:1])) == ("me/one", "ab")
        assert "/home/me" not in text
        assert "# one and 2 more, filtered with" in text
        assert "6 of 10 rows (60.0%) of 3 sources: those" in text

    def test_a_local_models_folder_is_not_told(self) -> None:
        model = Model(name="/home/me/secret/mine", revision="sha256-abc", labels=("good", "bad"))

        text = dataset_card(a_spec(model=model, int_score=False), [a_receipt("r", A)]).decode()

        assert "/home/me" not in text
        assert "`mine` at revision `sha256-abc`" in text
        assert "`label`: the label with that score, of: `good`, `bad`." in text

    def test_it_names_the_columns_that_were_chosen_of_the_source(self) -> None:
        spec = a_spec()
        chosen = dataset_card(a_spec(only_columns=True), [a_receipt("r", A)]).decode()

        names = ", ".join(f"`{name}`" for name, _ in spec.columns)
        assert f"in the source's order and with these of its columns: {names}." in chosen
        assert "with all its columns." in dataset_card(spec, [a_receipt("r", A)]).decode()

    def test_a_filter_of_any_characters_is_shown_as_it_is_and_ends_no_block(self) -> None:
        where = "url NOT LIKE '%\n```\n%' AND a = 'x|`y'"

        card = dataset_card(a_spec(where=where), [a_receipt("r", A)]).decode()

        assert "| Filter | ```` url NOT LIKE '% ``` %' AND a = 'x\\|`y' ```` |" in card
        assert card.count("````bash\n") == 1
        assert "those for which ```` url NOT LIKE '% ``` %' AND a = 'x|`y' ````" in card

    def test_it_names_each_format_of_a_mixed_input_with_its_files(self) -> None:
        lines = replace(a_receipt("r", A), source_uri="file:///me/web/a.jsonl.gz")
        spec = a_spec(crawl=None, input_uris=("/me/web",))

        part = replace(a_receipt("r", B), shard="b.part-00001")
        card = dataset_card(spec, [lines, a_receipt("r", A), a_receipt("r", B), part]).decode()

        assert "| Source | `web` (2 files of Parquet, 1 file of JSON Lines) at revision" in card

    def test_it_speaks_of_a_filter_only_if_there_is_one(self) -> None:
        filtered, whole = (dataset_card(a_spec(where=w), [a_receipt("r", A)]).decode() for w in ("score > 3", None))

        for words in ("texts on the other side of the filter", "The filter compares this value"):
            assert words in filtered
            assert words not in whole

    @pytest.mark.parametrize(
        ("where", "columns"),
        [("score > 3", ["score"]), ("rows.int_score >= 3 AND 'score' <> id", ["int_score"]), ("text LIKE 'a%'", [])],
    )
    def test_it_says_which_columns_the_filter_compares(self, where: str, columns: list[str]) -> None:
        card = dataset_card(a_spec(where=where), [a_receipt("r", A)]).decode()

        assert re.findall("- `(.*)`: .* The filter compares this value as it is.", card) == columns

    def test_several_models_have_a_table_with_a_column_for_each(self) -> None:
        (edu,) = a_spec(score_column="edu_score", int_score=False, max_tokens=512).scorings
        nli = Model(name="me/nli", revision="89ab", labels=("contradiction", "entailment"))
        labels = ZeroShot(labels=("food", "code"), multi_label=True)
        (topic,) = a_spec(score_column="topic_score", int_score=False, model=nli, zero_shot=labels).scorings
        spec = replace(a_spec(where="edu_score > 3"), scorings=(edu, topic))
        scored = replace(a_receipt("r", A), scorings=(a_scoring_receipt(), a_scoring_receipt(parity=None)))

        text = dataset_card(spec, [scored]).decode()

        told = "Every row was scored with a text classifier and a zero-shot classifier, but for 1 row with an error;"
        assert f"{told}\nthe rows that pass" in text
        lines = text.partition("## Models\n\n")[2].partition("\n\n")[0].splitlines()
        assert lines[:2] == ["|  | `edu_score` | `topic_score` |", "| --- | --- | --- |"]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
        assert [row[0] for row in rows] == ["Model", "Scored text", "Zero-shot", "Scored in", "Against float32"]
        assert rows[1][1:] == ["`text`, at most 512 tokens", "`text`"]
        assert rows[2][1:] == ["", "`This example is {}.` with 2 labels, each judged by itself"]
        assert rows[4][2] == "not tried"
        assert text.count("| Model |") == 1

    @pytest.mark.parametrize(
        ("changes", "title"),
        [
            ({}, "# fineweb CC-MAIN-2024-10, filtered with fineweb-edu-classifier"),
            ({"where": None}, "# fineweb CC-MAIN-2024-10, scored with fineweb-edu-classifier"),
            ({"crawl": None, "input_uris": ("/home/me/web/*.parquet",)}, "# web, filtered with fineweb-edu-classifier"),
            ({"crawl": None, "input_uris": ("/home/me/web/a.parquet",)}, "# a, filtered with fineweb-edu-classifier"),
            ({"crawl": None, "input_uris": ("/home/me/*",)}, "# Parquet files, filtered with fineweb-edu-classifier"),
            (
                {"crawl": None, "input_uris": ("*.jsonl.gz",)},
                "# JSON Lines files, filtered with fineweb-edu-classifier",
            ),
        ],
    )
    def test_its_title_says_what_was_filtered_with_what(self, changes: dict[str, Any], title: str) -> None:
        text = dataset_card(a_spec(**changes), [a_receipt("r", A)]).decode()

        assert title in text.splitlines()
        assert front_matter(text)["pretty_name"] == title.removeprefix("# ")
        assert ("source_datasets" in front_matter(text)) == ("input_uris" not in changes)
        assert "/home/me" not in text

    def test_its_title_is_shown_as_the_user_wrote_it(self) -> None:
        title = "5 * 3 <b>, my_set [v2] & C#"

        text = dataset_card(a_spec(), [a_receipt("r", A)], Beside(description=Description(title=title))).decode()

        assert "\n# 5 \\* 3 \\<b\\>, my\\_set \\[v2\\] \\& C\\#\n" in text
        assert front_matter(text)["pretty_name"] == title

    def test_it_can_be_cited_by_title_and_year_and_on_the_hub_by_owner_and_address(self) -> None:
        titled = Beside(description=Description(title="5 & 3: my_{set}"))
        receipts = [a_receipt("r", shard) for shard in (A, B)]
        late = replace(receipts[0].provenance, finished_at=1_735_689_601.0)

        folder = dataset_card(spec := a_spec(), [replace(receipts[0], provenance=late), receipts[1]]).decode()
        hub = dataset_card(a_spec(output_uri="hf://datasets/me/kept@strict"), receipts, titled).decode()

        title = "{{fineweb CC-MAIN-2024-10, filtered with fineweb-edu-classifier}}"
        assert f"```bibtex\n@misc{{{spec.run_id},\n  title = {title},\n  year = {{2025}}\n}}\n```" in folder
        assert "@misc{me/kept,\n  title = {{5 \\& 3: my\\_ set }},\n  year = {2023},\n  author = {me},\n" in hub
        assert re.search(r"  url = \{https?://.*/datasets/me/kept\}\n", hub)

    def test_it_says_what_the_data_are_not_good_for_and_what_is_missing(self) -> None:
        read_whole = dataset_card(
            a_spec(where=None, passages="stride:256"), [a_receipt("r", A)], Beside(left_out=2)
        ).decode()
        read_in_part = dataset_card(a_spec(), [a_receipt("r", A)]).decode()

        assert "| Shards | 1; 2 more failed and are not here |" in read_whole
        assert "a text classifier, but for 1 row with an error and 2 shards that failed;" in read_whole
        assert "| Shards | 1 |" in read_in_part
        for words in ("Only the beginning of a text was read", "close to the edge of the filter"):
            assert words in read_in_part
            assert words not in read_whole

    def test_it_tells_time_speed_and_tokens_of_each_device(self) -> None:
        made = a_receipt("r", A).provenance
        one, other = (
            replace(made, device=device, started_at=0.0, finished_at=seconds, tokens=tokens)
            for device, seconds, tokens in (("NVIDIA L4", 7200.0, 5_000_000), ("NVIDIA T4", 800.0, 1_000_000))
        )
        receipts = [
            a_receipt("r", shard, provenance=how, rows_in=80_000, rows_kept=80_000, rows_dropped=0, rows_errored=0)
            for shard, how in ((A, one), (B, other))
        ]

        text = dataset_card(a_spec(), receipts).decode()
        unknown = dataset_card(a_spec(), [*receipts, a_receipt("r", C)]).decode()

        assert (
            "| Time | 2 h on NVIDIA L4 and 13 min on NVIDIA T4, all workers together, without starts and interrupted attempts; "
            "20 rows/s per worker |" in text
        )
        assert "| Tokens read | 6,000,000 |" in text
        assert "| Software | shardsift 0.1.0, torch 2.11.0 |" in text
        assert "| Cost | about $1.69, by the list price of Hugging Face Jobs on 2026-11-21 |" in text
        rows_of_table = {line.split("|")[1].strip() for line in unknown.splitlines() if "|" in line}
        assert not {"Tokens read", "Cost"} & rows_of_table  # the third receipt does not say

    def test_it_tells_how_the_scores_of_all_shards_are_spread_if_a_row_has_one(self) -> None:
        some, none = (Histogram(bins_per_unit=4, rows_by_bin=rows) for rows in ({0: 3, 12: 5}, {}))

        cards = [
            dataset_card(a_spec(), [scored_by(shard, histogram=spread) for shard in (A, B)]).decode()
            for spread in (some, none)
        ]

        assert f"```text\n{score_table(added([some, some]))}\n```" in cards[0]
        assert "## Scores" not in cards[1]

    def test_of_several_labels_it_shows_how_the_scores_are_spread_that_the_filter_compares(self) -> None:
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

    def test_it_tells_the_formats_and_the_worst_that_the_trials_of_the_workers_found(self) -> None:
        receipts = [
            scored_by(A, parity=Parity(rows=1024, max_error=0.001, p999_error=0.0009, flipped_share=0.0)),
            scored_by(
                B, parity=Parity(rows=16, max_error=0.02, p999_error=0.02, flipped_share=0.0625), dtype="bfloat16"
            ),
            scored_by(C, parity=None, refused_dtypes=("float16", "bfloat16")),
        ]

        text = dataset_card(a_spec(), receipts).decode()

        why = "(in float16 and bfloat16 the scores differ too much)"
        assert (
            f"| Scored in | bfloat16 on cpu (padded), float32 {why} on cpu (padded), float32 on cpu (padded). The number formats "
            "are mixed: the same text may have slightly different scores |" in text
        )
        assert (
            "| Against float32 | logits of 16 sample texts differ by at most 0.02; "
            "1 of 16 texts on the other side of the filter |" in text
        )

    @pytest.mark.parametrize(
        ("function", "says"),
        [("none", "raw logit"), ("sigmoid", "logit through a sigmoid"), ("softmax", "probability by softmax")],
    )
    def test_it_tells_what_made_the_logits_scores(self, function: str, says: str) -> None:
        assert says in dataset_card(a_spec(function_to_apply=function), [a_receipt("r", A)]).decode()

    @pytest.mark.parametrize(
        ("kept", "size"),
        [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (10**9, "1B<n<10B"), (10**12, "100B<n<1T")],
    )
    def test_its_size_is_that_of_the_kept_rows(self, kept: int, size: str) -> None:
        receipt = a_receipt("r", A, rows_in=kept, rows_kept=kept, rows_dropped=0, rows_errored=0)

        assert front_matter(dataset_card(a_spec(), [receipt]).decode())["size_categories"] == [size]


def scored_by(shard: Shard, **changes: Any) -> Receipt:
    return replace(a_receipt("r", shard), scorings=(a_scoring_receipt(**changes),))


def front_matter(card: str) -> dict[str, object]:
    _, header, _ = card.split("---\n", 2)
    return dict(yaml.safe_load(header))
