"""If a library's error contains a signed URL, its secrets do not reach the ledger, events or logs."""

import traceback
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from celery import Celery

from shardsift.fleet.ledger import Claim, Ledger
from support.ledger_states import claimed
from support.records import a_shard, a_spec
from support.waiting import wait_until

SECRET = "s3cret-of-mine"
SIGNED = f"https://bucket.s3.amazonaws.com/a.parquet?X-Amz-Expires=60&X-Amz-Signature={SECRET}"
SHOWN = "https://bucket.s3.amazonaws.com/a.parquet?***"


@pytest.fixture
def trace() -> str:
    """The traceback of our error, caused by a library's error."""
    try:
        try:
            raise OSError(f"403 Forbidden for url: {SIGNED}")
        except OSError as error:
            raise RuntimeError(f"Reading {SIGNED} failed") from error
    except RuntimeError:
        return traceback.format_exc()


@pytest.fixture
def claim(ledger: Ledger) -> Claim:
    spec, shard = a_spec(), a_shard()
    ledger.create_run(spec, [shard], now=0)
    return claimed(ledger, spec.run_id, shard)


def report_crash(ledger: Ledger, claim: Claim, error: str, trace: str) -> None:
    """As the parent of a dead process does."""
    ledger.report_crash(claim.run_id, claim.shard.name, "w1", error, trace)


@pytest.mark.parametrize("end", [Ledger.fail, Ledger.retry_later, Ledger.record_crash, report_crash])
def test_a_failed_attempt_is_stored_without_it(ledger: Ledger, claim: Claim, trace: str, end: Any) -> None:
    end(ledger, claim, f"Reading {SIGNED}", trace)

    stored = ledger.redis.hgetall(f"shardsift:run:{claim.run_id}:attempts:{claim.shard.name}")
    assert stored["error"] == f"Reading {SHOWN}"
    assert SHOWN in stored["traceback"]
    assert SECRET not in str(stored)


def test_why_publishing_did_not_land_is_stored_without_it(ledger: Ledger, claim: Claim) -> None:
    ledger.record_publish_error(claim.run_id, f"The Hub answered 503 for {SIGNED}.")

    assert ledger.state(claim.run_id).publish_error == f"The Hub answered 503 for {SHOWN}"


@pytest.fixture
def events(app: Celery) -> Iterator[list[dict[str, Any]]]:
    """The events that every client of the broker sees, such as Flower."""
    seen: list[dict[str, Any]] = []
    with app.connection() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": seen.append})
        thread = Thread(target=lambda: receiver.capture(limit=None, timeout=30), daemon=True)
        thread.start()
        wait_until(lambda: app.control and _is_heard(app, seen), description="events arrive")
        yield seen
        receiver.should_stop = True
        thread.join()


def _is_heard(app: Celery, seen: list[dict[str, Any]]) -> bool:
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send("task-progress", result="hello")
    return bool(seen)


def test_an_event_shows_an_error_and_causes_without_it(app: Celery, events: list[dict[str, Any]], trace: str) -> None:
    with app.events.default_dispatcher() as dispatcher:
        dispatcher.send("task-failed", uuid="1", exception=f"OSError('{SIGNED}')", traceback=trace)
        dispatcher.publish("task-progress", {"uuid": "2", "result": f"at {SIGNED}"}, dispatcher.producer)

    wait_until(lambda: any(event.get("uuid") == "2" for event in events), description="both events arrive")
    (failed,) = (event for event in events if event["type"] == "task-failed")
    assert failed["exception"] == f"OSError('{SHOWN}')"
    assert "RuntimeError: Reading" in failed["traceback"]
    assert SHOWN in failed["traceback"]
    assert SECRET not in str(events)
