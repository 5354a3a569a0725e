"""The main job over the Hub: input, model and output in repositories of the local Hub server, by LFS and by xet.

Only the run with xet loads the model; the others use the stand-in scorer.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubserver import HubServer
from shardsift.fleet.process.wording import counted
from support.crawls import CRAWL, DATASET, MODEL, hub_with_a_crawl
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.processes import run_command
from support.waiting import wait_until

OUTPUT = "me/fineweb-edu-2024-10"
SHARDS, ROWS = 6, 72
LAST = "000_00005"
KINDS = ("data/", "scores/")
COMMIT_BYTES = 21_000  # a commit of names, digests and a card; a single data file is more

READ_BACK = f"""
import datasets, pyarrow.parquet as pq
from huggingface_hub import HfFileSystem
kept = datasets.load_dataset("{OUTPUT}", split="train")
every = datasets.load_dataset("{OUTPUT}", "scores", split="train")
manifest = pq.read_table("datasets/{OUTPUT}/manifest.parquet", filesystem=HfFileSystem())
assert kept.num_rows == sum(manifest["rows_kept"].to_pylist())
assert every.num_rows == sum(manifest["rows_in"].to_pylist()) == {ROWS}
line_of = {{(line["shard"], line["row"]): line for line in every}}
assert len(line_of) == {ROWS}
assert all(line_of[row["shard"], row["row"]]["score"] == row["score"] for row in kept)
assert min(kept["score"]) >= 3 and set(kept["dump"]) == {{"{CRAWL}"}}
print("read back", kept.num_rows)
"""


@pytest.fixture(params=["lfs", pytest.param("xet", marks=pytest.mark.slow)])
def hub(request: pytest.FixtureRequest, shards: Path, tiny_model: Path, tmp_path: Path) -> Iterator[HubServer]:
    with hub_with_a_crawl(shards, tiny_model, tmp_path / "crawl", count=SHARDS, xet=request.param == "xet") as hub:
        yield hub


@pytest.fixture
def fleet(fleet: Fleet, hub: HubServer, faults: InjectedFaults, tmp_path: Path) -> Fleet:
    """A fleet with a token of the Hub, whose workers load no model."""
    del fleet.environment["HF_HUB_OFFLINE"]
    fleet.environment |= faults.environment | hub.client_env(tmp_path / "home", hub.token("me", write=True))
    return fleet


def options(fleet: Fleet) -> tuple[str, ...]:
    """Of the run, for `enqueue`."""
    scorer = fleet.environment.get("SHARDSIFT_SCORER", "sequence-classifier")
    return ("--crawl", CRAWL, "--scorer", scorer, "--min-score", "3", "--output", f"hf://datasets/{OUTPUT}")


def test_workers_upload_the_data_and_the_finalizer_commits_once(hub: HubServer, fleet: Fleet, tmp_path: Path) -> None:
    if hub.xet:
        del fleet.environment["SHARDSIFT_SCORER"]
    as_worker = hub.client_env(tmp_path / "worker-home", hub.token("worker", write=True))
    as_finalizer = hub.client_env(tmp_path / "finalizer-home", hub.token("finalizer", write=True))
    as_producer = hub.client_env(tmp_path / "producer-home", hub.token("producer", write=True))
    producer = {**fleet.environment, **as_producer}

    unmerged = (*options(fleet), "--target-file-size", "none")
    sent = run_command("producer", "enqueue", *unmerged, environment=producer)
    assert sent.returncode == 0, sent.stderr
    run_id = sent.stdout.strip()
    with fleet.finalizer(environment=as_finalizer), fleet.worker(MODEL, environment=as_worker):
        fleet.wait_until_published(run_id, seconds=180)

    commits = hub.commits(OUTPUT, repo_type="dataset")
    assert [commit.author for commit in commits] == ["finalizer", "producer"]  # the producer's made the repository
    files = hub.files(OUTPUT, repo_type="dataset")
    data_bytes = sum(size for path, size in files.items() if path.startswith(("data/", "scores/")))
    sent_by = {name: sum(r.bytes_in for r in hub.requests if r.token_name == name) for name in ("worker", "finalizer")}
    committed = [request for request in hub.requests if "/commit/" in request.path and request.status == 200]
    assert sent_by["worker"] > data_bytes / 2 > 2 * COMMIT_BYTES  # xet sends data that several files share only once
    assert sent_by["finalizer"] < 4 * COMMIT_BYTES  # the commit, the manifest, and the card
    small = [(request.token_name, request.bytes_in < COMMIT_BYTES) for request in committed]
    assert small == [("producer", True), ("finalizer", True)]  # the producer's reserves the output, on a branch
    assert f"data/{CRAWL}/{LAST}.parquet" in files
    assert f"scores/{CRAWL}/{LAST}.parquet" in files

    fleet.ledger.redis.flushall()
    rebuilt = run_command("producer", "enqueue", *unmerged, environment=producer)
    assert f"{SHARDS} shards, {SHARDS} taken over from receipts, {SHARDS} done" in rebuilt.stderr
    source = f"hf://datasets/{DATASET}/data/{CRAWL}/*.parquet"
    verify = ("verify", f"hf://datasets/{OUTPUT}", "--input", source)
    verified = run_command("producer", *verify, environment={**as_producer, "REDIS_URL": ""})
    assert (verified.returncode, verified.stdout.splitlines()[-1]) == (0, "sound"), verified.stdout + verified.stderr
    if hub.xet:  # the slow case, because datasets takes seconds to load
        reader = {**producer, "HF_HOME": str(tmp_path / "reader-home")}
        read = run_command("python", "-c", READ_BACK, environment=reader)
        assert "read back" in read.stdout, read.stderr


FILL = """
import sys
from huggingface_hub import HfApi
HfApi().create_bucket("me/in")
HfApi().sync_bucket(sys.argv[1], "hf://buckets/me/in")
"""


@pytest.mark.slow
@pytest.mark.parametrize("hub", ["xet"], indirect=True)
def test_buckets_are_read_and_written_and_hold_the_receipts(hub: HubServer, fleet: Fleet, tmp_path: Path) -> None:
    filled = run_command("python", "-c", FILL, tmp_path / "crawl/data" / CRAWL, environment=fleet.environment)
    assert filled.returncode == 0, filled.stderr
    source, output = "hf://buckets/me/in", "hf://buckets/me/out/kept"
    enqueue = ("enqueue", "--input", source, "--model", MODEL, "--scorer", STAND_IN, "--keep-all", "--output", output)

    run_id = fleet.producer(*enqueue).stdout.strip()
    with fleet.finalizer(), fleet.worker(MODEL):
        fleet.wait_until_published(run_id, seconds=180)
    fleet.ledger.redis.flushall()
    rebuilt = fleet.producer(*enqueue)
    verified = fleet.producer("verify", output, "--input", source)

    assert f"{SHARDS} shards, {SHARDS} taken over from receipts, {SHARDS} done" in rebuilt.stderr
    assert (verified.returncode, verified.stdout.splitlines()[-1]) == (0, "sound"), verified.stdout + verified.stderr
    files = hub.files("me/out", "bucket")
    assert {f"kept/data/{LAST}.parquet", f"kept/scores/{LAST}.parquet", "kept/README.md"} <= files.keys()
    assert not [path for path in files if "/staged/" in path]
    assert hub.is_private("me/out", "bucket")


@pytest.mark.slow
@pytest.mark.parametrize("hub", ["lfs"], indirect=True)
def test_another_filter_replaces_a_dataset_and_sends_none_of_its_scores(hub: HubServer, fleet: Fleet) -> None:
    run_id = fleet.producer("enqueue", *options(fleet)).stdout.strip()
    with fleet.finalizer(), fleet.worker(MODEL):
        fleet.wait_until_published(run_id, seconds=180)
    before, refilter = len(hub.requests), ("refilter", f"hf://datasets/{OUTPUT}", "--replace", "--keep-all")

    replaced = fleet.producer(*refilter)
    sent, files = [request for request in hub.requests[before:] if request.method == "PUT"], hub.files(OUTPUT)
    other = fleet.producer(*refilter[:-1], "--where", "score < 3")
    back = fleet.producer(*refilter)  # the ledger calls it published already

    assert [one.returncode for one in (replaced, other, back)] == [0, 0, 0], replaced.stderr + back.stderr
    data, whole = (sum(size for path, size in files.items() if path.startswith(kinds)) for kinds in (KINDS[0], KINDS))
    assert "Start one" not in replaced.stderr  # no worker runs, and none is needed
    assert f"Sent {data:,} of {whole:,} bytes." in replaced.stderr
    assert len(sent) == SHARDS + 2  # the data of the shards, the file that they are merged into, and the manifest
    assert hub.files(OUTPUT).items() >= {(path, size) for path, size in files.items() if path.startswith(KINDS)}


@pytest.mark.slow  # the shard that was refused waits for a minute
@pytest.mark.parametrize("hub", ["lfs"], indirect=True)
def test_a_worker_whose_token_only_reads_leaves_the_run_to_others(hub: HubServer, fleet: Fleet, tmp_path: Path) -> None:
    run_id = fleet.producer("enqueue", *options(fleet)).stdout.strip()
    reader = hub.client_env(tmp_path / "reader-home", hub.token("reader", write=False))

    with fleet.finalizer(), fleet.worker(MODEL, name="reader", environment=reader):
        wait_until(
            lambda: fleet.ledger.retries(run_id, most=9), description="the Hub refuses the first shard", seconds=120
        )
        time.sleep(10)  # in which it would take the others
        refused = len(fleet.ledger.retries(run_id, most=9))
        status = fleet.producer("status", run_id)
        with fleet.worker(MODEL, name="writer"):
            fleet.wait_until_published(run_id, seconds=180)

    assert refused <= 2, "that shard, and one that was scored beside it"
    assert f"{counted(refused, 'shard')} to try again" in status.stdout
    assert "the Hub refuses this (403: " in status.stdout
    assert "give HF_TOKEN the rights for this repository." in status.stdout
    assert fleet.ledger.failures(run_id) == []
    assert fleet.log("reader").read_text().count("is left to other machines, and this worker pauses") >= 1
