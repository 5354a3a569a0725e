"""Several models in one pass: the columns of each are those of a run of its own, and shared work is done once."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import shardsift
from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.spec import disclosed_spec
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.producer.planning.plan import plan_run
from shardsift.worker.scoring import Scorer, Scores
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.parity_trial import sample_texts
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.shared_encoder import JointBackend
from shardsift.worker.service.child import load_handed_down
from shardsift.worker.service.ipc import hand_down
from shardsift.worker.shard.scoring_groups import scoring_groups
from support.families import family_classifier
from support.models import three_models, with_another_head
from support.outputs import data_digests, published_rows
from support.small_run import Runs

pytestmark = pytest.mark.usefixtures("one_thread")
WHERE = "edu_score >= 3 and tox_label <> 'LABEL_2'"
EVERY_DAY, OTHERS = ("BERT", "ModernBERT"), ("DistilBERT", "RoBERTa", "XLM-R", "DeBERTa-v3", "GPT-2")


def loaded(model: Path, **options: Any) -> SequenceClassifier:
    return load_classifier(str(model), "float32", **{"device": "cpu", "parity_rows": 0, **options})


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return three_models(tiny_model, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def scorers(models: dict[str, Path]) -> dict[str, SequenceClassifier]:
    return {name: loaded(model) for name, model in models.items()}


@pytest.fixture
def several_runs(runs: Runs, models: dict[str, Path], scorers: dict[str, SequenceClassifier]) -> Runs:
    """Runs by three models."""
    named = tuple(f"{name}={model}" for name, model in models.items())
    return replace(runs, scorer=list(scorers.values()), models=named)


class TestARun:
    def test_a_run_of_several_models_has_the_columns_and_the_scores_of_a_run_of_each(
        self, several_runs: Runs, scorers: dict[str, SequenceClassifier], shards: Path
    ) -> None:
        out = several_runs.publish(shards, where=WHERE, limit_rows=24)
        alone = [
            replace(several_runs, scorer=scorer, models=(model,)).publish(shards, name, limit_rows=24)
            for (name, scorer), model in zip(scorers.items(), several_runs.models, strict=True)
        ]

        spec, together = several_runs.specs[out], published_rows(out, "scores")
        logits = ["tox_score_logits", "far_score_logits"]
        assert together.column_names == ["shard", "row", *spec.output_columns, *logits, "error"]
        for one in alone:
            rows = published_rows(one, "scores")
            for column in [column for column in rows.column_names if column.startswith(one.name)]:
                assert together[column].equals(rows[column]), column
        kept = together.to_pandas().query("edu_score >= 3 and tox_label != 'LABEL_2'")
        assert 0 < len(kept) < len(together)
        assert published_rows(out)["row"].to_pylist() == kept["row"].tolist()
        assert shardsift.verify(out).faults == ()
        card = (out / "README.md").read_text()
        assert all(f"- `{column}`: " in card for column in spec.output_columns)
        assert published_run(str(out)).spec == disclosed_spec(spec)

    def test_several_models_refilter_to_the_bytes_of_a_fresh_run(self, several_runs: Runs, shards: Path) -> None:
        earlier = several_runs.publish(shards, "earlier", where=WHERE, limit_rows=24)
        where = "far_label = 'LABEL_1' or edu_score > 4"
        fresh = several_runs.publish(shards, "fresh", where=where, limit_rows=24)

        again = several_runs.refilter(earlier, where=where)

        assert len(several_runs.specs[again].served_by) == 1
        assert data_digests(again) == data_digests(fresh)

    @pytest.mark.parametrize("min_score", [3.0, None])
    def test_a_min_score_is_for_a_single_model(self, several_runs: Runs, shards: Path, min_score: float | None) -> None:
        with pytest.raises(UsageError, match="--where or --keep-all: a --min-score is for a single model"):
            plan_run(several_runs.options(shards, min_score=min_score))


class TestOneEncoder:
    @pytest.mark.parametrize(
        ("family", "pooler"),
        [
            *((name, False) for name in EVERY_DAY),
            ("BERT", True),  # NeMo Curator's classifiers share FineWeb-Edu's encoder, but perhaps not its pooler
            *(pytest.param(name, False, marks=pytest.mark.slow) for name in OTHERS),
        ],
    )
    def test_an_encoder_runs_once_and_its_heads_score_as_alone(self, family: str, pooler: bool, tmp_path: Path) -> None:
        model = family_classifier(family, tmp_path / "one", labels=2)
        one, other = loaded(model), loaded(with_another_head(model, tmp_path / "other", labels=3, pooler=pooler))
        texts = sample_texts(24, seed=3)
        alone = np.hstack([one.score(texts).values, other.score(texts).values])

        joint = one.joined_with([other])

        assert joint is not None
        assert joint.outputs == 5
        assert np.array_equal(joint.score(texts).values, alone)
        assert np.array_equal(np.hstack([one.score(texts).values, other.score(texts).values]), alone)
        assert passes_of(joint, texts) == passes_of(one, texts) > 0

    def test_an_encoder_that_differs_in_a_weight_or_a_rule_or_a_tokenizer_is_not_shared(
        self, tiny_model: Path, tmp_path: Path
    ) -> None:
        """No weight tells that the activation is another one. The sample texts do."""
        weight, rule = (
            AutoModelForSequenceClassification.from_pretrained(tiny_model, hidden_act=act) for act in ("gelu", "relu")
        )
        with torch.no_grad():
            weight.bert.encoder.layer[1].output.dense.weight[0, 0] += 1e-3
        same = AutoModelForSequenceClassification.from_pretrained(tiny_model)
        one = loaded(tiny_model)

        for name, changed, tokens in (("weight", weight, 512), ("rule", rule, 512), ("tokenizer", same, 64)):
            changed.save_pretrained(tmp_path / name)
            AutoTokenizer.from_pretrained(tiny_model, model_max_length=tokens).save_pretrained(tmp_path / name)
            assert one.joined_with([loaded(tmp_path / name)]) is None, name
        assert one.joined_with([load_classifier(str(tiny_model), "bfloat16", device="cpu", parity_rows=0)]) is None


def passes_of(scorer: SequenceClassifier, texts: Sequence[str]) -> int:
    """How often the last layer of the encoder ran."""
    backend = scorer.backend.backends[0] if isinstance(scorer.backend, JointBackend) else scorer.backend
    norms = [module for module in backend.model.modules() if isinstance(module, torch.nn.LayerNorm)]
    calls = Counter[str]()
    hooks = [norm.register_forward_hook(lambda *_: calls.update(["norm"])) for norm in norms]
    scorer.score(texts)
    for hook in hooks:
        hook.remove()
    return calls["norm"]


class Counting:
    """A scorer that counts the rows it encodes and scores, and shares no encoder."""

    def __init__(self, scorer: SequenceClassifier) -> None:
        self._scorer, self.calls = scorer, Counter[str]()

    def joined_with(self, others: Sequence[Scorer[Any]]) -> None:
        return None

    def encode(self, texts: pa.LargeStringArray) -> Any:
        self.calls["encoded"] += len(texts)
        return self._scorer.encode(texts)

    def launch(self, encoded: Any, *arguments: Any) -> Callable[[], Scores]:
        self.calls["scored"] += encoded.rows
        return self._scorer.launch(encoded, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)


def test_texts_are_tokenized_once_for_models_with_one_tokenizer(
    several_runs: Runs, scorers: dict[str, SequenceClassifier], shards: Path
) -> None:
    counting = [Counting(scorer) for scorer in scorers.values()]

    out = replace(several_runs, scorer=counting).publish(shards, limit_rows=24)

    rows = published_rows(out, "scores").num_rows
    assert sum(one.calls["encoded"] for one in counting) == rows
    assert sum(one.calls["scored"] for one in counting) == 3 * rows


def test_a_worker_finds_out_at_its_start_which_of_its_models_share_an_encoder(
    models: dict[str, Path],
    several_runs: Runs,
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Here the first and the fourth do, and the second and the third."""
    near = with_another_head(models["far"], tmp_path / "near", labels=3)
    order = {"far": models["far"], "edu": models["edu"], "tox": models["tox"], "near": near}
    spec = plan_run(several_runs.options(shards, models=tuple(f"{name}={model}" for name, model in order.items()))).spec
    monkeypatch.setattr(os, "environ", dict(os.environ))
    hand_down(spec.served_by)

    with caplog.at_level(logging.INFO, logger="shardsift.worker.service.child"):
        scorers = load_handed_down(Settings(dtype="float32", device="cpu", parity_rows=0))
    compared = []
    for scorer in scorers.values():
        scorer.backend.model.register_forward_hook(lambda *_: compared.append(1))
    groups = scoring_groups(spec.scorings, [scorers[scoring.queue] for scoring in spec.scorings])

    assert [line for line in caplog.messages if "encoder" in line] == [
        f"The models {order[one]} and {order[other]} have the same encoder, which runs once."
        for one, other in (("far", "near"), ("edu", "tox"))
    ]
    assert [group.numbers for group in groups] == [(0, 3), (1, 2)]
    assert not compared
