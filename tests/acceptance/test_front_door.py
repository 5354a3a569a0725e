"""The first minutes of a user: versions, help and one-line errors."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubserver import HubServer
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import machine_redis
from support.crawls import hub_with_a_crawl
from support.fleet import Fleet
from support.ledger_states import claimed
from support.own_modules import folder_of_a_user
from support.processes import call_command, run_command
from support.records import a_receipt, a_shard, a_spec


@pytest.fixture(scope="module")
def running_hub(shards: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with hub_with_a_crawl(shards, tiny_model, tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
def hub(running_hub: HubServer, fleet: Fleet, tmp_path: Path) -> HubServer:
    """A Hub with the crawl, for a fleet without a token."""
    running_hub.forget_requests()
    fleet.environment.pop("HF_HUB_OFFLINE")
    fleet.environment.update(running_hub.client_env(tmp_path / "home"))
    return running_hub


class TestTheCommandsThemselves:
    @pytest.mark.parametrize("program", ["producer", "worker"])
    def test_each_command_says_its_version_and_answers_to_short_help(self, program: str) -> None:
        version = call_command(program, "--version", environment={})
        short, long = (call_command(program, option, environment={}) for option in ("-h", "--help"))

        assert version.stdout.startswith("shardsift 1.")
        assert (version.returncode, short.returncode) == (0, 0)
        assert short.stdout == long.stdout
        assert "Usage" in short.stdout


def test_a_retry_of_a_run_of_this_machine_names_the_command_to_repeat(machine: dict[str, str], tmp_path: Path) -> None:
    spec, done, failed = a_spec(), a_shard("a"), a_shard("b")
    with machine_redis(Settings(state_dir=tmp_path / "state", redis_url=None), create=True) as settings:
        ledger = Ledger.connect(settings)
        ledger.create_run(spec, [done, failed], now=0)
        ledger.complete(claimed(ledger, spec.run_id, done), a_receipt(spec.run_id, done))
        ledger.fail(claimed(ledger, spec.run_id, failed), "it is broken", "")
        ledger.redis.close()

    retried = call_command("producer", "retry", spec.run_id, environment=machine)

    assert retried.stderr.splitlines() == [
        f"Run {spec.run_id}: 1 shard queued again.",
        "No worker serves this run. Run the command that started it again: it goes on where it stopped.",
    ]


def test_a_retry_of_a_published_run_says_that_nothing_has_failed(fleet: Fleet) -> None:
    spec, shard = a_spec(), a_shard("a")
    ledger = fleet.ledger
    ledger.create_run(spec, [shard], now=0)
    ledger.complete(claimed(ledger, spec.run_id, shard), a_receipt(spec.run_id, shard))
    ledger.record_publication(spec.run_id, Publication(uri=spec.output_uri, commit="", shards=1))

    retried = fleet.call_producer("retry", spec.run_id)

    assert retried.returncode == 0
    assert retried.stderr.splitlines() == [
        f"Run {spec.run_id} is published, and none of its shards has failed: nothing to retry."
    ]


class TestACrawlWithoutAnOutput:
    """`producer enqueue --crawl CC-MAIN-2024-10`, exactly so."""

    COMMAND = ("enqueue", "--crawl", "CC-MAIN-2024-10")
    OUTPUT = "ada/fineweb-CC-MAIN-2024-10-fineweb-edu-classifier"

    def test_a_crawl_is_published_to_a_private_dataset_of_the_tokens_user_and_that_is_said_first(
        self, hub: HubServer, fleet: Fleet
    ) -> None:
        fleet.environment["HF_TOKEN"] = hub.token("ada")

        sent = fleet.producer(*self.COMMAND)
        again = fleet.producer(*self.COMMAND, "--json")

        assert sent.returncode == 0, sent.stderr
        assert sent.stderr.startswith(f"Publishing to hf://datasets/{self.OUTPUT} (created private; ")
        assert hub.is_private(self.OUTPUT)
        assert fleet.ledger.spec(sent.stdout.strip()).output_uri == f"hf://datasets/{self.OUTPUT}"
        assert json.loads(again.stdout) == {**json.loads(again.stdout), "run_id": sent.stdout.strip(), "added": 0}
        assert [request.path for request in hub.requests].count("/api/whoami-v2") == 2  # once per command

    @pytest.mark.slow
    def test_the_same_run_is_published_to_a_public_dataset_if_asked_for(self, hub: HubServer, fleet: Fleet) -> None:
        fleet.environment["HF_TOKEN"] = hub.token("bob")

        public = fleet.producer(*self.COMMAND, "--public")
        private = fleet.producer(*self.COMMAND)

        assert (public.returncode, private.returncode) == (0, 0), public.stderr
        assert not hub.is_private(self.OUTPUT.replace("ada/", "bob/"))
        assert public.stdout == private.stdout

    @pytest.mark.parametrize(
        ("environment", "ways"),
        [
            ({}, ("HF_TOKEN", "--output FOLDER")),
            ({"HF_TOKEN": "hf_any", "REDIS_URL": ""}, ("REDIS_URL", "`producer run`")),
        ],
        ids=["no token", "no Redis"],
    )
    def test_without_a_token_or_a_redis_both_ways_on_are_named_and_the_hub_is_not_asked(
        self, environment: dict[str, str], ways: tuple[str, str], hub: HubServer, fleet: Fleet
    ) -> None:
        fleet.environment |= environment

        done = fleet.call_producer(*self.COMMAND)

        assert done.returncode == 2
        assert all(way in done.stderr for way in ways)
        assert done.stderr.count("\n") == 1
        assert hub.requests == []

    def test_a_token_that_the_hub_refuses_is_told_in_one_line(self, hub: HubServer, fleet: Fleet) -> None:
        fleet.environment["HF_TOKEN"] = "hf_wrong"

        done = fleet.producer(*self.COMMAND)

        assert (done.returncode, done.stderr) == (
            2,
            "producer: The Hub refuses this HF_TOKEN. Set another, or name an --output.\n",
        )

    @pytest.mark.slow  # it waits before it asks again
    def test_a_hub_that_has_trouble_once_is_asked_again(self, hub: HubServer, fleet: Fleet) -> None:
        fleet.environment["HF_TOKEN"] = hub.token("bea")
        for path in ("/api/whoami", "/branch/", "/commit/"):
            hub.fault(path, status=502)

        done = fleet.producer(*self.COMMAND)

        assert done.returncode == 0, done.stderr
        assert hub.faults_left == 0

    def test_a_hub_that_asks_for_a_long_wait_ends_it_as_not_finished_yet(self, hub: HubServer, fleet: Fleet) -> None:
        fleet.environment["HF_TOKEN"] = hub.token("cyd")
        hub.fault("/api/datasets/cyd/", status=503, headers={"Retry-After": "600"})

        done = fleet.producer(*self.COMMAND)

        assert done.returncode == 3
        assert "the Hub answered 503" in done.stderr.splitlines()[-1]
        assert done.stderr.splitlines()[-1].endswith("Run the same command again later.")

    @pytest.mark.parametrize("options", [(), pytest.param(("--output", "out"), marks=pytest.mark.slow)])
    def test_without_a_network_it_ends_at_once_in_one_line(self, fleet: Fleet, options: tuple[str, ...]) -> None:
        fleet.environment.pop("HF_HUB_OFFLINE")
        fleet.environment |= {"HF_ENDPOINT": "http://127.0.0.1:1", "HF_TOKEN": "hf_any"}

        started = time.monotonic()
        done = fleet.producer(*self.COMMAND, *options)

        assert done.returncode == 2
        assert "The Hub does not" in done.stderr
        assert done.stderr.count("\n") == 1
        assert time.monotonic() - started < 20  # what may end is tried for 23 s


def test_a_port_of_flower_that_is_taken_is_told_in_one_line(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = fleet.call_producer("flower", "--port", str(port))

    assert done.returncode == 2
    assert done.stderr == (
        f"producer: Flower cannot listen on 127.0.0.1:{port}: Address already in use. Choose another --port or --address.\n"
    )


@pytest.mark.parametrize("command", [("producer",), ("shardsift",), ("python", "-m", "shardsift")], ids=" ".join)
def test_a_command_imports_no_module_of_the_current_folder(
    command: tuple[str, ...], machine: dict[str, str], tmp_path: Path, shards: Path
) -> None:
    folder = folder_of_a_user(tmp_path, shards)

    done = run_command(*command, "runs", environment=machine, folder=folder)

    assert "there was no `producer run` here" in done.stderr
    assert not (folder / "imported").exists()
