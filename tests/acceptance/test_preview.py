"""`producer run --preview`: a sample of the rows scored by a real worker, before anything is published."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import shardsift
from support.line_files import write_as_lines
from support.processes import run_command


@pytest.fixture
def machine(machine: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A machine of a fleet whose Redis does not answer: a preview has its own."""
    (tmp_path / "password").write_text("secret")
    (tmp_path / "scratch").mkdir()
    return {
        **machine,
        "SHARDSIFT_SCRATCH_DIR": str(tmp_path / "scratch"),
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "REDIS_PASSWORD_FILE": str(tmp_path / "password"),
    }


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for name in ("state", "out", "scratch") for path in (folder / name).glob("*"))


def test_a_preview_shows_what_a_run_keeps_and_leaves_nothing_behind(
    machine: dict[str, str], shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    scores, texts = scores_of(shards, tiny_model)
    middle = sorted(scores)[len(scores) // 2]
    options = ("--input", shards, "--model", tiny_model, "--dtype", "float32", "--output", tmp_path / "out")

    done = run_command("producer", "run", *options, "--min-score", str(middle), "--preview", "500", environment=machine)

    assert done.returncode == 0, done.stderr
    assert "Nothing is published or kept" in done.stderr
    kept = sum(score >= middle for score in scores)
    assert "preview  96 rows drawn from 8 shards\n" in done.stdout
    assert f"kept     {kept / 96:.1%} (" in done.stdout
    assert f' with 95 % confidence, by "score" >= {middle}\n' in done.stdout
    assert " rows/s by one worker on cpu\n" in done.stdout
    assert "\nscore: 96 rows with a score\n" in done.stdout
    best, worst, near = (
        done.stdout.partition(f"\n{title}:\n")[2] for title in ("best", "worst", "nearest to the threshold")
    )
    for shown, score in ((best, max(scores)), (worst, min(scores)), (near, middle)):
        place, text = shown.splitlines()[:2]
        shard, _, row = place.split()[1:4]
        assert float(place.split()[0]) == pytest.approx(score, abs=2e-3)
        assert scores[12 * int(shard[-5:]) + int(row)] == pytest.approx(score, abs=1e-4)
        assert " ".join(texts[12 * int(shard[-5:]) + int(row)].split()).startswith(text.strip().rstrip("…"))
    assert left_behind(tmp_path) == []


@pytest.mark.slow
def test_a_preview_fails_for_the_bad_rows_of_its_sample_as_a_run_would(
    machine: dict[str, str], shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    lines = write_as_lines(shards, tmp_path / "lines", ".jsonl")
    for file in lines.iterdir():
        first, second, third, *rest = file.read_text().splitlines()
        file.write_text("\n".join([first[:20], second[:20], '{"text": " "}', *rest]))
    options = ("--input", lines, "--model", tiny_model, "--output", tmp_path / "out", "--keep-all")

    done = run_command("producer", "run", *options, "--preview", "500", "--json", environment=machine)

    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["sampled_rows"], found["bad_rows"]) == (96, {"not valid JSON": 16})
    assert found["errors"] == {"blank text": 8}
    assert found["refused"].startswith("16 rows of 96 cannot be read, and --max-bad-rows 0.01 allows 9")
    assert found["kept"]["value"] == pytest.approx(72 / 96)
    assert found["kept"]["low"] < 72 / 96 < found["kept"]["high"]
    assert sum(found["histograms"]["score"]["rows_by_bin"].values()) == 72
    assert found["nearest"] == []
    assert {row["row"] for row in found["best"]} <= set(range(3, 12))
    assert left_behind(tmp_path) == []


def scores_of(shards: Path, model: Path) -> tuple[list[float], list[str]]:
    """The score and the text of each row, by the model in this process."""
    texts = [text for file in sorted(shards.iterdir()) for text in pq.read_table(file)["text"].to_pylist()]
    scorer = shardsift.load_scorer(model, dtype="float32", device="cpu", parity_rows=0)
    return [float(score) for score in scorer.score(texts)], texts
