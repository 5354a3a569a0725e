"""The arithmetic of an estimate: rows by the size of files, hours by speeds, costs by prices."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fleet.errors import ShardsiftError
from fleet.process.tuned import Figures, Key, Tuned, store_tuned
from fleet.run.flops import Shape
from fleet.run.model import Model
from fleet.run.scoring import ZeroShot
from fleet.run.spec import Shard
from producer.planning.estimate.estimate import DeviceEstimate, Estimate, priced
from producer.planning.estimate.model_files import read_model_files
from producer.planning.estimate.report import estimate_lines
from producer.planning.estimate.speed import DeviceTime, Range, device_times
from producer.planning.estimate.work import (
    CharacterCounter,
    Quantity,
    SampledShard,
    ScoringWork,
    lengths_of,
    sampled_rows,
    scored_texts,
)
from producer.status.cost import GPUS, PRICED_ON, gpu_called
from support.records import a_shard, a_spec

BERT_BASE = Shape(layers=12, hidden=768, attention=768, key_value=768, feed_forward=3072, gated=False)


class Words:
    """A tokenizer whose tokens are words."""

    special, special_of_pair = 2, 3

    def counts(self, texts: Any) -> list[int]:
        return [len(text.split()) for text in texts]


def words(number: int) -> str:
    return " ".join(["w"] * number)


def sampled(shard: Shard, rows: int | None) -> SampledShard:
    return SampledShard(shard=shard, rows=rows, table=pa.table({"text": ["a"] * 5}))


# --- rows ----------------------------------------------------------------------------------------------------------------


def test_rows_are_scaled_by_the_bytes_of_the_files() -> None:
    shards = [a_shard(f"{number}", size_bytes=1000 * number) for number in (1, 2, 3, 4)]

    rows = sampled_rows(a_spec(), shards, [sampled(shards[0], 50), sampled(shards[2], 150)])

    assert rows is not None
    assert (rows.value, rows.error) == (500, 0)


def test_shards_that_differ_make_the_number_of_rows_uncertain() -> None:
    shards = [a_shard(f"{number}") for number in range(10)]

    sample = [sampled(shard, rows) for shard, rows in zip(shards, (80, 120, 100, 100), strict=False)]
    rows = sampled_rows(a_spec(), shards, sample)

    assert rows is not None
    assert rows.value == 1000
    assert rows.error == pytest.approx(3.18 * 16.33 / 4**0.5 / 100, rel=0.001)  # Student's t of four values


def test_the_rows_of_all_shards_are_exact_and_those_of_lines_unknown() -> None:
    shards = [a_shard("a"), a_shard("b")]

    exact = sampled_rows(a_spec(), shards, [sampled(shards[0], 80), sampled(shards[1], 120)])

    assert exact == Quantity(value=200)
    assert sampled_rows(a_spec(), shards, [sampled(shards[0], None)]) is None


# --- tokens --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passages", "number", "lengths"),
    [
        ("head", 5, (7,)),
        ("head", 500, (10,)),
        ("head+tail", 5, (7,)),
        ("head+tail", 9, (10, 10)),
        ("head+middle+tail", 9, (10, 10)),
        ("head+middle+tail", 17, (10, 10, 10)),
        ("stride:4", 16, (10, 10, 10)),
        ("stride:4", 17, (10, 10, 10, 10)),
    ],
)
def test_a_text_becomes_the_sequences_that_the_model_reads(
    passages: str, number: int, lengths: tuple[int, ...]
) -> None:
    (scoring,) = a_spec(passages=passages, max_tokens=10).scorings

    assert lengths_of([(words(number),)], scoring, Words(), max_tokens=512) == [lengths]


def test_a_text_meets_every_label() -> None:
    labels = ZeroShot(labels=("sport", "climate change"))
    (scoring,) = a_spec(zero_shot=labels).scorings

    # "This example is climate change." has five words, and a pair three special tokens.
    assert lengths_of([(words(4),), (words(100),)], scoring, Words(), max_tokens=20) == [(12, 12), (20, 20)]


def test_each_passage_of_a_text_meets_every_label() -> None:
    labels = ZeroShot(labels=("sport", "climate change"))
    (scoring,) = a_spec(zero_shot=labels, passages="head+tail").scorings

    # 12 of 20 tokens are left for a passage: see above.
    assert lengths_of([(words(4),), (words(100),)], scoring, Words(), max_tokens=20) == [(12, 12), (20,) * 4]


def test_the_second_text_of_a_pair_counts_too() -> None:
    (scoring,) = a_spec(text_pair_column="answer").scorings

    assert lengths_of([(words(4), words(6))], scoring, Words(), max_tokens=512) == [(13,)]


def test_rows_without_a_text_are_not_scored() -> None:
    (scoring,) = a_spec(text_columns=("title", "text")).scorings
    (template,) = a_spec(text_columns=("title", "text"), text_template="{title}: {text}").scorings
    rows = pa.table({"title": ["A", None, None, " "], "text": ["b", "c", None, ""]})

    assert scored_texts(rows, scoring) == [("A\n\nb",), ("c",)]
    assert scored_texts(rows, template) == [("A: b",), (": c",), (" : ",)]


def test_the_limit_of_a_model_is_that_of_its_tokenizer_or_positions(tmp_path: Path) -> None:
    config = {"model_type": "roberta", "max_position_embeddings": 514, "hidden_size": 768, "num_hidden_layers": 12}
    config |= {"num_attention_heads": 12, "intermediate_size": 3072}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = Model(name=str(tmp_path), revision="sha256-0", labels=("LABEL_0",))

    files = read_model_files(model)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 128}')

    assert (files.max_tokens, files.shape, files.tokenizer) == (512, BERT_BASE, None)
    assert files.why.endswith("has no tokenizer.json")
    assert read_model_files(model).max_tokens == 128


def test_a_scorer_of_another_package_is_not_estimated() -> None:
    with pytest.raises(ShardsiftError, match="the scorer word-count makes of a text is known to its workers only"):
        read_model_files(Model(name="x", revision="1", labels=("a",), scorer="word-count"))


def test_without_a_tokenizer_characters_are_counted() -> None:
    assert CharacterCounter().counts(["x" * 420, ""]) == [100, 0]


# --- hours ---------------------------------------------------------------------------------------------------------------


def work(tokens: float = 3.6e9, operations: float | None = None, **changes: Any) -> ScoringWork:
    (scoring,) = a_spec(dtype="auto", **changes).scorings
    return ScoringWork(scoring=scoring, tokens=Quantity(value=tokens), operations=operations)


def tuned(tokens_per_second: float, **changes: Any) -> Tuned:
    model = work().scoring.model
    key = Key(model=model.name, revision=model.revision, device="NVIDIA L4", dtype="float16", backend="packed")
    return Tuned(
        key=replace(key, **changes),
        max_batch_tokens=32_768,
        date="2026-11-01 10:00 UTC",
        rows=100,
        threads=1,
        versions={},
        figures=Figures(
            rows_per_second=1.0,
            tokens_per_second=tokens_per_second,
            waste=0.0,
            memory_bytes=1,
        ),
    )


def by_name(times: list[DeviceTime]) -> dict[str, DeviceTime]:
    return {time.device: time for time in times}


def test_a_device_that_was_not_measured_is_estimated_from_its_peak(tmp_path: Path) -> None:
    operations = float(BERT_BASE.flops(np.full(1_000_000, 512)).sum())

    times = by_name(device_times(a_spec(), [work(operations=operations)], ledger=None, state_dir=tmp_path))

    assert list(times) == [gpu.name for gpu in GPUS]
    a100 = times["A100"]
    assert a100.basis == "estimated from its peak, not measured"
    # 96.6 GFLOP a text, of which 312 TFLOP/s do 3,229 a second; 57 % of that is what TensorRT reaches there.
    assert a100.hours.low == pytest.approx(1e6 / 3229 / 0.57 / 3600, rel=0.001)
    assert a100.hours.high == pytest.approx(1e6 / 3229 / 0.2 / 3600, rel=0.001)


def test_what_worker_tune_measured_here_counts_for_its_device_alone(tmp_path: Path) -> None:
    store_tuned(tmp_path, tuned(1e6))
    store_tuned(tmp_path, tuned(2e6, backend="padded"))
    store_tuned(tmp_path, tuned(9e6, revision="another"))

    times = by_name(device_times(a_spec(), [work(operations=1e18)], ledger=None, state_dir=tmp_path))

    assert times["NVIDIA L4"].hours == Range(low=0.5, high=0.625)
    assert times["NVIDIA L4"].basis == "as `worker tune` measured here on 2026-11-01 10:00 UTC"
    assert "L4" not in times
    assert times["T4"].basis.startswith("estimated from its peak")


def test_several_models_need_the_time_of_each(tmp_path: Path) -> None:
    other = Model(name="me/other", revision="1", labels=("a",))
    store_tuned(tmp_path, tuned(1e6))
    both = [work(), work(model=other)]

    assert device_times(a_spec(), both, ledger=None, state_dir=tmp_path) == []
    store_tuned(tmp_path, tuned(0.5e6, model="me/other", revision="1"))
    (time,) = device_times(a_spec(), both, ledger=None, state_dir=tmp_path)

    assert time.hours.low == pytest.approx(1.0 + 2.0)


@pytest.mark.parametrize(
    "unknown", [work(operations=None), replace(work(operations=1e18), scoring=a_spec().scorings[0])]
)
def test_a_model_of_unknown_layers_and_float32_have_no_peak(unknown: ScoringWork, tmp_path: Path) -> None:
    assert device_times(a_spec(), [unknown], ledger=None, state_dir=tmp_path) == []


# --- costs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA L40", None),
        ("NVIDIA A10", None),
        ("cpu", None),
    ],
)
def test_a_device_is_known_by_torchs_name(device: str, name: str | None) -> None:
    gpu = gpu_called(device)

    assert (gpu.name if gpu else None) == name


def test_the_cost_is_the_hours_times_the_price() -> None:
    hours = DeviceTime(device="NVIDIA L4", hours=Range(low=10.0, high=20.0), basis="as run x did")

    listed, given = priced(hours, 0.1, None), priced(hours, 0.1, 2.0)

    assert listed.gpu_hours == Range(low=9.0, high=22.0)
    assert listed.cost == Range(low=9.0 * 0.8, high=22.0 * 0.8)
    assert (listed.price_per_gpu_hour, listed.price_from) == (0.8, "list price of Hugging Face Jobs on 2026-11-21")
    assert (given.cost, given.price_from) == (Range(low=18.0, high=44.0), "SHARDSIFT_PRICE_PER_GPU_HOUR")


def test_the_page_about_hf_jobs_has_the_same_prices() -> None:
    page = (Path(__file__).parents[2] / "ops/hf-jobs/README.md").read_text()
    priced = [gpu for gpu in GPUS if gpu.price_per_hour is not None]

    assert f"as read on {PRICED_ON}" in page
    assert "| " + " | ".join(gpu.name.replace("A10G", "A10G small") for gpu in priced) + " |" in page
    assert "| " + " | ".join(f"${gpu.price_per_hour:.2f}" for gpu in priced) + " |" in page


def test_a_device_without_a_list_price_has_no_cost() -> None:
    hours = DeviceTime(device="H100", hours=Range(low=1.0, high=2.0), basis="estimated from its peak")

    found = priced(hours, 0.0, None)

    assert (found.cost, found.price_per_gpu_hour, found.price_from) == (None, None, "")


# --- what is printed ------------------------------------------------------------------------------------------------------


def an_estimate(**changes: Any) -> Estimate:
    hours = Range(low=95.0, high=284.0)
    device = DeviceEstimate(
        device="H200",
        gpu_hours=hours,
        basis="estimated from its peak, not measured",
        price_per_gpu_hour=5.0,
        price_from="list price of Hugging Face Jobs on 2026-11-21",
        cost=hours * 5.0,
    )
    fields: dict[str, Any] = {
        "rows": 211_234_567,
        "rows_error": 0.02,
        "tokens": 77_123_456_789,
        "tokens_error": 0.05,
        "sampled_rows": 1_000,
        "sampled_shards": 4,
        "devices": (device,),
    }
    return Estimate(**(fields | changes))


def test_the_screen_says_about_where_it_is_a_sample() -> None:
    lines = list(estimate_lines(an_estimate()))

    assert lines == [
        "estimate: about 211,000,000 rows, about 77,100,000,000 tokens (from 1,000 rows of 4 shards)",
        "  H200  95 to 284 GPU-hours  $475 to $1,420  estimated from its peak, not measured",
        "  $ an hour: H200 5.00 (list price of Hugging Face Jobs on 2026-11-21)",
        "  Starts of workers and their idle time come on top.",
    ]


def test_what_is_not_known_is_said_with_its_reason() -> None:
    lines = list(estimate_lines(Estimate(notes=("rows are unknown: files of lines do not say how many they have",))))

    assert lines == ["estimate: rows are unknown: files of lines do not say how many they have"]


def of_device(name: str, low: float, high: float) -> DeviceEstimate:
    time = DeviceTime(device=name, hours=Range(low=low, high=high), basis="estimated from its peak, not measured")
    return priced(time, 0.0, 5.0)


def test_a_small_input_has_no_row_of_hours_and_prices_that_round_to_nothing() -> None:
    devices = (of_device("H200", 1e-6, 4e-6), of_device("T4", 1e-5, 4e-5))

    lines = list(estimate_lines(an_estimate(rows=2, rows_error=0, tokens=8, tokens_error=0, devices=devices)))

    assert lines == [
        "estimate: 2 rows, 8 tokens (from 1,000 rows of 4 shards)",
        "  under a minute of work on each of 2 kinds of devices",
        "  Starts of workers and their idle time come on top.",
    ]


def test_beside_a_slow_device_a_fast_one_takes_less_than_can_be_told() -> None:
    devices = (of_device("H200", 1e-6, 4e-6), of_device("T4", 0.001, 2.5))

    lines = list(estimate_lines(an_estimate(devices=devices)))

    assert lines[1:3] == [
        "  H200  under 0.01 GPU-hours  under 0.01   estimated from its peak, not measured",
        "  T4    up to 2.5 GPU-hours   up to 12.50  estimated from its peak, not measured",
    ]
