"""The benchmark measures what it claims: texts, operations, rounds, arithmetic and results file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

import fleet.run.spec
from benchmarks.results import provenance_of
from benchmarks.scorer.case import Case, Model, Name, Values
from benchmarks.scorer.compare import Comparison, Entrant, Round, compare
from benchmarks.scorer.figures import best_peaks, figures_of
from benchmarks.scorer.lineup import Lineup, Loaded, load_lineup
from benchmarks.scorer.models import config_of, read_tokenizer, save_model
from benchmarks.scorer.ours import WINDOW_ROWS, OurSettings
from benchmarks.scorer.plans import CPU, GPU, Plan, chosen_cases
from benchmarks.scorer.report import Report
from benchmarks.scorer.texts import Lengths, draw_lengths, make_texts
from fleet.run.flops import Shape
from worker.training.base_model import verified_demo_encoder

ROWS = 6


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return read_tokenizer(verified_demo_encoder())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerBase) -> Path:
    return save_model(Model.TINY, tmp_path_factory.mktemp("models") / "tiny", tokenizer=tokenizer)


@pytest.fixture(scope="module")
def lineup(tiny: Path) -> Lineup:
    return load_lineup(Name, tiny, OurSettings())


@pytest.fixture(scope="module")
def measured(lineup: Lineup, tiny: Path, tokenizer: PreTrainedTokenizerBase) -> Comparison:
    """Every contender on a few rows."""
    return run(a_case(), lineup, tiny, tokenizer)


def a_case(*, rows: int = ROWS, repeats: int = 2, contenders: tuple[Name, ...] = tuple(Name)) -> Case:
    return Case(model=Model.TINY, lengths=Lengths.FINEWEB, rows=rows, repeats=repeats, contenders=contenders)


def run(case: Case, lineup: Lineup, model: Path, tokenizer: PreTrainedTokenizerBase) -> Comparison:
    return compare(case, lineup, model=model, tokenizer=tokenizer, warmup_rows=2, say=lambda line: None)


def tokens_of(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]])


@pytest.mark.parametrize(
    ("model", "tokens", "gigaflop"),
    [
        (Model.BERT_BASE, 128, 22.3),
        (Model.BERT_BASE, 384, 70.7),
        (Model.BERT_BASE, 512, 96.6),
        (Model.DISTILBERT, 512, 48.3),
        (Model.BERT_LARGE, 384, 246),
        (Model.BERT_LARGE, 512, 335),
    ],
)
def test_a_texts_operations_are_those_of_the_published_table(model: Model, tokens: int, gigaflop: float) -> None:
    shape = Shape.of(config_of(model))

    assert shape.flops(np.array([tokens]))[0] / 1e9 == pytest.approx(gigaflop, rel=3e-3)


def test_fineweb_lengths_have_the_stated_mean_and_quantiles() -> None:
    drawn = draw_lengths(Lengths.FINEWEB, 20_000, np.random.default_rng(1))

    seen_by_the_model = np.minimum(drawn + 2, 512)
    assert drawn.mean() == pytest.approx(698, rel=0.02)
    assert np.median(drawn) == pytest.approx(698 * np.exp(-0.5), rel=0.01)
    assert np.quantile(drawn, 0.8413) == pytest.approx(698 * np.exp(0.5), rel=0.02)  # one sigma above
    assert (seen_by_the_model == 512).mean() == pytest.approx(0.425, abs=0.01)
    assert seen_by_the_model.mean() == pytest.approx(365, rel=0.02)


@pytest.mark.parametrize("lengths", [Lengths.FULL, Lengths.SHORT])
def test_texts_have_the_drawn_number_of_tokens(lengths: Lengths, tokenizer: PreTrainedTokenizerBase) -> None:
    drawn = draw_lengths(lengths, 50, np.random.default_rng(7))

    tokens = tokens_of(make_texts(lengths, 50, tokenizer=tokenizer, seed=7), tokenizer)

    assert (tokens >= drawn).all()
    assert np.mean(tokens - drawn) < 5  # the rest of the last word
    if lengths is Lengths.FULL:
        assert tokens.min() >= 512
    if lengths is Lengths.SHORT:
        assert tokens.mean() == pytest.approx(25, abs=4)


def test_a_seed_gives_the_same_texts_and_another_seed_others(tokenizer: PreTrainedTokenizerBase) -> None:
    texts, again, others = (make_texts(Lengths.SHORT, 20, tokenizer=tokenizer, seed=seed) for seed in (3, 3, 4))

    assert texts == again
    assert len(set(texts)) == 20
    assert not set(texts) & set(others)


@pytest.mark.slow
def test_all_contenders_give_the_same_scores(measured: Comparison) -> None:
    assert set(measured.entrants) == set(Name) - set(measured.unavailable)
    assert set(measured.unavailable) <= {Name.REFERENCE_16BIT}  # of a CPU that is slow in 16 bits
    for name, entrant in measured.entrants.items():
        assert entrant.max_difference is not None
        allowed = 1e-4 if entrant.dtype == "float32" else 0.2 * measured.score_spread
        assert entrant.max_difference <= allowed, name
    assert measured.score_spread > 0.05


@pytest.mark.slow
def test_the_reference_pads_all_its_rows_to_the_longest(measured: Comparison) -> None:
    figures = figures_of(measured, best_peaks([measured])).contenders

    assert measured.entrants[Name.REFERENCE].tokens_sent == ROWS * 512
    assert figures[Name.REFERENCE].waste == pytest.approx(1 - measured.tokens / (ROWS * 512))
    assert figures[Name.DASK].waste == figures[Name.REFERENCE].waste


@pytest.mark.slow
def test_the_waste_of_ours_is_that_of_the_tokens_which_reach_the_model(
    measured: Comparison, lineup: Lineup, tokenizer: PreTrainedTokenizerBase
) -> None:
    assert lineup.scorer is not None
    sent: list[int] = []
    embeddings = lineup.scorer.backend.model.get_input_embeddings()
    hook = embeddings.register_forward_pre_hook(lambda _module, inputs: sent.append(inputs[0].numel()))

    lineup.contenders[Name.OURS].contender.prepare(make_texts(Lengths.FINEWEB, ROWS, tokenizer=tokenizer))()

    hook.remove()
    assert sum(sent) == measured.entrants[Name.OURS].tokens_sent
    assert measured.tokens <= sum(sent) < measured.entrants[Name.REFERENCE].tokens_sent


@pytest.mark.slow
def test_one_contender_leaves_the_tokenizers_of_the_others_as_they_were(measured: Comparison, lineup: Lineup) -> None:
    with lineup.contenders[Name.OURS].own_environment():
        assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
    with lineup.contenders[Name.REFERENCE].own_environment():
        assert "TOKENIZERS_PARALLELISM" not in os.environ


@pytest.mark.slow
def test_a_contender_without_memory_drops_out_and_is_named(
    lineup: Lineup, tiny: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    greedy = Lineup(
        contenders={
            Name.REFERENCE: lineup.contenders[Name.REFERENCE],
            Name.DASK: Loaded(contender=OutOfMemoryAfter(rows=2), load_seconds=0, parallelism=None),
        }
    )

    comparison = run(a_case(repeats=1, contenders=(Name.REFERENCE, Name.DASK)), greedy, tiny, tokenizer)

    assert (
        set(comparison.entrants) == set(figures_of(comparison, best_peaks([comparison])).contenders) == {Name.REFERENCE}
    )
    assert "memory" in comparison.unavailable[Name.DASK]


class OutOfMemoryAfter:
    """A contender that survives only its warm-up."""

    dtype = "float32"

    def __init__(self, *, rows: int) -> None:
        self._rows = rows

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        def score() -> Values:
            if len(texts) > self._rows:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
            return np.zeros(len(texts), dtype=np.float32)

        return score

    def tokens_sent(self) -> int:
        return 1


SECONDS = [
    {Name.REFERENCE: 10.0, Name.OURS: 2.0, Name.OURS_FORWARD: 1.9},
    {Name.REFERENCE: 12.0, Name.OURS: 3.0, Name.OURS_FORWARD: 2.7},
    {
        Name.REFERENCE: 30.0,
        Name.OURS: 3.0,
        Name.OURS_FORWARD: 3.0,
    },  # other work on the machine slows down the reference only
]
PEAKS = {"float32": 4e12}


@pytest.fixture
def by_hand() -> Comparison:
    entrant = Entrant(dtype="float32", load_seconds=1, tokens_sent=16_000, max_difference=0)
    return Comparison(
        case=a_case(rows=60, repeats=3, contenders=tuple(SECONDS[0])),
        tokens=12_000,
        truncated=0.4,
        operations=6e12,
        score_spread=1,
        entrants={name: entrant for name in SECONDS[0]} | {Name.OURS: replace(entrant, tokens_sent=12_500)},
        unavailable={},
        rounds=[Round(seconds=seconds, processor_seconds=seconds, peaks=PEAKS) for seconds in SECONDS],
        ours=None,
    )


def test_ratios_are_of_one_round_and_their_median_ignores_a_disturbed_one(by_hand: Comparison) -> None:
    figures = figures_of(by_hand, PEAKS)

    ours = figures.contenders[Name.OURS]
    assert ours.ratio == 5  # of 5, 4 and 10
    assert ours.ratio_range == (4, 10)
    assert ours.rows_per_second == 20
    assert ours.waste == pytest.approx(0.04)
    assert figures.contenders[Name.REFERENCE].waste == pytest.approx(0.25)
    assert ours.mfu == pytest.approx(0.5)  # 6 Tera in 3 s of 4 Tera/s
    assert figures.end_to_end_share == pytest.approx(0.95)


@pytest.mark.slow
def test_a_results_file_says_what_ran_where_and_when(measured: Comparison, tmp_path: Path) -> None:
    found = provenance_of("benchmarks.scorer")
    report = Report(provenance=found, settings=OurSettings(), comparisons=[measured], threads=1)

    as_json, as_markdown = report.write(tmp_path, part="tiny")

    found = json.loads(as_json.read_text())
    text = as_markdown.read_text()
    assert found["provenance"]["machine"]["cores"] >= 1
    assert found["provenance"]["versions"]["torch"] == torch.__version__
    assert found["provenance"]["command"].startswith("python -m benchmarks.scorer")
    assert found["provenance"]["date"][:10] in as_json.name
    assert len(found["cases"][0]["measured"]["rounds"]) == 2
    for expected in ("cores", "Threads", "Commit", "Versions", found["provenance"]["date"], "float32", *Name):
        assert expected in text


def test_windows_are_as_large_as_a_workers() -> None:
    assert WINDOW_ROWS == fleet.run.spec.WINDOW_ROWS


@pytest.mark.parametrize("plan", [CPU, GPU], ids=["cpu", "gpu"])
def test_the_plans_hold_every_model_every_length_and_every_contender(plan: Plan) -> None:
    assert {case.model for case in plan.cases} == set(Model) - {Model.TINY}
    assert {case.lengths for case in plan.cases} == set(Lengths) - {Lengths.POSTS, Lengths.PDFS}
    assert {name for case in plan.cases for name in case.contenders} == set(Name)


def test_a_model_that_is_in_no_plan_can_be_named() -> None:
    cases = chosen_cases(CPU, models=(Model.TINY,), lengths=(Lengths.SHORT,), rows=5, only=(Name.OURS,))

    assert cases == [
        Case(model=Model.TINY, lengths=Lengths.SHORT, rows=5, repeats=3, contenders=(Name.OURS,)),
    ]


def test_the_command_explains_itself_and_names_a_wrong_choice() -> None:
    command = [sys.executable, "-m", "benchmarks.scorer"]
    here = Path(__file__).parents[2]

    help_text = subprocess.run([*command, "--help"], cwd=here, capture_output=True, text=True, check=True).stdout
    wrong = subprocess.run([*command, "--models", "gpt"], cwd=here, capture_output=True, text=True, check=False)

    assert "Example: python -m benchmarks.scorer" in help_text
    assert wrong.returncode == 2
    assert "bert-base" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.slow
def test_the_zero_shot_benchmark_writes_what_it_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.zero_shot", "--size", "tiny", "--rows", "4", "--sweep-rows", "2"]
    command += ["--rounds", "2", "--labels", "3", "--output", str(tmp_path)]

    subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)

    found = json.loads(next(tmp_path.glob("*-zero-shot-tiny.json")).read_text())
    assert list(found["seconds_by_batch_size"]) == ["5", "10", "15", "20", "25", "30", "35", "40"]
    names = [one["name"] for one in found["contenders"]]
    assert [name.partition(",")[0] for name in names] == ["apply", "pipeline", "ours", "ours"]
    assert all(len(one["seconds"]) == 2 for one in found["contenders"])
    assert found["contenders"][2]["max_error"] <= 1e-4
    assert found["times_the_pipeline"][names[1]] == 1.0
    peaks = found["matmul_peaks_ops_per_second"]
    assert {dtype: len(measured) for dtype, measured in peaks.items()} == {"torch.float32": 2, "torch.bfloat16": 2}
    ratio = max(peaks["torch.bfloat16"]) / max(peaks["torch.float32"])
    assert found["matmul_peak_16_bit_to_float32"] == round(ratio, 2)


@pytest.mark.slow
def test_the_comparison_with_where_users_come_from_writes_what_it_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.coming_from", "--tiny", "--texts", "3", "--rounds", "2"]

    done = subprocess.run(
        [*command, "--output", str(tmp_path)], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )

    examples = ["dask_recipe", "apply_over_a_pipeline", "sentiment", "finepdfs_server"]
    files = [next(tmp_path.glob(f"*-coming-from-{example.replace('_', '-')}.json")) for example in examples]
    found = [json.loads(file.read_text()) for file in files]
    assert [one["example"] for one in found] == examples
    assert all(one["ways"][0]["ratio"] == 1 and one["ways"][-1]["way"] == "shardsift" for one in found)
    assert all(way["error"] <= 1e-4 for one in found for way in one["ways"] if way["dtype"] == "float32")
    assert {(one["rows"], one["rounds"]) for one in found} == {(3, 2)}
    assert {len(way["seconds"]) for one in found for way in one["ways"]} == {2}
    assert done.stdout.count(" | 1.00 to 1.00 |") == len(examples)
