"""Chaos tests: a fleet of real processes does run after run, while faults are injected as fast as it can still progress.

    make faults SECONDS=60 SEED=1
    make power-loss TRIALS=300 SEED=1

Each run must end published, with the bytes of an undisturbed run. Start with `storm.py`, which has the main loop.
`victims.py` injects the faults, `schedule.py` decides when, `invariants.py` checks what must hold, and `recovery.py` and
`redone.py` compute what the faults cost. Power losses are a separate program with a simulated fleet: `power_loss.py`,
`arena.py`, `power.py` and `simulated.py`.
"""
