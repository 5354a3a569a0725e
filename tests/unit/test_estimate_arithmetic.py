"""The arithmetic of an estimate: rows by the size of files, tokens by passages and labels, hours by speeds, costs by prices."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardsift.fleet.run.scoring import ZeroShot
from shardsift.fleet.run.spec import Shard
from shardsift.producer.gpus import GPUS, PRICED_ON, gpu_called
from shardsift.producer.planning.estimate import DeviceEstimate, Estimate, Range, priced, rows_by_size
from shardsift.producer.planning.sampled_work import SampledShard, tokens_read
from support.records import a_shard, a_spec


def sampled(shard: Shard, rows: int | None) -> SampledShard:
    return SampledShard(shard=shard, rows=rows, table=pa.table({"text": ["a"] * 5}))


# --- rows and tokens -----------------------------------------------------------------------------------------------------


def test_rows_are_scaled_by_the_bytes_of_the_files() -> None:
    shards = [a_shard(f"{number}", size_bytes=1000 * number) for number in (1, 2, 3, 4)]

    assert rows_by_size(a_spec(), shards, [sampled(shards[0], 50), sampled(shards[2], 150)]) == 500
    assert rows_by_size(a_spec(), shards, [sampled(shards[0], None)]) is None  # a file of lines


@pytest.mark.parametrize(
    ("options", "number", "tokens"),
    [
        ({}, 5, 5),
        ({"passages": "head+middle+tail"}, 500, 30),
        ({"zero_shot": ZeroShot(labels=("sport", "climate change"))}, 500, 20),
        ({"zero_shot": ZeroShot(labels=("sport", "climate change")), "passages": "head+tail"}, 500, 40),
    ],
)
def test_a_text_fills_its_passages_and_meets_every_label(options: dict[str, Any], number: int, tokens: int) -> None:
    (scoring,) = a_spec(**options).scorings

    assert tokens_read(np.array([number]), scoring, longest=10) == [tokens]


# --- costs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("cpu", None),
    ],
)
def test_a_device_is_known_by_torchs_name(device: str, name: str | None) -> None:
    gpu = gpu_called(device)

    assert (gpu.name if gpu else None) == name


def test_the_cost_is_the_hours_times_the_price() -> None:
    hours = Range(low=10.0, high=20.0)

    listed, given, unknown = (
        priced(device, hours, "as run x did", price)
        for device, price in (("NVIDIA L4", None), ("NVIDIA L4", 2.0), ("NVIDIA H100", None))
    )

    assert listed.cost == hours * 0.8
    assert (listed.price_per_gpu_hour, listed.price_from) == (0.8, "list price of Hugging Face Jobs on 2026-11-21")
    assert (given.cost, given.price_from) == (hours * 2.0, "SHARDSIFT_PRICE_PER_GPU_HOUR")
    assert (unknown.cost, unknown.price_per_gpu_hour, unknown.price_from) == (None, None, "")


def test_the_page_about_hf_jobs_has_the_same_prices() -> None:
    page = (Path(__file__).parents[2] / "ops/hf-jobs/README.md").read_text()
    priced = [gpu for gpu in GPUS if gpu.price_per_hour is not None]

    assert f"as read on {PRICED_ON}" in page
    assert "| " + " | ".join(gpu.name.replace("A10G", "A10G small") for gpu in priced) + " |" in page
    assert "| " + " | ".join(f"${gpu.price_per_hour:.2f}" for gpu in priced) + " |" in page


# --- what is printed ------------------------------------------------------------------------------------------------------


HOURS = Range(low=95.0, high=284.0)
H200 = DeviceEstimate(
    device="H200",
    gpu_hours=HOURS,
    basis="estimated from its peak, not measured",
    price_per_gpu_hour=5.0,
    price_from="list price of Hugging Face Jobs on 2026-11-21",
    cost=HOURS * 5.0,
)
ESTIMATE = Estimate(rows=211_234_567, tokens=77_123_456_789, sampled_rows=1_000, sampled_shards=4, devices=(H200,))


def test_the_screen_says_about_when_a_figure_is_from_a_sample() -> None:
    assert list(ESTIMATE.lines()) == [
        "estimate: about 211,000,000 rows, about 77,100,000,000 tokens, from 1,000 rows of 4 shards",
        "  H200: 95.00 to 284.00 hours, estimated from its peak, not measured; 475.00 to 1,420.00 at 5.00 an hour, list price "
        "of Hugging Face Jobs on 2026-11-21",
        "  Starts of workers and their idle time come on top.",
    ]
