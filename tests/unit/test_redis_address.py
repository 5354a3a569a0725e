"""One URL is one server: the ledger's client and Celery connect to the same place, or the URL is refused."""

from typing import Any

import pytest
import redis
from flower.utils.broker import Broker
from kombu import Connection

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.redis_address import RedisAddress, redis_address
from shardsift.fleet.process.settings import Settings

ODD_PASSWORD = "p@ss/w:rd; #1%?&é"
ENCODED = "p%40ss%2Fw%3Ard%3B%20%231%25%3F%26%C3%A9"
_COMPARED = (
    *("host", "port", "path", "db", "username", "password"),
    *("ssl_cert_reqs", "ssl_ca_certs", "ssl_check_hostname"),
)

URLS = {
    "redis://host": RedisAddress(host="host"),
    "  redis://host:7000/3\n": RedisAddress(host="host", port=7000, database=3),
    "redis:///2": RedisAddress(database=2),
    "redis://host/?db=2": RedisAddress(host="host", database=2),
    f"redis://us%65r:{ENCODED}@host": RedisAddress(host="host", username="user", password=ODD_PASSWORD),
    f"redis://host?username=user&password={ENCODED}": RedisAddress(host="host", username="user", password=ODD_PASSWORD),
    "redis://[::1]:7000/1": RedisAddress(host="::1", port=7000, database=1),
    "unix:///run/redis.sock": RedisAddress(socket="/run/redis.sock"),
    "unix:///run/a%20redis.sock?db=4": RedisAddress(socket="/run/a redis.sock", database=4),
    f"unix://user:{ENCODED}@/run/redis.sock": RedisAddress(
        socket="/run/redis.sock", username="user", password=ODD_PASSWORD
    ),
    "rediss://host": RedisAddress(host="host", tls={"ssl_cert_reqs": "required", "ssl_check_hostname": True}),
    "rediss://host?ssl_cert_reqs=none": RedisAddress(
        host="host", tls={"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    ),
    "rediss://host/1?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs=/etc/a%20b.pem&ssl_check_hostname=False": RedisAddress(
        host="host",
        database=1,
        tls={"ssl_cert_reqs": "required", "ssl_check_hostname": False, "ssl_ca_certs": "/etc/a b.pem"},
    ),
}


def connection_of(client: redis.Redis) -> dict[str, Any]:
    """How a client would connect."""
    connection = client.connection_pool.make_connection()
    return {name: "" if (value := getattr(connection, name, None)) is None else value for name in _COMPARED}


def broker_client(broker: Connection) -> redis.Redis:
    """Celery's client. Its own way to make one would connect."""
    transport = broker.create_transport()
    channel = object.__new__(transport.Channel)
    channel.connection = transport
    return redis.Redis(connection_pool=redis.ConnectionPool(**channel._connparams()))


@pytest.mark.parametrize("url", URLS)
def test_the_ledger_and_celery_and_flower_connect_to_the_same_server(url: str) -> None:
    address = redis_address(url, None)
    broker = make_app("test", Settings(redis_url=url), is_current=False).connection_for_write()

    of_ledger = connection_of(redis.Redis.from_url(address.url))
    of_celery = connection_of(broker_client(broker))

    assert address == URLS[url]
    assert of_celery == of_ledger
    if not address.socket:  # with a socket, its page of the queues knows database 0 and no user only
        of_flower = Broker(broker.as_uri(include_password=True), broker_use_ssl=address.tls).redis
        assert connection_of(of_flower) == of_ledger
    assert (of_ledger["path"] or None, of_ledger["db"]) == (address.socket, address.database)
    assert (of_ledger["password"] or None) == address.password
    assert redis_address(address.url, None) == address, "as a child process gets it"
    assert "p@ss" not in f"{address}{address!r}"


def test_a_password_from_a_file_opens_a_url_without_one() -> None:
    assert redis_address("redis://user@host", ODD_PASSWORD).password == ODD_PASSWORD
    assert redis_address("redis://:mine@host", ODD_PASSWORD).password == "mine"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://host/0?socket_timeout=5", "socket_timeout"),
        ("redis://host?ssl_cert_reqs=none", "Write rediss://"),
        ("rediss://host?ssl_cert_reqs=maybe", "required, optional or none"),
        ("sentinel://host:26379/0", "Sentinel"),
        ("redis://host/zero", "not a valid"),
        ("redis://host/1?db=2", "not a valid"),
        ("redis://host:99999", "not a valid"),
        ("redis://host#0", "not a valid"),
        ("redis://ho st", "not a valid"),
        ("redis://:s3cret?s3cret=s3cret@host", "REDIS_URL"),
        ("redis://:s3cret/x@host", "REDIS_URL"),
        ("redis://:s3cret#x@host/0", "REDIS_URL"),
        ("http://:s3cret@host:1", "not a valid"),
        ("unix://", "not a valid"),
        ("", "not a valid"),
    ],
)
def test_what_both_cannot_read_alike_is_refused_before_anything_is_asked(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        redis_address(url, None)

    assert "s3cret" not in str(refused.value)
