"""Random numbers of a process for which a checkpoint has no state, because another number of processes has written it."""

from typing import Any

from transformers import TrainerCallback, set_seed

_SEEDS_APART = 1_000_003  # of two processes: more than most trainings have steps


class SeedsWithoutState(TrainerCallback):
    """The Trainer then restores the states that it finds, so a training that goes on in as many processes is not changed.

    In a new training it keeps dropout from being the same in all processes.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.process_index or state.global_step:
            set_seed((args.seed + args.process_index * _SEEDS_APART + state.global_step) % 2**32)
