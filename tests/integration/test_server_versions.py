"""Which servers the ledger is promised to work on; the suite runs on the one that it finds, and says which."""

from fleet.ledger import Ledger
from support.redis_servers import version_found, version_of

SUPPORTED = {"Redis": ((6, 2), (9,)), "Valkey": ((8,), (10,))}  # from, and up to but not including


def test_the_suite_runs_on_a_server_that_is_supported(ledger: Ledger) -> None:
    server = version_of(ledger.redis)

    first, end = SUPPORTED[server.name]

    assert first <= server.version < end, f"the ledger of these tests is on {server}"


def test_the_server_that_the_report_names_is_the_one_that_runs(ledger: Ledger) -> None:
    assert version_found() == version_of(ledger.redis)
