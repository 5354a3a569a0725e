"""A watch follows the settings, ends silently when it is stopped, and uses neither a proxy nor a heavy import."""

import subprocess
import sys
import threading

import pytest

from fleet.process.settings import Settings
from support.metadata_services import POLL_SECONDS, GcpService, Reply, Service, polled, serving, watching
from support.processes import call_command
from support.waiting import wait_until
from worker.service.spot import Notice, start_watching, watch_for_notice


def test_a_callback_that_fails_is_logged_and_not_called_again(
    gcp: GcpService, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Notice] = []

    def fail(notice: Notice) -> None:
        calls.append(notice)
        raise RuntimeError("no child to stop")

    gcp.give_notice()
    watch = watch_for_notice("gcp", address=gcp.address, on_notice=fail, poll_seconds=POLL_SECONDS)
    wait_until(lambda: not watch.is_running, description="the watch has ended")

    assert len(calls) == 1
    assert "no child to stop" in caplog.text


def test_a_watch_that_is_stopped_ends_silently(cloud: str, service: Service) -> None:
    with watching(cloud, service.address) as watched:
        polled(service)
        watched.watch.stop()
        watched.has_ended()
        asked = len(service.asked)
        service.give_notice()

    assert watched.notices == []
    assert len(service.asked) == asked


def test_a_notice_that_comes_after_the_stop_is_ignored(gcp: GcpService) -> None:
    late = threading.Event()
    gcp.misbehaviour = lambda handler: (late.wait(20), handler.answer(Reply(body="TRUE")))[1]

    with watching("gcp", gcp.address) as watched:
        polled(gcp, times=1)
        watched.watch.stop()
        late.set()
        watched.has_ended()

    assert watched.notices == []


def test_a_proxy_of_the_environment_is_not_used(gcp: GcpService, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("gcp") as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.address)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        gcp.give_notice()

        with watching("gcp", gcp.address) as watched:
            watched.notice()

    assert proxy.asked == []


class TestSettings:
    def test_the_cloud_of_the_settings_is_watched_at_their_address(self, cloud: str, service: Service) -> None:
        service.give_notice()
        notices: list[Notice] = []

        watch = start_watching(Settings(spot_notice=cloud, spot_notice_address=service.address), notices.append)

        assert watch is not None
        wait_until(lambda: not watch.is_running, description="the watch has ended")
        assert [notice.cloud for notice in notices] == [cloud]

    def test_no_service_is_queried_unless_a_cloud_is_named(self, gcp: GcpService) -> None:
        gcp.give_notice()

        watch = start_watching(Settings(spot_notice=None, spot_notice_address=gcp.address), pytest.fail)

        assert watch is None
        assert [thread for thread in threading.enumerate() if thread.name.startswith("spot notice")] == []
        assert gcp.asked == []

    def test_an_unknown_cloud_is_an_error_of_one_line(self) -> None:
        done = call_command("worker", "start", environment={"SHARDSIFT_SPOT_NOTICE": "oracle"})

        assert done.returncode == 2
        assert done.stderr.startswith("worker: The environment variable SHARDSIFT_SPOT_NOTICE has a wrong value")
        assert len(done.stderr.splitlines()) == 1


def test_the_light_process_of_a_worker_can_import_it() -> None:
    code = (
        "import sys, worker.service.spot; "
        "sys.exit(', '.join(sorted({'torch', 'transformers', 'numpy', 'pyarrow'} & set(sys.modules))) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
