"""A base of 200 shards is extended by 50, in each kind of place. Scores are compared with those of transformers."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hubserver import HubServer
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.verify.verify import verify
from support.outputs import Published, data_digests, published_rows
from support.small_run import Runs, shared_runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
BASE, ADDED, ROWS = 200, 50, 20
KEPT = 2.5  # lowest score
FILTER = f"score > {KEPT}"
REFILTERS: tuple[dict[str, Any], ...] = (
    {"where": "score > 3"},
    {"keep_top": "30%"},
    {"buckets": 3, "keep_all": True},
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_shards(folder, shards=BASE + ADDED, rows=ROWS, seed=11)
    return folder


@pytest.fixture(scope="module")
@torch.inference_mode()
def expected(source: Path, tiny_model: Path) -> pa.Table:
    """The rows and, without batches, their scores."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    network = AutoModelForSequenceClassification.from_pretrained(tiny_model).eval()
    rows = pa.concat_tables([pq.read_table(file) for file in sorted(source.iterdir())])
    inputs = (tokenizer(text, return_tensors="pt", truncation=True) for text in rows["text"].to_pylist())
    return rows.append_column("expected", pa.array([network(**one).logits.item() for one in inputs]))


@pytest.fixture(scope="module")
def whole(source: Path, redis_url: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """One run over all files in the folder "out", and each refilter of it in a folder with its number."""
    runs = shared_runs(redis_url, tiny_model, tmp_path_factory.mktemp("whole"))
    out = runs.publish(source, where=FILTER, target_file_size="none")
    for number, options in enumerate(REFILTERS):
        runs.refilter(out, str(number), **options)
    return runs


def in_a_folder(files: Published, folder: Path) -> Path:
    for path, content in files.visible().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@pytest.fixture
def hub(request: pytest.FixtureRequest, hubs: Callable[[str], HubServer]) -> HubServer | None:
    """The Hub that receives the output."""
    kind = request.node.callspec.params["files"]
    return hubs("lfs" if kind == "hub" else "xet") if kind != "folder" else None


@pytest.mark.parametrize("files", ["folder", "bucket", "hub", "hub by xet"], indirect=True)
def test_an_extension_by_50_shards_sends_them_alone_and_the_whole_is_that_of_one_run(
    files: Published, hub: HubServer | None, source: Path, expected: pa.Table, whole: Runs, runs: Runs, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    part.mkdir()
    paths = sorted(source.iterdir())
    publish = partial(runs.publish, part, output_uri=files.uri, where=FILTER, target_file_size="none")
    for file in paths[:BASE]:
        shutil.copy(file, part)
    publish()
    base, commits = files.visible(), len(files.commits())
    if hub:
        hub.forget_requests()

    for file in paths[BASE:]:
        shutil.copy(file, part)
    publish(extends=True)

    found = files.visible()
    data = {path for path in base if "/" in path}
    assert len(data) == 2 * BASE
    assert all(found[path] == base[path] for path in data)
    added = {path: content for path, content in found.items() if path not in data}
    if hub:
        sent = sum(request.bytes_in for request in hub.requests)
        assert sent < 1.5 * sum(map(len, added.values()))
    if commits:
        assert files.commits()[0] == added.keys()
        assert len(files.commits()) == commits + 1
    out = in_a_folder(files, tmp_path / "read")
    assert data_digests(out) == data_digests(whole.folder / "out")
    check_rows(out, expected)
    assert verify(files.uri, source=(str(part),)).faults == ()

    for number, options in enumerate(() if hub else REFILTERS):
        again = runs.refilter(files.uri, f"again-{number}", input_uris=(str(part),), **options)
        assert data_digests(again) == data_digests(whole.folder / str(number))
    if commits:
        before = published_run(files.uri).run_ids
        runs.refilter(files.uri, input_uris=(str(part),), **REFILTERS[0], replaces=True)
        replaced = in_a_folder(files, tmp_path / "replaced")
        assert data_digests(replaced) == data_digests(whole.folder / "0")
        (run_id,) = published_run(files.uri).run_ids
        assert run_id not in before


def check_rows(out: Path, expected: pa.Table) -> None:
    """Compare all scores, and which rows are kept, with those of transformers."""
    scores = published_rows(out, "scores")["score"].to_numpy()
    assert scores == pytest.approx(expected["expected"].to_numpy(), abs=1e-4)
    kept = published_rows(out)
    assert kept["id"].equals(expected.filter(pa.array(scores > KEPT))["id"])
    assert 0 < len(kept) < len(expected)
