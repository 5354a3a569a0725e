"""`producer refilter` plans a run over stored scores, and what that run publishes is what a fresh run would."""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from fsspec.implementations.local import LocalFileSystem

from fleet.errors import ShardError, UsageError
from fleet.ledger import Ledger
from fleet.process.settings import Settings
from fleet.run.scorers import published_run
from fleet.run.spec import RunSpec
from producer.local.demo_data import write_shards
from producer.local.redis import embedded_redis
from producer.planning.options import RunOptions
from producer.planning.plan import Plan, plan_refilter, plan_run
from producer.publishing.publish import inspect_published, look_again
from producer.verify.verify import verify
from support.models import tiny_classifier
from support.outputs import data_digests, published_rows
from support.same_footer import rewrite_shuffled, rewrite_with_two_rows_exchanged, write_uncompressed
from support.small_run import publish, publish_plan, score
from worker.scoring.load import load_scorer
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.shard.stored_scores import load_stored_scores

SHARDS, ROWS = 3, 40


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with embedded_redis(tmp_path_factory.mktemp("redis")) as url:
        yield Ledger(redis.Redis.from_url(url, decode_responses=True), Settings())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "shards"
    write_shards(folder, shards=SHARDS, rows=ROWS, seed=4)
    first = folder / "000_00000.parquet"
    rows = pq.read_table(first)
    texts = [None, "  ", *rows["text"].to_pylist()[2:]]
    pq.write_table(rows.set_column(rows.schema.get_field_index("text"), "text", pa.array(texts)), first)
    return folder


@pytest.fixture(scope="module")
def scorer(tiny_model: Path) -> SequenceClassifier:
    return load_scorer(str(tiny_model), "float32", parity_rows=0, threads=1)


@dataclass(frozen=True)
class Earlier:
    """A published run, and what made it."""

    ledger: Ledger
    scorer: SequenceClassifier
    options: RunOptions
    spec: RunSpec
    folder: Path

    @property
    def output(self) -> Path:
        return Path(self.spec.output_uri)

    def fresh(self, **choice: Any) -> Path:
        """What a run with another filter publishes."""
        options = replace(self.options, **{"min_score": None, "output_uri": str(self.folder / "fresh"), **choice})
        publish(self.ledger, self.scorer, options, scratch=self.folder / "scratch")
        return self.folder / "fresh"

    def plan(self, *, to: str = "again", inputs: tuple[str, ...] = (), **choice: Any) -> Plan:
        options = RunOptions(output_uri=str(self.folder / to), input_uris=inputs, **choice)
        return plan_refilter(str(self.output), options, earlier=self.spec)

    def refiltered(self, *, to: str = "again", **choice: Any) -> Path:
        """What a run over the stored scores publishes."""
        plan = self.plan(to=to, **choice)
        stored = load_stored_scores(plan.spec.scorings[0].served_by, None)
        publish_plan(self.ledger, stored, plan, scratch=self.folder / "scratch")
        return self.folder / to


@pytest.fixture
def options(source: Path, tiny_model: Path, tmp_path: Path) -> RunOptions:
    return RunOptions(
        input_uris=(str(source),),
        models=(str(tiny_model),),
        dtype="float32",
        output_uri=str(tmp_path / "kept"),
        min_score=0.0,
    )


def published(ledger: Ledger, scorer: SequenceClassifier, options: RunOptions, folder: Path) -> Earlier:
    spec = publish(ledger, scorer, options, scratch=folder / "scratch")
    return Earlier(ledger=ledger, scorer=scorer, options=options, spec=spec, folder=folder)


@pytest.fixture
def earlier(ledger: Ledger, scorer: SequenceClassifier, options: RunOptions, tmp_path: Path) -> Earlier:
    return published(ledger, scorer, options, tmp_path)


