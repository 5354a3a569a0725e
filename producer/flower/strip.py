"""The strip of a run: its shards in name order, one cell each, or one cell for several shards of a large run."""

import math
from collections import Counter
from collections.abc import Sequence

from fleet.ledger.shard_states import ShardStates

MOST_CELLS = 2000


def shards_per_cell(shards: int) -> int:
    return max(1, math.ceil(shards / MOST_CELLS))


def strip(names: Sequence[str], states: ShardStates) -> dict[str, object]:
    """The cells as JSON: the first and the last shard of each, and how many are in each state. `names` are sorted."""
    size = shards_per_cell(len(names))
    return {
        "shards_per_cell": size,
        "cells": [_cell(names[first : first + size], states) for first in range(0, len(names), size)],
    }


def _cell(names: Sequence[str], states: ShardStates) -> dict[str, object]:
    return {"first": names[0], "last": names[-1], **Counter(map(states.of, names))}
