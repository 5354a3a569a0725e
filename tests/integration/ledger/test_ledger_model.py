"""The ledger and its model agree on random calls. `make ledger-model` makes a hundred times as many."""

import random

from support.ledger_machine import check_ledger


def test_ledger_and_model_agree_on_a_thousand_random_steps(redis_url: str) -> None:
    assert check_ledger(redis_url, steps=1_000, seed=random.randrange(1_000_000)) >= 1_000