def middle_score(output: Path) -> float:
    scores = [score for score in published_rows(output, "scores")["score"].to_pylist() if score is not None]
    return sorted(scores)[len(scores) // 2]


class TestWhatItPublishes:
    def test_is_what_a_fresh_run_publishes_to_the_last_byte(self, earlier: Earlier, source: Path) -> None:
        threshold = middle_score(earlier.output)

        fresh, again = earlier.fresh(min_score=threshold), earlier.refiltered(min_score=threshold)

        assert data_digests(again) == data_digests(fresh) != data_digests(earlier.output)
        assert 0 < published_rows(again).num_rows < SHARDS * ROWS
        assert verify(str(again), source=(str(source),)).faults == ()

    def test_is_the_same_from_the_scores_of_a_refiltered_run(self, earlier: Earlier) -> None:
        once = earlier.refiltered(where="score < 0", to="once")
        second = replace(earlier, spec=replace(earlier.spec, output_uri=str(once)))

        twice = second.refiltered(keep_all=True, to="twice")

        assert data_digests(twice) == data_digests(earlier.fresh(keep_all=True))

    @pytest.mark.parametrize("function", ["softmax", "none"])
    def test_holds_for_several_labels_and_every_function(
        self, ledger: Ledger, options: RunOptions, tmp_path: Path, function: str
    ) -> None:
        model = tiny_classifier(tmp_path / "three", labels=3)
        three = replace(
            options, models=(str(model),), function_to_apply=function, min_score=None, keep_all=True, limit_rows=50
        )
        scorer = load_scorer(str(model), "float32", parity_rows=0, threads=1)
        earlier = published(ledger, scorer, three, tmp_path)
        earlier = replace(earlier, options=replace(three, keep_all=False))
        where = f"score >= {middle_score(earlier.output)} and label <> 'LABEL_0' and score_LABEL_1 > -100"

        again = earlier.refiltered(where=where)

        assert data_digests(again) == data_digests(earlier.fresh(where=where))
        assert published_rows(again).num_rows > 0

    def test_says_whose_scores_they_are(self, earlier: Earlier) -> None:
        again = earlier.refiltered(keep_all=True)

        card = (again / "README.md").read_text()
        assert "| Scores from | `kept`, whose card says how they were computed |" in card
        first, second = (published_run(str(output)).spec.scorings[0] for output in (earlier.output, again))
        assert first.model == second.model


class TestWhatItRefuses:
    def test_a_filter_that_is_not_named_or_names_an_unknown_column(self, earlier: Earlier) -> None:
        with pytest.raises(UsageError, match="Say which rows to keep: --min-score, --where or --keep-all"):
            earlier.plan()
        with pytest.raises(UsageError, match="scor"):
            earlier.plan(where="scor > 1")

    def test_a_place_where_nothing_is_published(self, earlier: Earlier, source: Path) -> None:
        options = RunOptions(min_score=1.0, output_uri=str(earlier.folder / "x"))
        with pytest.raises(UsageError, match=r"No run is published at .*shards: there is no manifest\.parquet"):
            plan_refilter(str(source), options)

    def test_an_input_whose_place_is_not_known(self, earlier: Earlier) -> None:
        options = RunOptions(min_score=1.0, output_uri=str(earlier.folder / "x"))
        with pytest.raises(UsageError, match=r"which was named shards\. Add --input PATH"):
            plan_refilter(str(earlier.output), options)

    def test_an_input_that_is_not_the_one_that_was_scored(self, earlier: Earlier, source: Path, tmp_path: Path) -> None:
        other = tmp_path / "shards"
        shutil.copytree(source, other)
        (other / "000_00001.parquet").unlink()
        changed = other / "000_00002.parquet"
        pq.write_table(pq.read_table(changed).slice(1), changed)
        shutil.copy(changed, other / "new.parquet")

        with pytest.raises(UsageError, match="differ: 000_00001, 000_00002, new. Name that input"):
            earlier.plan(min_score=1.0, inputs=(str(other),))

    def test_the_place_of_the_earlier_run(self, earlier: Earlier) -> None:
        with pytest.raises(UsageError, match=r"kept is where the scores are read from\. Choose another --output"):
            earlier.plan(min_score=1.0, to="kept")


def shuffle_other(file: Path) -> None:
    rewrite_shuffled(file, "other")


class TestAnInputThatWasRewrittenWithTheSameFooter:
    @pytest.fixture
    def rewritable(self, options: RunOptions, tmp_path: Path) -> RunOptions:
        numbers = np.random.default_rng(1).integers(100_000, 999_999, ROWS)
        texts = [f"A text about the number {number}." for number in numbers]
        rows = pa.table({"text": texts, "other": [f"See {number}" for number in numbers]})
        (tmp_path / "in").mkdir()
        write_uncompressed(tmp_path / "in/plain.parquet", rows)
        pq.write_table(rows, tmp_path / "in/snappy.parquet")
        return replace(options, input_uris=(str(tmp_path / "in"),), min_score=None, keep_all=True)

    @pytest.mark.parametrize(
        ("name", "rewrite", "scored"),
        [
            ("plain", rewrite_shuffled, {}),
            ("snappy", rewrite_with_two_rows_exchanged, {}),
            ("plain", shuffle_other, {"text_pair_column": "other"}),
            ("plain", shuffle_other, {"text_column": "{text} {other}"}),
            ("plain", shuffle_other, {"text_column": "text,other"}),
            ("plain", shuffle_other, {"text_column": "other", "models": ("one", "two")}),
        ],
        ids=["a shuffled file", "two rows", "pairs", "a template", "several columns", "several models"],
    )
    def test_gets_no_score_of_another_text_whatever_was_scored(
        self,
        ledger: Ledger,
        scorer: SequenceClassifier,
        rewritable: RunOptions,
        tmp_path: Path,
        name: str,
        rewrite: Callable[[Path], None],
        scored: dict[str, Any],
    ) -> None:
        models = tuple(f"{column}={rewritable.models[0]}" for column in scored.get("models", ()))
        options = replace(rewritable, **{**scored, "models": models or rewritable.models})
        earlier = published(ledger, scorer, options, tmp_path)
        rewrite(tmp_path / f"in/{name}.parquet")

        with pytest.raises(ShardError, match=f"{name}, rows 0 to {ROWS - 1}: these are not the texts"):
            earlier.refiltered(keep_all=True)

    def test_may_have_other_values_where_none_was_scored(
        self, ledger: Ledger, scorer: SequenceClassifier, rewritable: RunOptions, tmp_path: Path
    ) -> None:
        earlier = published(ledger, scorer, rewritable, tmp_path)
        rewrite_shuffled(tmp_path / "in/plain.parquet", "other")

        again = pq.read_table(earlier.refiltered(keep_all=True) / "data/plain.parquet")

        assert again["other"].equals(pq.read_table(tmp_path / "in/plain.parquet")["other"])
        assert again["score"].to_pylist() == scorer.score(again["text"]).values[:, 0].tolist()

    def test_is_scored_again_as_it_is_if_a_published_file_was_lost(
        self, ledger: Ledger, scorer: SequenceClassifier, rewritable: RunOptions, tmp_path: Path
    ) -> None:
        earlier = published(ledger, scorer, rewritable, tmp_path)
        (earlier.output / "data/plain.parquet").unlink()
        rewrite_shuffled(tmp_path / "in/plain.parquet")

        look_again(ledger, earlier.spec.run_id, hashes=False)
        shards = {shard.name: shard for shard in ledger.shards(earlier.spec.run_id)}
        score(ledger, scorer, earlier.spec, [shards["plain"]], scratch=tmp_path / "scratch")
        look_again(ledger, earlier.spec.run_id, hashes=False)

        rows = pq.read_table(earlier.output / "data/plain.parquet")
        assert rows["score"].to_pylist() == scorer.score(rows["text"]).values[:, 0].tolist()
        assert rows["text"].equals(pq.read_table(tmp_path / "in/plain.parquet")["text"])


def test_a_manifest_with_a_flipped_bit_is_told_everywhere_and_written_again_by_the_same_command(
    earlier: Earlier,
) -> None:
    """A bit of the metadata changes what it says of the run: its labels, its filter, or which columns were scored."""
    manifest = earlier.output / "manifest.parquet"
    whole = manifest.read_bytes()
    manifest.write_bytes(next(flipped for flipped in flips(whole) if says_otherwise(flipped, whole)))

    with pytest.raises(UsageError, match=r"manifest\.parquet at .* is damaged"):
        earlier.plan(keep_all=True)
    assert [str(fault) for fault in verify(str(earlier.output)).faults] == ["manifest.parquet: cannot be read"]
    findings = inspect_published(earlier.ledger, earlier.spec.run_id, hashes=False)
    assert list(map(str, findings)) == ["manifest.parquet cannot be read"]

    look_again(earlier.ledger, earlier.spec.run_id, hashes=False)

    assert verify(str(earlier.output)).faults == ()


def flips(content: bytes) -> Iterator[bytes]:
    """The content with one bit flipped, in the metadata at its end."""
    for place in range(content.rindex(b'"run_id"'), len(content)):
        yield content[:place] + bytes([content[place] ^ 2]) + content[place + 1 :]


def says_otherwise(manifest: bytes, whole: bytes) -> bool:
    """Whether pyarrow reads another spec without a complaint."""
    try:
        return spec_in(manifest) != spec_in(whole)
    except Exception:
        return False


def spec_in(manifest: bytes) -> RunSpec:
    run = json.loads(pq.ParquetFile(pa.BufferReader(manifest)).read().schema.metadata[b"shardsift.run"])
    return RunSpec.from_json(json.dumps(run["spec"]))


class TestAShardWhoseScoresCannotBeRead:
    def test_of_a_damaged_file_fails_and_says_how_to_mend_it(self, earlier: Earlier) -> None:
        scores = earlier.output / "scores/000_00001.parquet"
        scores.write_bytes(scores.read_bytes()[:-1] + b"x")

        with pytest.raises(ShardError, match=r"000_00001\.parquet is not the file that its manifest lists\. Repair it"):
            earlier.refiltered(min_score=1.0)

    def test_of_a_file_that_came_wrong_once_is_read_again(
        self, earlier: Earlier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, opened = earlier.output / "scores/000_00001.parquet", LocalFileSystem.open
        wrong = [file.read_bytes()[:-1] + b"x"]

        def wrong_once(self: LocalFileSystem, path: str, *arguments: Any, **options: Any) -> Any:
            is_wrong = str(path).endswith(str(file)) and wrong
            return io.BytesIO(wrong.pop()) if is_wrong else opened(self, path, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(LocalFileSystem, "open", wrong_once)
            again = earlier.refiltered(min_score=0.0)

        assert wrong == []
        assert data_digests(again) == data_digests(earlier.output)

    def test_of_a_run_that_was_published_again_is_refused(self, earlier: Earlier) -> None:
        model = earlier.plan(min_score=1.0).spec.scorings[0].served_by
        options = replace(earlier.options, limit_rows=20, output_uri=str(earlier.folder / "other"))
        publish(earlier.ledger, earlier.scorer, options, scratch=earlier.folder)
        shutil.copy(earlier.folder / "other/manifest.parquet", earlier.output)

        with pytest.raises(UsageError, match="has changed since this run was enqueued: repeat the `producer refilter`"):
            load_stored_scores(model, None)

    def test_which_had_failed_fails_again_with_the_reason(
        self, ledger: Ledger, scorer: SequenceClassifier, options: RunOptions, tmp_path: Path
    ) -> None:
        plan = plan_run(options)
        publish_plan(ledger, scorer, plan, scratch=tmp_path / "scratch", failing=[plan.shards[0].name])
        earlier = Earlier(ledger=ledger, scorer=scorer, options=options, spec=plan.spec, folder=tmp_path)

        with pytest.raises(ShardError, match="was published without the shard 000_00000, so it has no scores of it"):
            earlier.refiltered(min_score=1.0)
