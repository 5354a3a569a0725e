"""`producer debug-dump` writes what a bug report needs, and no secret."""

import gzip
import json
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.ledger import Claim, Ledger
from fleet.ledger.keys import Keys
from fleet.settings import Settings
from fleet.training.task import WHOLE
from fleet.workers import WorkerState, announce
from producer.debug_dump.collect import entries, readme
from producer.debug_dump.secrets import Cleaner
from support.ledger_trainings import claim_training, create_training, training_report
from support.processes import call_command
from support.proxy import proxied
from support.records import a_shard, a_spec
from support.redis_servers import redis_server

PASSWORD = "pass/w0rd of-redis"
QUOTED = "pass%2Fw0rd%20of-redis"
TOKEN = "not-like-a-token-of-the-hub"
AWS_SECRET, AWS_SESSION = "aws+secret/0f+mine==", "aws-session-0f-mine"
FLOWER_PASSWORD = "pass-w0rd-of-flower"
PROXY_PASSWORD = "pass-w0rd-of-proxy"
SIGNATURE, OTHERS_TOKEN = "s1gnature-of-an-address", "hf_ATokenOfAnotherUserThatLeaked"
SECRETS = (PASSWORD, QUOTED, TOKEN, AWS_SECRET, AWS_SESSION, FLOWER_PASSWORD, PROXY_PASSWORD, SIGNATURE, OTHERS_TOKEN)
SIGNED = f"https://bucket.s3.amazonaws.com/a.parquet?X-Amz-Credential=me&X-Amz-Signature={SIGNATURE}"
TRACEBACK = f'Traceback (most recent call last):\n  File "x.py", line 7\nOSError: 403 for {SIGNED}, {AWS_SECRET}\n'
SPEC = a_spec()


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path / "redis", "--requirepass", PASSWORD) as server, proxied(server.socket) as (_, address):
        yield f"redis://:{QUOTED}@{address}/0"


@pytest.fixture
def environment(redis_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "REDIS_URL": redis_url,
        "HF_TOKEN": TOKEN,
        "HF_HUB_OFFLINE": "1",
        "AWS_ACCESS_KEY_ID": "AKIA-of-mine",
        "AWS_SECRET_ACCESS_KEY": AWS_SECRET,
        "AWS_SESSION_TOKEN": AWS_SESSION,
        "AWS_REGION": "eu-central-1",
        "SHARDSIFT_FLOWER_AUTH": f"me:{FLOWER_PASSWORD}",
        "SHARDSIFT_MAX_BATCH_TOKENS": "4096",
        "HTTPS_PROXY": f"http://me:{PROXY_PASSWORD}@proxy:3128",
        "NO_PROXY": "127.0.0.1",
        "SHARDSIFT_STATE_DIR": str(tmp_path / "state"),
    }


@pytest.fixture
def run(redis_url: str) -> str:
    """A run with a failed shard, whose traceback an earlier version stored as it was."""
    ledger = Ledger.connect(Settings(redis_url=redis_url))
    ledger.create_run(SPEC, [a_shard("a"), a_shard("b")], now=0)
    claim = ledger.claim(SPEC.run_id, "a", "w1@host/7")
    assert isinstance(claim, Claim)
    ledger.fail(claim, "It cannot be read.", "")
    ledger.redis.hset(Keys(SPEC.run_id).attempts("a"), "traceback", TRACEBACK)
    worker = WorkerState(
        name="w1@host/7",
        queue=SPEC.queue,
        model=f"https://me:{AWS_SESSION}@models/x",
        revision="1",
        dtype="auto",
        activity="ready",
        activity_seconds=1.0,
    )
    announce(ledger.redis, worker)
    return SPEC.run_id


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs with secrets. In the longest, one lies where its end begins."""
    folder = tmp_path / "state" / "logs"
    folder.mkdir(parents=True)
    (folder / "worker-0.log").write_text(
        f"INFO ready\nERROR {TRACEBACK}Authorization: Bearer {OTHERS_TOKEN}\nredis says {PASSWORD!r} {QUOTED}\n"
        f"{json.dumps({'token': TOKEN, 'secret': AWS_SECRET})}\nINFO the last line\n"
    )
    end = "x" * (256 << 10)
    for cut in range(1, 40, 6):
        (folder / f"long-{cut}.log").write_text(f"begin\nGET {SIGNED}\n{end[cut + len(SIGNATURE) // 2 :]}\n")
    return folder


def content_of(archive: Path) -> dict[str, Any]:
    """The archive's files by name, without its folder."""
    with tarfile.open(archive) as tar:
        files = {name.partition("/")[2]: tar.extractfile(name) for name in tar.getnames()}
        texts = {name: file.read().decode() for name, file in files.items() if file}
    return {name: json.loads(text) if name.endswith(".json") else text for name, text in texts.items()}


