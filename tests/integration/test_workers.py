"""The records in which workers announce what they are doing."""

import redis

from shardsift.fleet.presence.announcements import ALIVE_SECONDS, announce, list_workers
from shardsift.worker.service.announcer import Announcer
from support.fleet import Fleet
from support.records import a_worker
from support.waiting import wait_until


def test_a_silent_worker_is_forgotten(fleet: Fleet) -> None:
    client = fleet.ledger.redis
    announce(client, a_worker())
    announce(client, a_worker(name="gone@host/8"))

    assert 0 < client.pttl("shardsift:worker:gone@host/8") <= ALIVE_SECONDS * 1000
    client.pexpire("shardsift:worker:gone@host/8", 1)
    wait_until(lambda: list_workers(client) == [a_worker()], description="the silent worker is left out", seconds=5)

    assert client.smembers("shardsift:workers") == {"w1@host/7"}


def test_a_record_of_another_shape_is_skipped(fleet: Fleet) -> None:
    client: redis.Redis = fleet.ledger.redis
    announce(client, a_worker())
    announce(client, a_worker(name="odd@host/8"))
    client.set("shardsift:worker:odd@host/8", '{"kind": "of another shape"}')

    assert list_workers(client) == [a_worker()]


def test_a_worker_that_withdraws_is_removed_at_once_and_stays_removed(fleet: Fleet) -> None:
    client = fleet.ledger.redis
    announcer = Announcer(client, a_worker(activity="loading"))
    wait_until(lambda: len(list_workers(client)) == 1, description="the worker is announced", seconds=5)

    announcer.withdraw()
    announcer.see("cpu", None, is_stopping=False)

    wait_until(lambda: list_workers(client) == [], description="it is removed", seconds=5)
    assert client.keys("shardsift:worker*") == []
