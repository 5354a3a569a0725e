"""Which of several processes this is. `torchrun` and `accelerate launch` start one for each GPU. Knows no torch."""

import os


def process_count() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))


def is_first_process() -> bool:
    """Only the first one writes and prints."""
    return int(os.environ.get("RANK", 0)) == 0
