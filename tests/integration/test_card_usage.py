"""What the dataset card tells its readers to type does what it says."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from typer.testing import CliRunner

from shardsift.fleet.run.output_columns import kept_schema, scores_schema
from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.cli import cli
from shardsift.producer.planning.options import RefilterOptions, RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.planning.reproduce import command_again, command_with_other_rows
from shardsift.producer.publishing.card import CardFacts, dataset_card
from shardsift.producer.publishing.card_contents import kept_rows
from support.nli import nli_classifier
from support.records import a_receipt, a_shard, a_spec

INPUT_SCHEMA = pa.schema([("text", pa.string()), ("id", pa.string())])


@pytest.fixture(scope="module")
def nli(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nli_classifier(tmp_path_factory.mktemp("models") / "nli", "BART")


class TestHowToMakeItAgain:
    @pytest.mark.parametrize(
        "options",
        [
            RunOptions(keep_all=True),
            RunOptions(
                where="score > 0.5\n and text <> 'it''s'",
                limit_rows=3,
                max_tokens=16,
                target_file_size="2MB",
            ),
            RunOptions(
                text_column="{text}\n{text}",
                passages="stride:8:mean",
                dtype="float32",
                keep_all=True,
            ),
            RunOptions(min_score=0.5, max_bad_rows=0.5, function_to_apply="sigmoid", text_pair_column="text"),
            RunOptions(keep_all=True, labels=("food", "code"), multi_label=True, hypothesis_template="About {}."),
        ],
        ids=["all rows", "SQL", "template", "pairs", "labels"],
    )
    def test_the_command_of_a_card_makes_the_same_run(
        self, options: RunOptions, tiny_model: Path, nli: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = nli if options.labels else tiny_model
        (tmp_path / model.name).symlink_to(model)
        (tmp_path / "shards").mkdir()
        pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "shards/one.parquet")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("SHARDSIFT_STATE_DIR", str(tmp_path / "state"))
        run = replace(options, input_uris=("shards",), models=(str(model.name),), output_uri="again")
        plan = plan_run(run)

        text = how_to_make_it_again(plan.spec, plan.command)

        assert str(tmp_path) not in text
        assert "without their paths: fill in yours" in text
        done = CliRunner().invoke(cli, [*arguments_of(text), "--dry-run", "--json"])
        assert done.exit_code == 0, done.stderr
        planned = json.loads(done.stdout)
        assert planned["run_id"] == plan.spec.run_id
        assert planned["target_file_size"] == (options.target_file_size or "none")


def how_to_make_it_again(spec: RunSpec, command: str | None) -> str:
    """The section of the card, or nothing."""
    card = dataset_card(spec, [a_receipt(spec.run_id, a_shard())], CardFacts(command=command)).decode()
    _, found, after = card.partition("## How to make it again\n")
    return found + after.partition("\n## ")[0]


def how_to_load(spec: RunSpec) -> str:
    return kept_rows(spec, {"rows_in": 2, "rows_kept": 1, "rows_dropped": 1}, "").how_to_load


def arguments_of(text: str) -> list[str]:
    """Of the command in the text, as a shell splits it."""
    (command,) = re.findall(r"```bash\n(.*?)\n```", text, re.DOTALL)
    program, *arguments = shlex.split(command.replace("\\\n", ""))
    assert program == "producer"
    return arguments


class TestHowToLoad:
    @pytest.mark.parametrize("row_columns", [("shard", "row"), ("of", 'the "row"')])
    def test_the_snippets_of_a_card_read_what_is_in_its_folder(
        self, row_columns: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = a_spec(row_columns=row_columns, int_score=False, output_uri=str(tmp_path))
        scores = (4.0, 3.0, 1.0, 2.0, None)
        rows = [{"shard": "c/a", "row": row, "score": score} for row, score in enumerate(scores)]
        kept = [
            {"text": text, "id": "0", row_columns[0]: "c/a", row_columns[1]: row, "score": score}
            for row, (text, score) in enumerate((("best", 4.0), ("barely", 3.0)))
        ]
        for folder, schema, lines in (
            ("scores", scores_schema(spec), rows),
            ("data", kept_schema(INPUT_SCHEMA, spec), kept),
        ):
            (tmp_path / folder / "c").mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(lines, schema=schema), tmp_path / folder / "c/a.parquet")
        monkeypatch.chdir(tmp_path)
        text = how_to_load(spec)

        (files,) = re.findall(r'load_dataset\("parquet", data_files="(.*?)", split="train", streaming=True\)', text)
        (path,) = re.findall(r'pandas.read_parquet\("(.*?)"\)', text)
        data, others = re.findall(r"SELECT .*?;", text, re.DOTALL)

        assert "In this folder:" in text
        rows = load_dataset("parquet", data_files=files, split="train", streaming=True)
        assert [row["text"] for row in rows] == ["best", "barely"]
        assert pd.read_parquet(path)["text"].tolist() == ["best", "barely"]
        with duckdb.connect() as connection:
            assert connection.execute(data).df()["text"].tolist() == ["barely", "best"]
            assert connection.execute(others).df()["row"].tolist() == [3, 2, 4]


def test_several_models_are_named_with_their_revisions() -> None:
    (edu,) = a_spec(score_column="edu_score").scorings
    topic = replace(
        edu, score_column="topic_score", model=replace(edu.model, name="WebOrganizer/TopicClassifier-NoURL")
    )

    command = command_again(RunOptions(dtype="float32", keep_all=True), replace(a_spec(), scorings=(edu, topic)))

    arguments = shlex.split(command.replace("\\\n", ""))
    assert [arguments[place + 1] for place, one in enumerate(arguments) if one == "--model"] == [
        "edu=HuggingFaceFW/fineweb-edu-classifier@4567def",
        "topic=WebOrganizer/TopicClassifier-NoURL@4567def",
    ]
    assert arguments[arguments.index("--dtype") + 1] == "float32"


def test_a_run_over_stored_scores_is_made_again_without_them() -> None:
    earlier = command_again(RunOptions(dtype="float32", min_score=3.0), a_spec(target_file_bytes=10**6))

    again = command_with_other_rows(earlier, RefilterOptions(keep_top="10%", by="tokens"), a_spec())
    marked = command_with_other_rows(earlier, RefilterOptions(buckets=4, where="bucket = 3"), a_spec())

    run, refilter = str(marked).split("\nproducer ")
    assert run == earlier
    assert refilter.startswith("refilter ./again ")
    assert refilter.replace("\\\n ", "").endswith(
        "--where 'bucket = 3'  --buckets 4  --target-file-size none  --output ./again-2"
    )
    assert command_with_other_rows(marked, RefilterOptions(keep_top="10%", by="tokens"), a_spec()) == again
    assert command_with_other_rows(None, RefilterOptions(keep_all=True), a_spec()) is None


@pytest.mark.parametrize("labels", [("food, drink", "code"), ("@/home/me/labels.txt",)])
def test_labels_that_a_command_line_cannot_name_come_from_a_file(labels: tuple[str, ...]) -> None:
    text = how_to_make_it_again(a_spec(), command_again(RunOptions(labels=labels, keep_all=True), a_spec()))

    assert "--labels @labels.txt" in text
    assert "The file `labels.txt` has the labels, one a line." in text
