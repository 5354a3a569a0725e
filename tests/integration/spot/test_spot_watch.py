"""A watch follows the settings, ends silently when it is stopped, and uses neither a proxy nor a heavy import."""

import subprocess
import sys
import threading

import pytest

from support.metadata_services import GcpService, Reply, polled, serving, watching


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


def test_the_light_process_of_a_worker_can_import_it() -> None:
    code = (
        "import sys, worker.service.spot; "
        "sys.exit(', '.join(sorted({'torch', 'transformers', 'numpy', 'pyarrow'} & set(sys.modules))) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