@pytest.mark.usefixtures("no_hub", "logs")
def test_the_archive_tells_what_happened_and_holds_no_secret(
    environment: dict[str, str], run: str, tmp_path: Path
) -> None:
    archive = tmp_path / "dump.tar.gz"

    done = call_command("producer", "debug-dump", run, "--output", archive, environment=environment)

    every_byte = gzip.decompress(archive.read_bytes()).decode(errors="replace") + done.stdout + done.stderr
    assert (done.returncode, done.stdout) == (0, f"{archive}\n")
    assert [secret for secret in (*SECRETS, SIGNATURE[:10], SIGNATURE[10:]) if secret in every_byte] == []
    found = content_of(archive)
    assert all(f"{name}  " in found["README.txt"] for name in found if name.endswith(".json"))
    assert all(f"dump/{name} (" in done.stderr for name in found)
    assert "Look into it before you send it" in done.stderr
    assert found["versions.json"]["shardsift"]
    assert found["settings.json"]["set"]["max_batch_tokens"] == 4096
    assert found["settings.json"]["default"]["max_attempts"] == 3
    assert found["settings.json"]["set"]["redis_url"].startswith("redis://***@127.0.0.1:")
    assert found["environment.json"]["AWS_SECRET_ACCESS_KEY"] == "***"
    assert found["environment.json"]["AWS_REGION"] == "eu-central-1"
    assert {"redis", "hub"} <= {line["check"] for line in found["doctor.json"]}
    assert found["run.json"]["spec"]["where"] == SPEC.where
    assert found["run.json"]["counts"]["failed"] == 1
    assert found["run.json"]["receipts"] == 0
    assert found["run.json"]["failures"][0]["error"] == "It cannot be read."
    assert "OSError: 403 for" in found["run.json"]["failures"][0]["traceback"]
    assert found["workers.json"][0]["name"] == "w1@host/7"
    assert found["redis_info.json"]["memory"]["used_memory"] > 0
    assert found["logs/worker-0.log"].endswith("INFO the last line\n")
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600


@pytest.mark.usefixtures("no_hub")
def test_a_training_is_told_with_its_losses_attempts_and_error_and_without_secrets(
    environment: dict[str, str], redis_url: str, tmp_path: Path
) -> None:
    archive, trainings = tmp_path / "dump.tar.gz", Ledger.connect(Settings(redis_url=redis_url)).trainings
    training, other = create_training(trainings, "mine"), create_training(trainings, "newer", now=1)
    claim = claim_training(trainings, training)
    trainings.renew(claim, rows=384, report=training_report())
    trainings.record_crash(claim, f"It has crashed with {AWS_SECRET}.", TRACEBACK)
    trainings.redis.hset(Keys(training, "training").attempts(WHOLE), "traceback", TRACEBACK)  # as an earlier version
    trainings.renew(claim_training(trainings, other), rows=384, report=training_report())

    done = call_command("producer", "debug-dump", training, "--output", archive, environment=environment)
    newest = call_command("producer", "debug-dump", "--output", tmp_path / "newest.tar.gz", environment=environment)

    every_byte = gzip.decompress(archive.read_bytes()).decode(errors="replace") + done.stdout + done.stderr
    assert (done.returncode, newest.returncode) == (0, 0), done.stderr
    assert [secret for secret in SECRETS if secret in every_byte] == []
    found = content_of(archive)
    assert all(f"{name}  " in found["README.txt"] for name in found if name.endswith(".json"))
    assert "run.json" not in found  # there is no run
    told = found["training.json"]
    assert (told["training_id"], told["state"]) == (training, "queued")
    assert told["training"]["spec"]["base_model"] == "/mnt/base"
    assert (told["retry"]["attempts"], told["retry"]["crashes"]) == (1, 1)
    assert told["retry"]["error"] == "It has crashed with ***."
    assert "OSError: 403 for" in told["retry"]["traceback"]
    assert [(one["run_id"], one["state"], one["loss"]) for one in found["trainings.json"]] == [
        (other, "running", 0.75),
        (training, "queued", 0.75),
    ]
    of_newest = content_of(tmp_path / "newest.tar.gz")["training.json"]
    assert of_newest["training_id"] == other
    assert of_newest["progress"]["losses"][0] == {"step": 8, "loss": 1.1, "held_out_loss": 0.9}


@pytest.mark.usefixtures("no_hub")
def test_an_unknown_training_is_an_error_as_for_other_commands(environment: dict[str, str], tmp_path: Path) -> None:
    archive, unknown = tmp_path / "dump.tar.gz", "train-nosuch.0123456789ab"

    done = call_command("producer", "debug-dump", unknown, "--output", archive, environment=environment)
    status = call_command("producer", "status", unknown, environment=environment)

    assert (done.returncode, status.returncode) == (2, 2)
    assert f"The ledger has no training '{unknown}'" in done.stderr
    assert f"The ledger has no training '{unknown}'" in status.stderr
    assert not archive.exists()


