"""The gate: a worker serves only a scorer that reproduces the model's own scores, and the receipt says how closely."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification

from shardsift.fleet.ledger import Claim
from shardsift.fleet.run.receipt import empty_histogram, refusal_reason
from shardsift.worker.scoring import DeviceFault, DeviceLost, ModelError, NoRoom, ParityError
from shardsift.worker.scoring.device import TOLERANCES, Candidate, Way, best_device, candidates, multiplies_bfloat16
from shardsift.worker.scoring.gpu_notes import GpuNotes
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.parity import ParityTrial, check_parity, first_faithful
from shardsift.worker.scoring.saved_model import SavedModel, saved_model
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.shard.receipts import scoring_receipts
from shardsift.worker.shard.writer import RowCounts
from support.everyday import everyday
from support.models import EVEN_HEADS, chaotic_classifier, even_classifier, overflowing_classifier, plain_scorer
from support.records import a_shard, a_spec


def column(*logits: float) -> np.ndarray:
    return np.array([logits], dtype=np.float32).T


def parity(reference: np.ndarray, error: float | np.ndarray = 0.0) -> ParityTrial:
    return ParityTrial(reference=reference, fast=(reference + error).astype(np.float32))


SPREAD = np.linspace(-2, 5, 100, dtype=np.float32)[:, None]
NEAR, SATURATED = (
    np.random.default_rng(0).normal(mean, width, (100, 1)).astype(np.float32)
    for mean, width in ((0.3, 0.01), (10, 1e-3))
)
ROUNDING = np.random.default_rng(0).uniform(-0.03, 0.03, (100, 1))  # bfloat16 rounds 10 to multiples of 0.0625


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
    ],
)
def test_a_constant_error_passes_up_to_the_tolerance_of_the_format(dtype: str, error: float, passes: bool) -> None:
    found = parity(SPREAD, error)

    differs = pytest.raises(ParityError, match=f"The model m scores differently in {dtype} .*of 100 sample texts")

    with nullcontext() if passes else differs:
        check_parity(found, model="m", backend="padded", candidate=Candidate(dtype=dtype))


@pytest.mark.parametrize(
    ("reference", "fast", "dtype", "passes"),
    [
        (NEAR, np.random.default_rng(1).permutation(NEAR), "bfloat16", False),
        (SATURATED, SATURATED + ROUNDING, "bfloat16", True),
        (SATURATED, SATURATED + ROUNDING, "float16", False),
    ],
    ids=["small errors that shuffle the rows", "as large as the rounding of the format", "larger than the rounding"],
)
def test_ranks_are_judged_for_logits_that_differ_by_more_than_the_formats_rounding(
    reference: np.ndarray, fast: np.ndarray, dtype: str, passes: bool
) -> None:
    found = ParityTrial(reference=reference, fast=fast.astype(np.float32))
    differs = pytest.raises(ParityError, match="rank correlation is .*, and at least 0.9")

    with nullcontext() if passes else differs:
        check_parity(found, model="m", backend="padded", candidate=Candidate(dtype=dtype))


def test_the_tolerances_are_those_that_the_docs_state() -> None:
    text = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()

    for dtype, tolerance in TOLERANCES.items():
        assert f"| {dtype} | {tolerance.error:g} | {tolerance.rank_correlation:g} |" in text


# --- at a worker's start ------------------------------------------------------------------------------------------------


def test_a_scorer_knows_how_close_it_is_to_the_model_itself(tiny_model: Path) -> None:
    exact, rounded = (load_classifier(str(tiny_model), dtype).parity for dtype in ("float32", "bfloat16"))

    assert exact.rows == rounded.rows >= 16
    assert exact.max_error < 1e-4 < rounded.max_error < 0.2
    assert exact.reference.tobytes() == rounded.reference.tobytes()


def test_a_model_that_overflows_in_float16_is_refused_in_it(tmp_path: Path, tiny_model: Path) -> None:
    model = str(overflowing_classifier(tmp_path / "model", tiny_model))

    with pytest.raises(
        ParityError, match="in float16 .* some logits are not finite.*Enqueue the run with --dtype auto"
    ):
        load_classifier(model, "float16")
    assert load_classifier(model, "bfloat16").parity is not None


# --- every model is served ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", everyday(EVEN_HEADS, only=("skewed",)))
def test_a_model_of_nearly_equal_logits_is_served_in_every_format(head: str, tmp_path: Path, tiny_model: Path) -> None:
    model = str(even_classifier(tmp_path / "model", tiny_model, head))

    for dtype in ("auto", "float32", "bfloat16", "float16"):
        info = load_classifier(model, dtype).info

        assert dtype in ("auto", info.dtype)
        assert np.isfinite(info.parity.max_error)


def test_auto_ends_with_float32_as_the_refusal_of_16_bits_the_log_and_the_scorer_say(
    tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = str(chaotic_classifier(tmp_path / "model", tiny_model))

    with pytest.raises(ParityError, match=r"Enqueue the run with --dtype auto, which ends with float32\."):
        load_classifier(model, "bfloat16")
    info = load_classifier(model, "auto").info

    assert info.dtype == "float32"
    if multiplies_bfloat16(best_device()):  # otherwise auto tries no 16 bits here
        assert info.refused_dtypes[-1:] == ("bfloat16",)
        assert "scores differently in bfloat16" in caplog.text


@pytest.mark.parametrize(
    ("first", "device", "formats"),
    [
        ("float32", "cuda", ["float32"]),
        ("float16", "cuda", ["float16", "float32"]),
        ("float16", "cpu", None),
        ("whatever", "cuda", None),
    ],
)
def test_auto_begins_with_a_runs_format_if_the_device_can(first: str, device: str, formats: list[str] | None) -> None:
    def tried(first: str | None) -> list[str]:
        found = candidates("auto", torch.device(device), "deberta-v2", first=first, may_be_plain=True)
        return list(dict.fromkeys(one.dtype for one in found))

    assert tried(first) == (formats or tried(None))
    assert candidates("auto", torch.device(device), "deberta-v2", first=first, may_be_plain=True)[-1].is_plain


def test_a_way_that_does_not_compile_run_or_agree_is_left_for_the_next_with_a_line_in_the_log(
    tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ways: tuple[Way, ...] = ("graphed", "packed", "padded")
    tried = candidates("bfloat16", best_device(), "bert", ways=ways, may_be_plain=False)
    failures = [DeviceFault("backend='inductor' raised: no compiler"), ParityError("It scores differently.")]
    served = plain_scorer(tiny_model)

    def load(candidate: Candidate) -> SequenceClassifier:
        if failures:
            raise failures.pop(0)
        return replace(served, dtype=candidate.dtype)

    assert [one.way for one in tried] == [*ways]
    assert first_faithful(tried, load).dtype == "bfloat16"
    assert caplog.messages == [
        "In bfloat16, graphed batches are not used: backend='inductor' raised: no compiler",
        "It scores differently. The next best is tried.",
    ]


def test_a_way_that_makes_the_gpu_fail_ends_the_process_and_the_next_one_leaves_it_out_and_says_so(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = candidates("float16", torch.device("cuda"), "bert", ways=("graphed", "packed"), may_be_plain=False)
    served = plain_scorer(tiny_model)
    fault = torch.AcceleratorError(
        "CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA."
    )
    notes = GpuNotes(folder=tmp_path / "gpu", worker_folder=tmp_path, about=("a model", "a GPU"))

    def fail() -> None:
        assert list(tmp_path.glob("trial-*")), "the process may also die now, in a destructor of torch"
        raise fault

    def load(candidate: Candidate) -> SequenceClassifier:
        return fail() if candidate.way == "graphed" else served

    def fails(notes: GpuNotes) -> None:
        with monkeypatch.context() as process:
            process.setattr(torch.cuda, "is_initialized", lambda: True)
            process.setattr(torch.cuda, "synchronize", fail)  # each call fails from then on
            with pytest.raises(DeviceLost, match="GPU failed when graphed batches were tried"):
                first_faithful(tried, load, notes)

    fails(notes)
    caplog.clear()
    info = first_faithful(tried, load, notes).info

    assert info.faulty_ways == ("graphed",)
    assert refusal_reason(info.refused_dtypes, info.faulty_ways) == " (graphed batches ended a process)"
    assert [message.partition(". To try again, delete ")[0] for message in caplog.messages] == [
        "Graphed batches are left out here: CUDA error: an illegal memory access was encountered"
    ]
    fails(replace(notes, about=("a model", "another GPU")))


def test_a_model_that_fits_on_its_device_in_16_bits_only_is_compared_on_the_cpu(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original, asked = BertForSequenceClassification.to, []

    def to(model: Any, target: Any) -> Any:
        """A device called meta, which has no room in float32. It cannot score, so in 16 bits it says where it was asked."""
        if target == torch.device("meta"):
            asked.append(model.dtype)
            raise torch.OutOfMemoryError("out of memory")
        return original(model, target)

    monkeypatch.setattr(BertForSequenceClassification, "to", to)

    with pytest.raises(NoRoom, match="does not fit in the memory of meta"):
        load_classifier(str(tiny_model), "bfloat16", device="meta")

    assert asked == [torch.float32, torch.bfloat16]
    assert caplog.messages == ["The model does not fit on meta in float32, so it is compared on the CPU."]


class Wrong(BertForSequenceClassification):
    """Gives each text of a batch the logits of another, if its weights or layers are not those that were saved."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = super().forward(*args, **kwargs)
        dense = self.bert.encoder.layer[0].intermediate.dense
        if type(dense) is not torch.nn.Linear or dense.weight.dtype != torch.float32:
            found.logits = found.logits.flip(0) + 1
        return found


