"""The commands of README and tutorial run, as they stand there, in the order of the page.

The Hub is a local one that has the crawl and the classifier under their public names. The classifier is a tiny one, and the
shards have a few rows. What is not run says why in the page.
"""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubserver import HubServer
from support.crawls import CRAWL, DATASET, copy_shards, hub_with_a_crawl
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.nli import nli_classifier
from support.pages import ROOT, script_of
from support.processes import BIN
from support.redis_servers import redis_server
from support.tls import tls_front
from support.waiting import wait_until


@pytest.fixture
def hub(shards: Path, tiny_model: Path, tmp_path: Path) -> Iterator[HubServer]:
    with hub_with_a_crawl(shards, tiny_model, tmp_path / "crawl", count=2) as hub:
        yield hub


@pytest.fixture
def shell(fleet: Fleet, hub: HubServer, tmp_path: Path) -> "Shell":
    environment = {**fleet.environment, **hub.client_env(tmp_path / "home", hub.token("ada")), "OMP_NUM_THREADS": "1"}
    del environment["HF_HUB_OFFLINE"], environment["REDIS_URL"]
    folder = tmp_path / "checkout"
    folder.mkdir()
    return Shell(folder, environment)


class Shell:
    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "REDIS_URL"},
            **environment,
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }

    def run(self, script: str, *, seconds: float = 240) -> str:
        """What it prints. Fails if the script does, or takes longer. Nothing that it starts is left behind."""
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            pytest.fail(f"Not done after {seconds} s:\n{output}")
        assert process.returncode == 0, output
        return output


def test_the_commands_of_the_readme_run(
    shell: Shell, fleet: Fleet, faults: InjectedFaults, hub: HubServer, shards: Path
) -> None:
    """By the stand-in scorer. test_python_api.py has a run on one machine that loads a classifier."""
    copy_shards(shards, shell.folder / "shards", count=2)
    script = script_of(
        "README.md",
        instead={
            "export REDIS_URL=redis://:password@10.0.0.5:6379/0 HF_TOKEN=hf_your_token": exports(
                REDIS_URL=fleet.redis_url
            ),
            "--output ./kept --min-score 3": f"--output ./kept --min-score 3 --workers 1 --scorer {STAND_IN}",
            "    # from any machine\nproducer status": f" --scorer {STAND_IN} --min-score 3\nproducer status --watch",
        },
    )

    said = shell.run(f"{exports(**faults.environment)}\n{script}")

    assert "\nsound\n" in said
    assert pq.read_table(shell.folder / "kept/data").num_rows > 2
    published = hub.files("ada/fineweb-CC-MAIN-2024-10-fineweb-edu-classifier")
    assert {f"{folder}/{CRAWL}/000_00000.parquet" for folder in ("data", "scores")} <= published.keys()


def exports(**variables: str) -> str:
    return "export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())


