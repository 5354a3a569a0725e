"""`torch.autocast` in a loop, and `worker train --dtype`, on the same rows.

    python examples/training/mixed_precision.py --model ./my-encoder --data ./labelled.parquet --label-column topic

On a GPU the loop uses float16 with a GradScaler, and bfloat16 without one; on a CPU bfloat16 alone. The weights stay in float32.
"""

import math

import torch
from train_side_by_side import EPOCHS, Case, Way

ROWS = 8  # per batch

case = Case(__doc__)
halves = (torch.float16, torch.bfloat16) if case.device == "cuda" else (torch.bfloat16,)


def loop(half: torch.dtype | None) -> tuple[float, float]:
    model, optimizer, scheduler = case.begin(math.ceil(len(case.learned) / ROWS))
    scaler = torch.amp.GradScaler(case.device, enabled=half is torch.float16)
    for epoch in range(EPOCHS):
        for batch in case.batches(ROWS, epoch):
            with torch.autocast(case.device, dtype=half, enabled=half is not None):
                loss = model(**case.on_device(batch)).loss
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad()
    return case.measured(model, half)


def autocast(half: torch.dtype) -> Way:
    dtype = str(half).removeprefix("torch.")
    return Way(name="loop, autocast", train=lambda: loop(half), dtype=dtype, is_exact=False)


case.compare(
    *map(autocast, halves),
    Way(name="loop", train=lambda: loop(None)),
    *(case.ours(batch_rows=ROWS, dtype=str(half).removeprefix("torch.")) for half in halves),
    case.ours(batch_rows=ROWS),
)
