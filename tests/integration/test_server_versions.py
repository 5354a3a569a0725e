"""The server versions that the ledger supports. The tests run on the server that they find, and report its version."""

from shardsift.fleet.ledger import Ledger
from support.redis_servers import version_found, version_of

SUPPORTED = {"Redis": ((6, 2), (9,)), "Valkey": ((8,), (10,))}  # first supported, and first unsupported version


def test_the_suite_runs_on_a_server_that_is_supported(ledger: Ledger) -> None:
    server = version_of(ledger.redis)

    first, end = SUPPORTED[server.name]

    assert first <= server.version < end, f"the ledger of these tests is on {server}"


def test_the_server_that_the_report_names_is_the_one_that_runs(ledger: Ledger) -> None:
    assert version_found() == version_of(ledger.redis)