@pytest.mark.usefixtures("no_hub")
def test_an_unknown_run_or_an_existing_file_is_an_error_and_leaves_nothing(
    environment: dict[str, str], run: str, tmp_path: Path
) -> None:
    archive, existing = tmp_path / "dump.tar.gz", tmp_path / "existing.tar.gz"
    existing.write_text("kept")

    unknown = call_command("producer", "debug-dump", "nosuch", "--output", archive, environment=environment)
    again = call_command("producer", "debug-dump", run, "--output", existing, environment=environment)

    assert (unknown.returncode, again.returncode) == (2, 2)
    assert "The ledger has no run 'nosuch'" in unknown.stderr
    assert "Choose another --output" in again.stderr
    assert (archive.exists(), existing.read_text()) == (False, "kept")


@pytest.mark.usefixtures("no_hub")
def test_without_a_redis_the_rest_is_written(environment: dict[str, str], tmp_path: Path) -> None:
    archive = tmp_path / "dump.tar.gz"
    environment["REDIS_URL"] = "redis://127.0.0.1:1/0"

    done = call_command("producer", "debug-dump", "--output", archive, environment=environment)

    found = content_of(archive)
    assert done.returncode == 0
    assert next(line for line in found["doctor.json"] if line["check"] == "redis")["result"] == "wrong"
    assert "machine.json" in found
    assert "run.json" not in found


@pytest.mark.usefixtures("no_hub")
def test_a_part_that_cannot_be_read_gives_its_reason(redis_url: str, run: str, tmp_path: Path) -> None:
    settings = Settings(redis_url=redis_url, state_dir=tmp_path)
    Ledger.connect(settings).redis.hset(Keys(run).run, "spec", "{}")

    found = {entry.name: entry.content for entry in entries(settings, run)}

    assert list(found["run.json"]) == ["left out"]
    assert [told["run_id"] for told in found["runs.json"]] == [run]
    assert "left out" in found["runs.json"][0]


def test_the_state_of_all_runs_is_told_with_the_attempts_and_errors_of_their_failed_shards(
    redis_url: str, run: str, tmp_path: Path
) -> None:
    settings = Settings(redis_url=redis_url, state_dir=tmp_path)
    ledger = Ledger.connect(settings)
    newer = a_spec(where="score >= 1.5")
    ledger.create_run(newer, [a_shard("c")], now=1)
    ledger.redis.hset(Keys(run).attempts("a"), mapping={"crashes": 2, "errors": 1})

    found = {entry.name: entry.content for entry in entries(settings, run)}

    states = {told["run_id"]: told for told in found["runs.json"]}
    assert list(states) == [newer.run_id, run]
    assert (states[newer.run_id]["state"], states[newer.run_id]["counts"]["queued"]) == (
        "running",
        1,
    )  # a worker is ready
    (failure,) = states[run]["failures"]
    assert (failure["shard"], failure["attempts"], failure["error"]) == ("a", 1, "It cannot be read.")
    assert (failure["crashes"], failure["errors"]) == (2, 1)
    assert states[run]["failures"][0] | {"traceback": TRACEBACK} == found["run.json"]["failures"][0]


@pytest.mark.parametrize("has_logs", [True, False])
def test_it_says_how_to_collect_the_logs_that_it_cannot_hold(tmp_path: Path, has_logs: bool) -> None:
    if has_logs:
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs/worker-0.log").write_text("INFO ready\n")

    told = readme(Settings(state_dir=tmp_path))

    assert ("No logs lie in" in told) is not has_logs
    assert "docker compose logs" in told
    assert "journalctl --unit 'shardsift-*'" in told


@pytest.mark.parametrize(
    ("environment", "text", "shown"),
    [
        ({"MY_PASSWORD": "s3cret-1"}, "with s3cret-1", "with ***"),
        ({"OPENAI_API_KEY": "s3cret-1"}, "s3cret-1s3cret-1", "******"),
        ({"DB": "postgres://me:s3cret%2F1@host/x"}, "s3cret/1 and s3cret%2F1", "*** and ***"),
        ({"SHARDSIFT_MAX_BATCH_TOKENS": "4096"}, "4096 tokens", "4096 tokens"),
        ({"TOKENIZERS_PARALLELISM": "true", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "true"}, "true", "true"),
        ({"HF_TOKEN_PATH": "/run/secrets/hf", "REDIS_PASSWORD_FILE": "/run/p"}, "/run/secrets/hf", "/run/secrets/hf"),
        ({"API_KEY": "abc"}, "abcabc", "abcabc"),  # too short to be a secret, and its places would show it
    ],
)
def test_a_secret_of_the_environment_goes_wherever_it_stands(
    environment: dict[str, str], text: str, shown: str
) -> None:
    assert Cleaner(Settings(), environment).value({"a": [text], text: 1}) == {"a": [shown], shown: 1}


def test_the_default_name_is_a_new_file_in_this_folder(tmp_path: Path) -> None:
    environment = {"REDIS_URL": "redis://127.0.0.1:1/0", "SHARDSIFT_STATE_DIR": str(tmp_path / "state")}

    done = call_command("producer", "debug-dump", environment=environment, folder=tmp_path)

    (archive,) = tmp_path.glob("*.tar.gz")
    assert done.stdout.strip() == archive.name
    assert archive.name.startswith("shardsift-debug-")
    assert list(tmp_path.iterdir()) == [archive]
