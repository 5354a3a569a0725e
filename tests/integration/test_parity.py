"""The gate: a worker serves only a scorer that reproduces the model's own scores, and the receipt says how closely."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fleet.histogram import empty_histogram
from fleet.ledger import Claim
from support.models import overflowing_classifier
from support.records import a_shard, a_spec
from worker.scoring import ModelError, ParityError, SequenceClassifier, load_scorer
from worker.scoring.parity import ParityTrial, check_parity
from worker.scoring.precision import TOLERANCES
from worker.shard.provenance import scoring_receipts
from worker.shard.writer import RowCounts


def column(*logits: float) -> np.ndarray:
    return np.array([logits], dtype=np.float32).T


def parity(reference: np.ndarray, error: float | np.ndarray = 0.0) -> ParityTrial:
    return ParityTrial(reference=reference, fast=(reference + error).astype(np.float32))


SPREAD = np.linspace(-2, 5, 100, dtype=np.float32)[:, None]


# --- the figures --------------------------------------------------------------------------------------------------------


def test_the_figures_describe_the_errors() -> None:
    errors = np.zeros((2000, 1), dtype=np.float32)
    errors[7], errors[8] = 0.5, -0.25

    found = parity(np.linspace(-3, 3, 2000, dtype=np.float32)[:, None], errors)

    assert found.rows == 2000
    assert found.max_error == pytest.approx(0.5)
    assert found.p999_error < 0.25
    assert 0.99 < found.rank_correlation < 1


def test_ranks_are_spearmans_with_ties_shared() -> None:
    assert ParityTrial(reference=column(1, 2, 3, 4), fast=column(4, 3, 2, 1)).rank_correlation == pytest.approx(-1)
    assert ParityTrial(reference=column(1, 2, 3, 4), fast=column(10, 20, 30, 99)).rank_correlation == pytest.approx(1)
    assert ParityTrial(reference=column(1, 2, 2, 3), fast=column(1, 2, 2, 3)).rank_correlation == pytest.approx(1)
    assert ParityTrial(reference=column(1, 2, 3), fast=column(5, 5, 5)).rank_correlation == 0


# --- what passes and what does not --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "error", "passes"),
    [
        ("float32", 4e-4, True),  # 1e-4 of the largest logit, 5
        ("float32", 6e-4, False),
        ("float16", 0.02, True),
        ("float16", 0.03, False),
        ("bfloat16", 0.2, True),
        ("bfloat16", 0.3, False),
        ("bfloat16", float("nan"), False),
        ("bfloat16", float("inf"), False),
    ],
)
def test_a_constant_error_passes_up_to_the_tolerance_of_the_format(dtype: str, error: float, passes: bool) -> None:
    found = parity(SPREAD, error)

    if passes:
        check_parity(found, model="m", way="padded", dtype=dtype)
    else:
        with pytest.raises(ParityError, match=f"The model m scores differently in {dtype} .*of 100 sample texts"):
            check_parity(found, model="m", way="padded", dtype=dtype)


def test_small_errors_that_shuffle_the_rows_do_not_pass() -> None:
    near = np.random.default_rng(0).normal(0.3, 0.01, (100, 1)).astype(np.float32)
    shuffled = ParityTrial(reference=near, fast=np.random.default_rng(1).permutation(near))

    with pytest.raises(ParityError, match="the rank correlation is .*, and at least 0.97 is needed"):
        check_parity(shuffled, model="m", way="padded", dtype="bfloat16")


def test_the_tolerances_are_those_that_the_docs_state() -> None:
    text = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()

    for dtype, tolerance in TOLERANCES.items():
        assert f"| {dtype} | {tolerance.error:g} | {tolerance.rank_correlation:g} |" in text


# --- at a worker's start ------------------------------------------------------------------------------------------------


def test_a_scorer_knows_how_close_it_is_to_the_model_itself(tiny_model: Path) -> None:
    exact, rounded = (load_scorer(str(tiny_model), dtype).parity for dtype in ("float32", "bfloat16"))

    assert exact is not None
    assert rounded is not None
    assert exact.rows == rounded.rows >= 16
    assert exact.max_error < 1e-4 < rounded.max_error < 0.2
    assert exact.reference.tobytes() == rounded.reference.tobytes()


def test_the_trial_can_be_left_out(tiny_model: Path) -> None:
    assert load_scorer(str(tiny_model), "bfloat16", parity_rows=0).parity is None


def test_a_model_that_overflows_in_float16_is_refused_in_it(tmp_path: Path, tiny_model: Path) -> None:
    model = str(overflowing_classifier(tmp_path / "model", tiny_model))

    with pytest.raises(
        ParityError, match="in float16 .* some logits are not finite.*more precise --dtype, such as float32"
    ):
        load_scorer(model, "float16")
    assert load_scorer(model, "bfloat16").parity is not None


# --- in the receipt -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scorer(tiny_model: Path) -> SequenceClassifier:
    return load_scorer(str(tiny_model), "float32")


@pytest.mark.parametrize(
    ("where", "flipped"),
    [
        ('"score" >= 3.0', 0.25),
        ("int_score >= 3", 0.0),
        (None, 0.0),
        ("score >= 3 and text is not null", None),  # the sample has no other columns
    ],
)
def test_the_receipt_says_for_how_many_samples_the_filter_decides_differently(
    scorer: SequenceClassifier, where: str | None, flipped: float | None
) -> None:
    tried = ParityTrial(reference=column(1, 2.99, 3.2, 4), fast=column(1, 3.01, 3.19, 4))
    spec = a_spec(where=where)
    claim = Claim(run_id=spec.run_id, shard=a_shard(), spec=spec, token=1, attempt=1)

    counts = RowCounts(histograms={"score": empty_histogram("none")})
    (made,) = scoring_receipts(claim.spec, [scorer.with_parity(tried)], counts)

    assert made.parity is not None
    assert made.parity.flipped_share == flipped
    assert (made.parity.rows, made.parity.max_error) == (4, pytest.approx(0.02, abs=1e-6))
    assert (made.dtype, made.backend, made.max_batch_tokens) == ("float32", "padded", 2048)


# --- eight bits ---------------------------------------------------------------------------------------------------------


def test_an_int8_model_is_served_within_its_wider_tolerance(tiny_model: Path) -> None:
    coarse, fine = (load_scorer(str(tiny_model), dtype).parity for dtype in ("int8", "bfloat16"))

    assert coarse is not None
    assert fine is not None
    assert fine.max_error < coarse.max_error < 0.2 * np.abs(coarse.reference).max()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU may have it")
def test_fp8_on_a_device_without_it_is_refused(tiny_model: Path) -> None:
    with pytest.raises(ModelError, match="This device does not support --dtype fp8: .*Use bfloat16 or float16"):
        load_scorer(str(tiny_model), "fp8")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_an_fp8_model_is_served_within_its_tolerance(minilm_model: Path) -> None:
    assert load_scorer(str(minilm_model), "fp8").parity is not None


def test_eight_bits_without_torchao_say_how_to_get_it(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)

    with pytest.raises(ModelError, match=r"--dtype int8 needs torchao.*pip install 'shardsift\[quantize\]'"):
        load_scorer(str(tiny_model), "int8")
