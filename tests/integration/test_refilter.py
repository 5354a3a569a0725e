"""`producer refilter` plans a run over stored scores, and what that run publishes is what a fresh run would."""

import io
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.run.spec import Buckets
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.options import RefilterOptions
from shardsift.producer.planning.plan import Plan
from shardsift.producer.planning.refilter import plan_refilter
from shardsift.producer.publishing.card import dataset_card
from shardsift.producer.publishing.publish import inspect_and_repair
from shardsift.producer.verify.verify import verify
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.shard.stored_scores import load_stored_scores
from support.everyday import everyday
from support.input_shards import with_first_texts
from support.models import tiny_classifier
from support.outputs import Published, data_digests, published_rows
from support.records import a_receipt, a_shard, a_spec
from support.same_footer import rewrite_shuffled, rewrite_with_two_rows_exchanged, write_uncompressed
from support.small_run import Runs, score

SHARDS, ROWS = 3, 40


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "shards"
    for file in write_shards(folder, shards=SHARDS, rows=ROWS, seed=4):
        table = pq.read_table(file)
        table = table.append_column("hash", pa.array([1 << 63] * len(table), pa.uint64()))
        topics = [(None, "it's", "news", "news")[row % 4] for row in range(len(table))]
        table = table.append_column('the "topic"', pa.array(topics).dictionary_encode())
        pq.write_table(table, file)
    first = folder / "000_00000.parquet"
    pq.write_table(with_first_texts(pq.read_table(first), [None, "  "]), first)
    return folder


@pytest.fixture
def earlier(runs: Runs, source: Path) -> Path:
    """A published run over `source`."""
    return runs.publish(source, "kept", min_score=0.0)


