"""Chaos tests: a fleet of real processes does run after run while faults are injected as fast as it can still progress.

    make faults SECONDS=60 SEED=1
    make power-loss TRIALS=300 SEED=1

Each run must end published, with the bytes of an undisturbed one. Read `storm.py` first: it is the whole story; `faults.py`
says what is done to whom, `schedule.py` when, `invariants.py` what must hold, `recovery.py` and `redone.py` what it cost.
Power losses are a program of their own, with a simulated fleet: `power_loss.py`, `arena.py`, `power.py`, `simulated.py`.
"""
