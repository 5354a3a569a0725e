"""The ledger and its model agree on random calls. `make ledger-model` makes two hundred times as many."""

import random

from support.ledger_machine import check_ledger


def test_ledger_and_model_agree_on_hundreds_of_random_steps(redis_url: str) -> None:
    assert check_ledger(redis_url, steps=500, seed=random.randrange(1_000_000)) >= 500