def wrong(model: Path) -> SavedModel:
    return replace(saved_model(str(model), None), model=Wrong.from_pretrained(model).eval())


def test_a_wrong_backend_is_refused_and_the_plain_one_serves_the_models_own_scores(tiny_model: Path) -> None:
    with pytest.raises(ParityError, match="scores differently in bfloat16"):
        load_classifier("wrong", "bfloat16", load=lambda: wrong(tiny_model))

    served = load_classifier("wrong", "float32", load=lambda: wrong(tiny_model))

    assert served.info.parity.max_error < 1e-4


def test_damaged_weights_are_called_damaged_and_not_imprecise(tmp_path: Path, tiny_model: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(tiny_model)
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    model.save_pretrained(tmp_path)
    for file in tiny_model.glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())

    with pytest.raises(ModelError, match="not finite, also in float32 .* its weights are damaged"):
        load_classifier(str(tmp_path), "auto")


# --- in the receipt -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scorer(tiny_model: Path) -> SequenceClassifier:
    return load_classifier(str(tiny_model), "float32")


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
    (made,) = scoring_receipts(claim.spec, [replace(scorer, parity=tried, refused_dtypes=("bfloat16",))], counts)

    assert made.refused_dtypes == ("bfloat16",)
    assert made.parity.flipped_share == flipped
    assert (made.parity.rows, made.parity.max_error) == (4, pytest.approx(0.02, abs=1e-6))
    assert (made.dtype, made.backend, made.max_batch_tokens) == ("float32", "padded", 2048)