@pytest.mark.slow  # it starts some thirty processes, each a second or two of CPU
def test_the_commands_of_the_tutorial_run(
    shell: Shell, fleet: Fleet, hub: HubServer, shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """By the stand-in scorer, whose batches take long enough to kill a worker between two of them."""
    stand_in = InjectedFaults(tmp_path / "slow-scorer")
    stand_in.use_stand_in(seconds_a_batch=0.2)
    copy_shards(shards, shell.folder / "demo-output/shards")
    shutil.copytree(tiny_model, shell.folder / "demo-output/classifier")
    script = script_of(
        "docs/tutorial.md",
        instead={
            "export REDIS_URL=redis://127.0.0.1:6379/0 HF_TOKEN=hf_your_token": exports(REDIS_URL=fleet.redis_url),
            "SHARDSIFT_LEASE_SECONDS=10": "SHARDSIFT_LEASE_SECONDS=2",
            "--model ./demo-output/classifier": f"--model ./demo-output/classifier --scorer {STAND_IN}",
            "hf://datasets/your-name/": "hf://datasets/ada/",
        },
    )

    said = shell.run(f"{exports(**stand_in.environment)}\n{script}", seconds=600)

    assert said.count("\nidentical\n") == 2
    assert said.count("\nsound\n") == 2
    kept, fewer = (pq.read_table(shell.folder / folder / "data").num_rows for folder in ("kept", "kept-4"))
    assert kept > fewer > 0
    merged = pq.read_table(pa.BufferReader(hub.read("ada/demo-kept", "data/000_00000.parquet")))
    assert merged.num_rows == kept


@pytest.mark.slow  # it downloads a model from the local Hub, and starts a run with its workers
def test_the_commands_without_the_hub_run(shell: Shell, hub: HubServer, tmp_path: Path) -> None:
    model = nli_classifier(tmp_path / "nli", "BART")
    (model / "pytorch_model.bin").write_bytes(b"the same weights")
    hub.create_repo("facebook/bart-large-mnli", "model")
    hub.add_folder("facebook/bart-large-mnli", model, repo_type="model", message="a model")
    pq.write_table(pa.table({"selftext": ["Rain again.", "A new phone."]}), shell.folder / "posts.parquet")

    shell.run(script_of("docs/without_the_hub.md", instead={}))

    assert not (shell.folder / "bart-large-mnli/pytorch_model.bin").exists()
    labelled = pq.read_table(shell.folder / "labelled/data")
    assert set(labelled["label"].to_pylist()) <= {"climate change", "technology", "health"}
    assert labelled.num_rows == 2


@pytest.mark.slow  # it starts two workers, a finalizer and the commands
def test_the_commands_for_rented_gpus_run_over_tls_with_a_workers_user(
    shell: Shell, hub: HubServer, faults: InjectedFaults, shards: Path, tmp_path: Path
) -> None:
    """`hf` is a stand-in that runs the job's script here, as the workers' user."""
    copy_shards(shards, tmp_path / "added/sample/10BT", count=3)
    hub.add_folder(DATASET, tmp_path / "added", message="a sample")
    (shell.folder / "ops").symlink_to(ROOT / "ops")
    (shell.folder / "hf_token").write_text(hub.token("ada"))
    users = str(ROOT / "ops/redis/users.acl")
    with redis_server(tmp_path / "redis", "--aclfile", users) as server, tls_front(server, tmp_path) as front:
        worker_url = front.url(("shardsift-worker", "replace-me-worker"))
        (shell.folder / "hf").write_text(
            "#!/bin/bash -e\n"
            f"{exports(REDIS_URL=worker_url, SHARDSIFT_DEVICE='cpu')}\n"
            "while [[ $1 != *.py ]]; do shift; done\n"
            '(python "$@" --exit-when-idle 5s; echo ended) >> worker.log 2>&1 &\n'
        )
        (shell.folder / "hf").chmod(0o755)
        script = script_of(
            "docs/rented_gpus.md",
            instead={
                "read -rs REDIS_URL && export REDIS_URL": exports(
                    REDIS_URL=front.url(("shardsift", "replace-me-operator"))
                ),
                "pip install 'shardsift @ git+https://git.example.com/shardsift.git'": "",
                "--min-score 3": f"--min-score 3 --scorer {STAND_IN}",
                "your-name": "ada",
                "seq 8": "seq 2",
                "rows-per-task 50000": "rows-per-task 5",
            },
        )

        said = shell.run(f"{exports(**faults.environment)}\nPATH=$PWD:$PATH\n{script}")
        log = shell.folder / "worker.log"
        wait_until(lambda: log.read_text().count("ended\n") == 2, description="both machines have ended")

    assert "published" in said
    scores = [path for path in hub.files("ada/edu-10bt") if path.startswith("scores/")]
    assert sum(pq.read_table(pa.BufferReader(hub.read("ada/edu-10bt", path))).num_rows for path in scores) == 36
