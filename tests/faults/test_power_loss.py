"""Redis loses power, and its disk lacks the last writes or is as old as its last copy. `make power-loss` runs many trials."""

from pathlib import Path

import pytest

from chaos.power_loss import power_losses

TRIALS, SEED = 5, 3


@pytest.mark.faults
def test_runs_in_which_redis_loses_power_are_published_whole(tmp_path: Path) -> None:
    trials = power_losses(tmp_path, seed=SEED, count=TRIALS, arenas=1)

    assert [trial for trial in trials if trial.broken] == []
    assert len(trials) == TRIALS
    assert any("cut" in trial.loss for trial in trials)
    assert any("copy" in trial.loss for trial in trials)
