"""`shardsift.score` of pairs, and of several models in one pass, whose columns and scores are those of a run, to the last bit."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardsift
from support.families import family_classifier
from support.input_shards import write_odd_shards
from support.models import three_models
from support.outputs import published_rows
from support.small_run import Runs

pytestmark = pytest.mark.usefixtures("one_thread")
LOAD: dict[str, Any] = {"dtype": "float32", "device": "cpu", "parity_rows": 0}
EDU = "HuggingFaceFW/fineweb-edu-classifier"
QUERIES = ["what is a list?", None, "q three", " ", "long " * 900, "x"]
PASSAGES = ["A list is a sequence.", "another", None, "a third", "longer " * 1200, "y"]


@pytest.fixture(scope="module")
def ranker(tiny_model: Path) -> shardsift.LoadedScorer:
    return shardsift.load_scorer(tiny_model, **LOAD)


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return three_models(tiny_model, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def several(models: dict[str, Path]) -> shardsift.LoadedScorers:
    return shardsift.load_scorer(models, **LOAD)


class TestSeveralModels:
    def test_several_models_have_the_columns_and_scores_of_a_run_to_the_last_bit(
        self, models: dict[str, Path], several: shardsift.LoadedScorers, runs: Runs, shards: Path, tmp_path: Path
    ) -> None:
        scorers = [one.scorer for one in several.by_name.values()]
        named = tuple(f"{name}={model}" for name, model in models.items())
        out = replace(runs, scorer=scorers, models=named).publish(write_odd_shards(shards, tmp_path / "in", ["", None]))
        spec, published = runs.specs[out], published_rows(out, "scores")

        files = sorted((tmp_path / "in").glob("*.parquet"))
        found = pa.concat_tables(several.table(pq.read_table(file)["text"]) for file in files)

        assert found.column_names == [*spec.output_columns, "error"]
        assert {"edu_score", "tox_label", "tox_score_LABEL_2", "far_score"} < set(found.column_names)
        for name in found.column_names:
            assert found[name].equals(published[name]), name
        assert found["error"].drop_null().to_pylist() == [
            "; ".join(f"{name}_score: {why}" for name in several.by_name) for why in ("blank text", "null text")
        ]

    def test_several_models_are_loaded_and_scored_by_one_call(
        self, models: dict[str, Path], several: shardsift.LoadedScorers
    ) -> None:
        by_name = shardsift.score(QUERIES, models, **LOAD)
        loaded = shardsift.score(pd.Series(QUERIES), several)

        assert by_name.equals(loaded)
        assert by_name.equals(several.score(QUERIES))
        assert by_name.to_pandas()["tox_label"].isna().tolist() == [False, True, False, True, False, False]
        assert shardsift.score([], several).column_names == by_name.column_names

    def test_a_single_named_model_names_the_columns(self, tiny_model: Path, ranker: shardsift.LoadedScorer) -> None:
        table = shardsift.score(QUERIES, {"edu": tiny_model}, **LOAD)

        assert table.column_names == ["edu_score", "error"]
        assert table["edu_score"].equals(ranker.table(QUERIES)["score"])

    def test_models_that_share_an_encoder_hold_it_once(self, several: shardsift.LoadedScorers) -> None:
        edu, tox = (several.by_name[name].scorer.backend.model.base_model.encoder for name in ("edu", "tox"))

        assert all(ours is theirs for ours, theirs in zip(edu.parameters(), tox.parameters(), strict=True))

    def test_several_models_without_names_are_refused(self) -> None:
        with pytest.raises(shardsift.UsageError, match="^model is a name or a folder, or a dict that names several"):
            shardsift.load_scorer(["one", "other"])  # type: ignore[call-overload]
        with pytest.raises(shardsift.UsageError, match="'1' cannot name columns"):
            shardsift.load_scorer({1: "one"})  # type: ignore[call-overload]

    def test_models_whose_columns_would_have_one_name_are_refused(self, tiny_model: Path) -> None:
        loaded = shardsift.load_scorer({"edu": tiny_model, "int_edu": tiny_model}, **LOAD)
        model = replace(loaded.by_name["edu"].model, name=EDU, revision="abc1234")  # its recipe rounds the score
        clashing = replace(loaded, by_name={name: replace(one, model=model) for name, one in loaded.by_name.items()})

        with pytest.raises(shardsift.UsageError, match='Two models would add a column "int_edu_score"'):
            clashing.score(QUERIES)

    def test_models_free_their_memory_when_they_are_let_go(self, models: dict[str, Path]) -> None:
        loaded = shardsift.load_scorer(models, **LOAD)
        loaded.score(QUERIES, max_tokens=64)
        networks = [weakref.ref(one.scorer.backend.model) for one in loaded.by_name.values()]

        del loaded
        gc.collect()

        assert [network() for network in networks] == [None, None, None]


def test_a_recipe_rounds_a_score_and_leaves_pairs_whole(tmp_path: Path) -> None:
    """A scorer is called by its name on the Hub, of which the recipe is."""
    loaded = shardsift.load_scorer(family_classifier("BERT", tmp_path / "model"), **LOAD)
    edu, pdfs = EDU, "HuggingFaceFW/finepdfs_edu_classifier_eng_Latn"
    named = {
        name: replace(loaded, model=replace(loaded.model, name=name, revision="abc1234"), scorer=loaded.scorer)
        for name in (edu, pdfs)
    }

    assert named[edu].table(QUERIES).column_names == ["score", "int_score", "error"]
    rounded = named[edu].table(QUERIES).drop_null()
    assert rounded["int_score"].to_pylist() == np.round(np.clip(rounded["score"].to_numpy(), 0, 5)).astype(int).tolist()
    options: dict[str, Any] = {"text_pairs": PASSAGES, "max_tokens": 64}  # not its 2,048: the model takes 512
    alone = loaded.score(QUERIES, **options)
    assert np.array_equal(named[pdfs].score(QUERIES, **options), alone, equal_nan=True)
