"""The parts of `worker tune`: costs of tokens, the choice of the best, lack of memory, stored results, texts and chart."""

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoModel,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    FalconConfig,
    ModernBertConfig,
    PreTrainedConfig,
    Qwen3Config,
    T5Config,
)

from shardsift.fleet.errors import ShardsiftError, UsageError
from shardsift.fleet.process.tuned import FILE_NAME, Key, Tuned, find_tuned, read_tuned, store_tuned
from shardsift.fleet.run.flops import Shape, shape_of
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.tokens import Tokens
from shardsift.worker.tuning.trials import Method, Setting, Trial, best_of, budget_candidates, run_trials
from shardsift.worker.tuning.tune import trial_texts
from shardsift.worker.tuning.tune_options import TuneOptions, check_chart, parse_budgets
from support.backends import Preceded
from support.families import FAMILIES

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def quiet(_line: str) -> None:
    """Discard progress."""


# --- what a token costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "extra"),
    [
        (BertConfig(**SMALL), {"add_pooling_layer": False}),
        (DistilBertConfig(vocab_size=50, dim=32, n_layers=2, n_heads=4, hidden_dim=48), {}),
        (ModernBertConfig(**SMALL, pad_token_id=0), {}),
        (Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=16), {}),
        (BartConfig(vocab_size=50, **FAMILIES["BART"].sizes), {}),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_the_operations_are_those_that_torch_counts(config: PreTrainedConfig, extra: dict[str, Any]) -> None:
    model = AutoModel.from_config(config, attn_implementation="eager", **extra).eval()

    with torch.inference_mode(), FlopCounterMode(display=False) as counted:
        model(input_ids=torch.ones(1, 20, dtype=torch.long))

    assert Shape.of(config).flops(np.array([20])).sum() == pytest.approx(counted.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("config", [T5Config(), FalconConfig(num_kv_heads=2)])
def test_a_model_with_unknown_layers_has_no_figure_instead_of_a_wrong_one(config: PreTrainedConfig) -> None:
    assert shape_of(config) is None


# --- the sweep ---------------------------------------------------------------------------------------------------------


def a_trial(size: int, rate: float | None) -> Trial:
    return Trial(setting=a_budget(size), rows_per_second=rate)


def a_budget(size: int) -> Setting:
    return Setting(method=Method.BUDGET, size=size)


def test_the_best_is_the_smallest_within_two_percent_of_the_fastest() -> None:
    trials = (a_trial(512, 90.0), a_trial(1024, 98.5), a_trial(2048, 99.0), a_trial(4096, 100.0), a_trial(8192, None))

    assert best_of(trials).setting.size == 1024


def test_if_no_budget_fits_the_error_suggests_smaller_ones() -> None:
    with pytest.raises(UsageError, match=r"Batches of 8,192 tokens.* --budgets"):
        best_of((a_trial(8192, None), a_trial(16384, None)))


def of_a_thousand_tokens(batch: Tokens) -> None:
    if len(batch) * batch.lengths.max() > 1_000:
        raise torch.OutOfMemoryError("CUDA out of memory.")


def test_a_budget_whose_batches_had_to_be_halved_does_not_count(scorer: SequenceClassifier) -> None:
    scorer = replace(scorer, backend=Preceded(scorer.backend, before=of_a_thousand_tokens, name="padded"))
    rows = scorer.encode(["word " * 98] * 40)  # of 100 tokens

    candidates = budget_candidates(scorer, [rows], (500, 1_000, 2_000))
    trials = run_trials(candidates, rows=40, repeats=1, device=CPU, say=quiet)

    assert [trial.rows_per_second is not None for trial in trials] == [True, True, False]
    assert not replace(scorer, max_batch_tokens=2_000).score_encoded(rows).errors  # a worker would have continued


# --- what is kept ------------------------------------------------------------------------------------------------------

KEY = Key(model="some/model", revision="0123abc", device="NVIDIA H200", dtype="float16", backend="packed")


def a_find(key: Key = KEY, *, max_batch_tokens: int = 32_768) -> Tuned:
    return Tuned(key=key, max_batch_tokens=max_batch_tokens, date="2026-11-21 08:00 UTC")


def test_a_stored_result_is_found_for_the_same_scorer_only_and_replaces_only_its_own(tmp_path: Path) -> None:
    folder, other = tmp_path / "state", a_find(replace(KEY, dtype="bfloat16"), max_batch_tokens=8_192)
    for find in (a_find(), other, a_find(max_batch_tokens=65_536)):
        store_tuned(folder, find)

    assert find_tuned(folder, KEY) == a_find(max_batch_tokens=65_536)
    assert read_tuned(folder) == [other, a_find(max_batch_tokens=65_536)]
    assert [file.name for file in folder.iterdir()] == [FILE_NAME]
    for field in ("model", "revision", "device", "dtype", "backend"):
        assert find_tuned(folder, replace(KEY, **{field: "another"})) is None


@pytest.mark.parametrize("damaged", [b"", b"[1]", b"\xff\xfe"])
def test_a_damaged_file_is_ignored_with_a_warning_and_replaced(
    tmp_path: Path, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(damaged)

    with caplog.at_level(logging.WARNING):
        assert find_tuned(tmp_path, KEY) is None
    store_tuned(tmp_path, a_find())

    assert f"Ignoring {tmp_path / FILE_NAME}" in caplog.text
    assert find_tuned(tmp_path, KEY) == a_find()


# --- options, texts, chart ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["512,", "0", "1e3", "²"])
def test_a_text_that_is_not_a_list_of_budgets_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="--budgets takes token counts"):
        parse_budgets(text)


def write_texts(file: Path, texts: list[str | None], column: str = "text") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(range(len(texts))), column: pa.array(texts, pa.string())}), file)
    return file


