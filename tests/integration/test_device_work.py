"""A worker knows which share of its device's matmul peak its model reaches, and measuring it changes no score."""

import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shardsift.fleet.run.flops import Shape, shape_of
from shardsift.worker.scoring.device import device_use
from shardsift.worker.scoring.peak import matmul_peak
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.service.device_meter import DeviceMeter
from support.models import plain_scorer
from support.odd_texts import real_texts

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> SequenceClassifier:
    return plain_scorer(tiny_model)


def counting(scorer: SequenceClassifier) -> SequenceClassifier:
    """As a worker makes it when it loads a model."""
    return scorer.metered(shape_of(scorer.config))


def counted(scorer: SequenceClassifier, lengths: Any) -> float:
    """The operations of these texts, by the shape of the model."""
    shape = shape_of(scorer.config)
    assert shape
    return float(shape.flops(lengths).sum())


def operations(scorer: SequenceClassifier) -> float:
    """That it has counted."""
    assert scorer.work
    return scorer.work.seconds_at_peak * scorer.work.peak


def test_the_measurement_changes_no_score(tiny: SequenceClassifier) -> None:
    texts = real_texts(40)
    before = tiny.score(texts).values

    after = counting(tiny).score(texts).values

    assert after.tobytes() == before.tobytes()


def test_the_work_is_that_of_the_tokens_without_padding(tiny: SequenceClassifier) -> None:
    metered, texts = counting(tiny), [real_texts(1)[0], "short", "short too"]
    lengths = metered.encode(texts).sequences.batch_lengths

    metered.score(texts)

    assert max(lengths) > 10 * min(lengths)  # one padded batch
    assert operations(metered) == pytest.approx(counted(metered, lengths))


def test_rows_that_an_earlier_attempt_scored_are_not_counted_again(tiny: SequenceClassifier) -> None:
    first, again, texts = counting(tiny), counting(tiny), real_texts(40)
    encoded = tiny.encode(texts)
    begun = first.score_encoded(encoded, lambda rows: rows < 20)

    again.score_encoded(encoded, earlier=begun)

    assert len(begun.missing)
    assert operations(first) + operations(again) == pytest.approx(counted(tiny, encoded.sequences.batch_lengths))


def test_an_encoder_that_runs_once_for_two_models_is_counted_once(tiny_model: Path) -> None:
    one, other = counting(plain_scorer(tiny_model)), counting(plain_scorer(tiny_model))
    joint = one.joined_with([other])
    assert joint
    meter, before = DeviceMeter("cpu", [one, other]), operations(one) + operations(other)
    encoded = joint.encode(real_texts(10))

    joint.score_encoded(encoded)

    assert operations(one) + operations(other) - before == pytest.approx(counted(one, encoded.sequences.batch_lengths))
    assert meter.peak_share(10) is not None


def test_the_peak_of_a_gpu_is_what_it_keeps_up_and_its_clock_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shape = Shape(layers=1, hidden=64, attention=64, key_value=64, feed_forward=64, gated=False)
    now = 0.0

    def multiply(_: torch.nn.Linear, states: torch.Tensor) -> torch.Tensor:
        nonlocal now
        now += 1e-3 if now < 0.2 else 2e-3  # under load, the clock falls by half
        return states

    with monkeypatch.context() as patch, caplog.at_level(logging.INFO):
        patch.setattr(torch.nn.Linear, "forward", multiply)
        patch.setattr(time, "perf_counter", lambda: now)
        patch.setattr(torch.cuda, "clock_rate", lambda device: 1_410)
        peak = matmul_peak(shape, torch.bfloat16, torch.device("meta"))

    assert peak == pytest.approx(2 * 512 * 64 * 64 / 2e-3, rel=0.01)
    assert 2.0 < now < 8.0
    assert "The GPU's clock is 1410 MHz while it multiplies matrices." in caplog.messages


def test_a_model_whose_operations_cannot_be_counted_has_no_share(tiny: SequenceClassifier) -> None:
    own = SimpleNamespace()  # a user's scorer, which knows nothing of devices
    unknown = counting(replace(tiny, config=None))
    metered = counting(tiny)

    for scorers in ([unknown], [own], [metered, own], [unknown, metered]):
        meter = DeviceMeter("cpu", scorers)
        unknown.score(["a text"])
        metered.score(["a text"])
        assert meter.peak_share(1.0) is None

    assert unknown.info.matmul_peak is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_says_how_much_of_its_memory_is_taken_and_how_busy_it_is() -> None:
    held = torch.zeros(1 << 28, device="cuda")  # 1 GiB

    use = device_use(torch.device("cuda"))

    assert held.device.type == "cuda"
    assert use.memory_share * torch.cuda.mem_get_info()[1] > 1 << 30
    assert use.busy_share is None or 0 <= use.busy_share <= 1
