"""A real model gets the same scores in all batches, and rows and models that cannot be scored are told."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertForSequenceClassification

from shardsift.worker.scoring import ModelError
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.parity_trial import sample_texts
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.families import family_classifier
from support.models import configured, overflowing_classifier, with_another_head
from support.odd_texts import real_texts

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def bert_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return family_classifier("BERT", tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def scorer(bert_model: Path) -> SequenceClassifier:
    return load_classifier(str(bert_model), "float32")


# --- what a score depends on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_batch_tokens", [1, 600, 100_000])
def test_a_score_does_not_depend_on_the_size_of_the_batches(scorer: SequenceClassifier, max_batch_tokens: int) -> None:
    texts = real_texts(100)

    values = replace(scorer, max_batch_tokens=max_batch_tokens).score(texts).values

    assert np.abs(values - scorer.score(texts).values).max() < 1e-5


# --- rows that cannot be scored ---------------------------------------------------------------------------------------


def test_a_scorers_revision_is_the_one_that_was_asked_for(bert_model: Path, tmp_path: Path) -> None:
    """Old releases of transformers wrote into a config.json which commit of the Hub its model was made from."""
    model = configured(shutil.copytree(bert_model, tmp_path / "model"), _commit_hash="0123abc")

    for revision in (None, "4567def"):
        assert load_classifier(str(model), "float32", revision=revision, parity_rows=0).revision == revision


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_score_that_is_not_finite_is_an_errored_row_and_the_others_keep_their_scores(
    dtype: str, tmp_path: Path, bert_model: Path, scorer: SequenceClassifier
) -> None:
    model = BertForSequenceClassification.from_pretrained(bert_model)
    tokenizer = AutoTokenizer.from_pretrained(bert_model)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[tokenizer.convert_tokens_to_ids("zebra")] = torch.nan
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = ["A horse runs.", "A zebra runs.", "A donkey runs, and it does so for a long time."]

    scores = load_classifier(str(tmp_path), dtype).score(texts)

    assert scores.errors == {1: "score is not finite"}
    assert scores.in_float32 == 0
    assert np.isnan(scores.values[1])
    limit = 1e-5 if dtype == "float32" else 0.05
    assert np.abs(scores.values[[0, 2]] - scorer.score(texts).values[[0, 2]]).max() < limit


def test_a_row_that_overflows_in_float16_has_one_score_whatever_is_beside_it(tmp_path: Path, tiny_model: Path) -> None:
    model, texts = str(overflowing_classifier(tmp_path / "model", tiny_model, factor=1e4)), real_texts(20)
    exact, scorer = (load_classifier(model, dtype, parity_rows=0) for dtype in ("float32", "float16"))
    without = replace(scorer, in_float32=None).score(texts)
    odd, others = list(without.errors), np.delete(np.arange(20), list(without.errors))

    scores = scorer.score(texts)

    assert 0 < len(odd) == scores.in_float32 < 20
    assert scores.errors == {}
    assert scores.values[others].tobytes() == without.values[others].tobytes()
    assert np.abs(scores.values - exact.score(texts).values).max() < 0.05
    assert scorer.score([texts[row] for row in odd[::-1]]).values[::-1].tobytes() == scores.values[odd].tobytes()


def test_rows_that_overflow_in_a_joint_encoder_have_the_scores_of_each_model(tmp_path: Path, tiny_model: Path) -> None:
    first = overflowing_classifier(tmp_path / "first", tiny_model, factor=1e4)
    second = with_another_head(first, tmp_path / "second", labels=3)
    one, other = (load_classifier(str(model), "float16", parity_rows=0) for model in (first, second))
    texts = real_texts(20)
    alone = np.hstack([one.score(texts).values, other.score(texts).values])

    joint = one.joined_with([other])

    assert joint
    scores = joint.score(texts)
    assert 0 < scores.in_float32 < 20
    assert scores.values.tobytes() == alone.tobytes()


# --- memory that does not do --------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_with_too_little_memory_for_a_batch_all_rows_are_scored(minilm_model: Path) -> None:
    texts = sample_texts(4000)
    scorer = load_classifier(str(minilm_model))
    expected = scorer.score(texts).values
    total = torch.cuda.mem_get_info()[1]

    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(((2 << 30) + torch.cuda.memory_allocated()) / total)
    try:
        scores = replace(scorer, max_batch_tokens=1 << 22).score(texts)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)

    assert scores.errors == {}
    assert np.abs(scores.values - expected).max() < 5e-2


# --- models that are refused ------------------------------------------------------------------------------------------


def test_an_encoder_without_a_head_is_refused(tmp_path: Path, bert_model: Path) -> None:
    model = AutoModel.from_pretrained(bert_model)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(bert_model).save_pretrained(tmp_path)

    with pytest.raises(ModelError, match="no trained classification head"):
        load_classifier(str(tmp_path), "float32")