def test_the_texts_are_the_first_of_an_input_without_nulls_and_hidden_files(tmp_path: Path) -> None:
    write_texts(tmp_path / "b" / "1.parquet", ["three", "four", "five"])
    write_texts(tmp_path / "a.parquet", ["one", None, "two"])
    write_texts(tmp_path / ".shardsift" / "0.parquet", ["hidden"])
    (tmp_path / "notes.txt").write_text("not Parquet")

    for uri in (str(tmp_path), f"file://{tmp_path}", f"{tmp_path}/**/*.parquet"):
        assert trial_texts(uri, TuneOptions(), 4).to_pylist() == ["one", "two", "three", "four"]
    assert trial_texts(str(tmp_path), TuneOptions(), 100).to_pylist() == ["one", "two", "three", "four", "five"]


def test_an_unusable_input_is_one_clear_line(tmp_path: Path) -> None:
    file = write_texts(tmp_path / "a.parquet", [None], column="content")
    (tmp_path / "empty").mkdir()

    for uri, column, message in (
        (file, "text", 'has no column "text"; it has: id, content. Name one with --text-column'),
        (file, "content", "has no text to score"),
        (tmp_path / "empty", "text", "No input files at"),
        (tmp_path / "nowhere.parquet", "text", "No input files at"),
        ("nonsense://x", "text", "Cannot read nonsense://x"),
    ):
        with pytest.raises(ShardsiftError, match=message):
            trial_texts(str(uri), TuneOptions(text_column=column), 10)


def test_a_curve_that_cannot_be_drawn_is_an_error_before_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_chart(tmp_path / "tuning.png")
    for file in (tmp_path, tmp_path / "nowhere" / "tuning.png"):
        with pytest.raises(UsageError, match=r"Cannot write the chart to .* --output"):
            check_chart(file)

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        UsageError, match=r"--output none leaves out, needs matplotlib, .* pip install 'shardsift\[tune\]'"
    ):
        check_chart(tmp_path / "tuning.png")