def middle_score(output: Path) -> float:
    scores = [score for score in published_rows(output, "scores")["score"].to_pylist() if score is not None]
    return sorted(scores)[len(scores) // 2]


class TestWhatItPublishes:
    def test_a_refilter_publishes_the_bytes_of_a_fresh_run(self, runs: Runs, earlier: Path, source: Path) -> None:
        threshold = middle_score(earlier)

        fresh, again = runs.publish(source, "fresh", min_score=threshold), runs.refilter(earlier, min_score=threshold)

        assert data_digests(again) == data_digests(fresh) != data_digests(earlier)
        assert 0 < published_rows(again).num_rows < SHARDS * ROWS
        assert verify(str(again), source=(str(source),)).faults == ()

    @pytest.mark.parametrize("size", [None, "1MB"])
    def test_a_refilter_of_a_refiltered_run_is_the_same_and_its_card_says_how_the_scores_were_computed(
        self, runs: Runs, earlier: Path, source: Path, size: str | None
    ) -> None:
        once = runs.refilter(earlier, "once", where="score < 0", target_file_size=size)
        fresh = runs.publish(source, "fresh", keep_all=True, target_file_size=size)

        twice = runs.refilter(once, "twice", keep_all=True)

        assert data_digests(twice) == data_digests(fresh)
        first, last = ((output / "README.md").read_text() for output in (earlier, twice))
        for row in ("Scored in", "Against float32", "Time", "Tokens read", "Software"):  # rates are of rounded times
            assert re.findall(f"^\\| {row} [^;\n]*", last, re.M) == re.findall(f"^\\| {row} [^;\n]*", first, re.M) != []
        run, refilter = command_in(last).split("producer refilter ")
        assert run == command_in(first)
        rows = f"--keep-all \\\n  --target-file-size {size or 'none'}"
        assert refilter == f"./again \\\n  --input shards \\\n  {rows} \\\n  --output ./again-2\n"
        assert "Scores from" not in last  # a folder that no reader has

    def test_the_card_of_a_refilter_links_to_the_scores_that_were_published_on_the_hub(self) -> None:
        spec = a_spec(output_uri="hf://datasets/me/kept")
        scores = replace(spec.scorings[0].model, name="hf://datasets/me/kept-scores@v2")
        (receipt,) = receipts = [a_receipt(spec.run_id, a_shard())]

        other, in_place = (
            dataset_card(a_spec(output_uri=output, scores_from=scores), receipts).decode()
            for output in (spec.output_uri, scores.name)
        )

        assert "| Scores from | [me/kept-scores](https://huggingface.co/datasets/me/kept-scores) at `v2` |" in other
        assert "Scores from" not in in_place
        assert f"on {receipt.provenance.device} (padded)" in other


def command_in(card: str) -> str:
    (command,) = re.findall(r"```bash\n(producer run .*?)```", card, re.DOTALL)
    return str(command)


def test_a_refilter_that_cannot_be_planned_is_refused(runs: Runs, earlier: Path, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "shards"
    shutil.copytree(source, other)
    (other / "000_00001.parquet").unlink()
    changed = other / "000_00002.parquet"
    pq.write_table(pq.read_table(changed).slice(1), changed)
    shutil.copy(changed, other / "new.parquet")
    to = RefilterOptions(min_score=1.0, output_uri=str(tmp_path / "x"))
    kept = str(earlier)

    refusals: dict[str, Callable[[], Plan]] = {
        "Say which rows to keep: --min-score, --where or --keep-all; `refilter`": lambda: runs.refilter_plan(earlier),
        'there is no column "scor"': lambda: runs.refilter_plan(earlier, where="scor > 1"),
        r"No run is published at .*shards: there is no manifest\.parquet": lambda: plan_refilter(str(source), to),
        r"which was named shards\. Add --input PATH": lambda: plan_refilter(kept, to),
        "differ: 000_00001, 000_00002. Name that input": lambda: runs.refilter_plan(
            earlier, min_score=1.0, input_uris=(str(other),)
        ),
        r"kept is where the scores are read from\. Choose another --output": lambda: runs.refilter_plan(
            earlier, "kept", min_score=1.0
        ),
        "--replace is for a dataset on the Hub": lambda: plan_refilter(kept, replace(to, output_uri="", replaces=True)),
        "either --output URI or --replace": lambda: plan_refilter(kept, replace(to, replaces=True)),
    }
    for says, plan in refusals.items():
        with pytest.raises(UsageError, match=says):
            plan()

    Published(str(earlier)).truncate("manifest.parquet")
    with pytest.raises(UsageError, match=r"manifest\.parquet at .* is damaged"):
        runs.refilter_plan(earlier, min_score=1.0)


class TestAnInputThatWasRewrittenWithTheSameFooter:
    @pytest.fixture
    def rewritten(self, runs: Runs, tmp_path: Path) -> Path:
        """A published run over two files of numbered texts, which a test rewrites."""
        numbers = np.random.default_rng(1).integers(100_000, 999_999, ROWS)
        texts = [f"A text about the number {number}." for number in numbers]
        rows = pa.table({"text": texts, "other": [f"See {number}" for number in numbers]})
        (tmp_path / "in").mkdir()
        write_uncompressed(tmp_path / "in/plain.parquet", rows)
        pq.write_table(rows, tmp_path / "in/snappy.parquet")
        return runs.publish(tmp_path / "in", "kept")

    @pytest.mark.parametrize(
        ("name", "rewrite"), [("plain", rewrite_shuffled), ("snappy", rewrite_with_two_rows_exchanged)]
    )
    def test_an_input_rewritten_with_the_same_footer_gets_no_score_of_another_text(
        self, runs: Runs, rewritten: Path, tmp_path: Path, name: str, rewrite: Callable[[Path], None]
    ) -> None:
        rewrite(tmp_path / f"in/{name}.parquet")

        with pytest.raises(ShardError, match=f"{name}, rows 0 to {ROWS - 1}: these are not the texts"):
            runs.refilter(rewritten, keep_all=True)

    def test_an_input_rewritten_with_the_same_footer_may_have_other_values_where_none_was_scored(
        self, runs: Runs, rewritten: Path, scorer: SequenceClassifier, tmp_path: Path
    ) -> None:
        rewrite_shuffled(tmp_path / "in/plain.parquet", "other")

        again = pq.read_table(runs.refilter(rewritten, keep_all=True) / "data/plain.parquet")

        assert again["other"].equals(pq.read_table(tmp_path / "in/plain.parquet")["other"])
        assert again["score"].to_pylist() == scorer.score(again["text"]).values[:, 0].tolist()

    def test_an_input_rewritten_with_the_same_footer_is_scored_again_as_it_is_if_a_published_file_was_lost(
        self, runs: Runs, rewritten: Path, scorer: SequenceClassifier, tmp_path: Path
    ) -> None:
        spec = runs.specs[rewritten]
        (rewritten / "data/plain.parquet").unlink()
        rewrite_shuffled(tmp_path / "in/plain.parquet")

        inspect_and_repair(runs.ledger, spec.run_id, hashes=False)
        shards = {shard.name: shard for shard in runs.ledger.shards(spec.run_id)}
        score(runs.ledger, scorer, spec, [shards["plain"]], scratch=tmp_path / "scratch")
        inspect_and_repair(runs.ledger, spec.run_id, hashes=False)

        rows = pq.read_table(rewritten / "data/plain.parquet")
        assert rows["score"].to_pylist() == scorer.score(rows["text"]).values[:, 0].tolist()
        assert rows["text"].equals(pq.read_table(tmp_path / "in/plain.parquet")["text"])


class TestAShardWhoseScoresCannotBeRead:
    def test_a_damaged_file_of_scores_fails_its_shard_and_refuses_a_cut(self, runs: Runs, earlier: Path) -> None:
        Published(str(earlier)).flip("scores/000_00001.parquet")

        for choice in ({"min_score": 1.0}, {"keep_top": "30%"}):
            with pytest.raises(
                ShardError, match=r"000_00001\.parquet has changed since it was written .* --verify, repairs it"
            ):
                runs.refilter(earlier, **choice)

    def test_a_file_of_scores_that_came_wrong_once_is_read_again(
        self, runs: Runs, earlier: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, opened = earlier / "scores/000_00001.parquet", LocalFileSystem.open
        wrong = [file.read_bytes()[:-1] + b"x"]

        def wrong_once(self: LocalFileSystem, path: str, *arguments: Any, **options: Any) -> Any:
            is_wrong = str(path).endswith(str(file)) and wrong
            return io.BytesIO(wrong.pop()) if is_wrong else opened(self, path, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(LocalFileSystem, "open", wrong_once)
            again = runs.refilter(earlier, min_score=0.0)

        assert wrong == []
        assert data_digests(again) == data_digests(earlier)

    def test_scores_of_a_run_published_again_are_refused(self, runs: Runs, earlier: Path, source: Path) -> None:
        model = runs.refilter_plan(earlier, min_score=1.0).spec.scorings[0].served_by
        other = runs.publish(source, "fresh", min_score=0.0, limit_rows=20)
        shutil.copy(other / "manifest.parquet", earlier)

        with pytest.raises(UsageError, match="has changed since this run was enqueued: repeat the `producer refilter`"):
            load_stored_scores(model, None)


class TestACut:
    """`--keep-top` and `--buckets` of a run with three labels."""

    @pytest.fixture
    def runs(self, runs: Runs, tmp_path: Path) -> Runs:
        return runs.by(tiny_classifier(tmp_path / "model", labels=3))

    @pytest.fixture
    def earlier(self, runs: Runs, source: Path) -> Path:
        return runs.publish(source, "kept")

    @pytest.fixture
    def rows(self, earlier: Path) -> pd.DataFrame:
        rows: pd.DataFrame = published_rows(earlier).to_pandas()
        return rows

    @pytest.mark.parametrize("within", ["label", 'the "topic"'])
    def test_a_cut_keeps_the_best_tokens_within_each_label_or_value_of_the_input_and_says_how_many(
        self, runs: Runs, earlier: Path, source: Path, rows: pd.DataFrame, within: str
    ) -> None:
        cut = {"keep_top": "30%", "by": "token_count", "within": within}
        nulls = int(rows[within].isna().sum())
        rows = rows[rows[within].notna()]

        again = runs.refilter(earlier, **cut)

        best = pd.concat(
            best_of(of_label, 0.3, "token_count") for _, of_label in rows.groupby(rows[within].astype(object))
        ).sort_index()
        kept = published_rows(again).to_pandas()
        pd.testing.assert_frame_equal(kept, best.reset_index(drop=True))
        share = best["token_count"].sum() / rows["token_count"].sum()
        told = (f"Keeps {share:.2%} of token_count: {len(best)} rows.",)
        unranked = f"{nulls} scored rows, whose {within} is null,"
        out = (f"{unranked} are left out, and are not in these figures.",) if nulls else ()
        assert runs.refilter_plan(earlier, **cut).notes == (*told, *out)
        assert nulls or within == "label"
        marked = runs.refilter_plan(earlier, **{**cut, "keep_top": None}, buckets=4, keep_all=True)
        assert marked.notes == ((f"{unranked} have no bucket.",) if nulls else ())
        card = (again / "README.md").read_text()
        assert (
            ": those with the highest `score`, which have 30% of all `token_count`, "
            f"within each `{within}` that is not null. Every" in card
        )
        assert f"  --by token_count \\\n  --within {shlex.quote(within)} \\\n  --keep-top 30% \\\n" in card
        assert "--where" not in card.partition("producer refilter ")[2]
        assert verify(str(again), source=(str(source),)).faults == ()

    def test_a_filter_may_use_buckets(self, runs: Runs, earlier: Path, source: Path, rows: pd.DataFrame) -> None:
        columns = ("score_LABEL_0", "score_LABEL_1")
        cut: dict[str, Any] = {"buckets": 4, "score_columns": columns}
        rows["highest"] = rows[[*columns]].max(axis=1)
        edges = [float(best_of(rows, share, column="highest")["highest"].min()) for share in (0.75, 0.5, 0.25)]

        again = runs.refilter(earlier, **cut, where="bucket >= 2")

        kept = published_rows(again).to_pandas()
        expected = np.searchsorted(edges, rows["highest"], side="right")
        assert kept["bucket"].tolist() == [bucket for bucket in expected if bucket >= 2]
        assert published_rows(again, "scores")["bucket"].drop_null().to_pylist() == expected.tolist()
        assert verify(str(again), source=(str(source),)).faults == ()
        assert published_run(str(again)).spec.buckets == Buckets(columns=columns, edges=((None, tuple(edges)),))
        card = (again / "README.md").read_text()
        assert f"\n| {' | '.join(map(repr, edges))} |\n" in card
        assert "--buckets 4" in card

    @pytest.mark.parametrize("within", everyday(['the "topic"', "hash"], only=['the "topic"']))
    def test_buckets_are_within_each_value_of_the_input_and_none_is_without_a_value(
        self, runs: Runs, earlier: Path, source: Path, rows: pd.DataFrame, within: str
    ) -> None:
        again = runs.refilter(earlier, buckets=2, within=within, keep_all=True)

        by_value = rows.groupby(rows[within].astype(object))
        halves = {value: best_of(of_value, 0.5)["score"].min() for value, of_value in by_value}
        expected = [
            score >= halves[value] if value in halves else None
            for value, score in zip(rows[within], rows["score"], strict=True)
        ]
        assert published_rows(again)["bucket"].to_pylist() == expected
        assert verify(str(again), source=(str(source),)).faults == ()

    def test_a_cut_by_an_interrupted_command_is_the_same_run(self, runs: Runs, earlier: Path) -> None:
        cut: dict[str, Any] = {"keep_top": "50%", "by": "token_count"}

        one, same, other = (runs.refilter_plan(earlier, **cut, buckets=buckets).spec for buckets in (20, 20, 10))

        assert one.run_id == same.run_id != other.run_id

    def test_a_cut_that_means_nothing_is_refused(self, runs: Runs, earlier: Path) -> None:
        refusals: dict[str, dict[str, Any]] = {
            "Use only one of --keep-top, --min-score": {"keep_top": "5%", "keep_all": True},
            "--by .*for --keep-top": {"by": "token_count", "keep_all": True},
            "There is no score column label. Name one with --score-column. The run has: score, score_LABEL_0": {
                "keep_top": "5%",
                "score_columns": ("label",),
            },
            "--within score: .* numbers that scoring has added: label": {"keep_top": "5%", "within": "score"},
            "--within LABEL: name a column of the input": {"keep_top": "5%", "within": "LABEL"},
            "--by tokens: the input has no such column": {"keep_top": "5%", "by": "tokens"},
            "a percentage between 0% and 100%, like 10%, not '5'": {"keep_top": "5"},
            "--within language_score: values are texts or whole numbers, and this column has double": {
                "keep_top": "5%",
                "within": "language_score",
            },
            "--by text: a weight is a whole number, and this column has string": {"keep_top": "5%", "by": "text"},
            "Say which rows to keep": {"buckets": 4},
            "--by hash: the weights of 000_00000 are too high": {"keep_top": "5%", "by": "hash"},
        }

        for refusal, choice in refusals.items():
            with pytest.raises(UsageError, match=refusal):
                runs.refilter_plan(earlier, **choice)


def best_of(rows: pd.DataFrame, share: float, by: str | None = None, *, column: str = "score") -> pd.DataFrame:
    """The best rows, by sorting all."""
    weights = rows[by] if by else pd.Series(1, rows.index)
    ordered = rows.sort_values(column, ascending=False, kind="stable")
    reached = weights[ordered.index].cumsum() >= share * weights.sum()
    return rows[rows[column] >= ordered[column][reached].iloc[0]]
