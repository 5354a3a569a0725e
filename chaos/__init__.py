"""Chaos tests: a fleet of real processes does run after run, while faults are injected as fast as it can still progress.

    make faults SECONDS=60 SEED=1
    make power-loss TRIALS=300 SEED=1

Each run must end published, with the bytes of an undisturbed run. Start with `storm.py`, which has the main loop.
`faults.py` decides which faults happen and when, `victims.py` injects them, and `invariants.py` checks what must hold.
Power losses are a separate program with a simulated fleet: `power_loss.py`, `power.py` and `simulated.py`.
"""
