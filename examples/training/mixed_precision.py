"""`torch.autocast` in a loop, and `worker train --dtype`, on the same rows.

    python examples/training/mixed_precision.py
    python examples/training/mixed_precision.py --model ./my-encoder --data ./labelled.parquet --label-column topic

On a GPU the loop uses float16 with a GradScaler, and bfloat16 without one; on a CPU bfloat16 alone. The weights stay in float32.
"""

import math

import torch
from train_side_by_side import Figures, Way, arguments, compare, ours, prepared
from transformers import get_linear_schedule_with_warmup

ROWS = 8  # of a batch

given = arguments(__doc__)
case = prepared(given)
halves = (torch.float16, torch.bfloat16) if case.device == "cuda" else (torch.bfloat16,)


def loop(half: torch.dtype | None) -> Figures:
    model = case.new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=case.learning_rate, weight_decay=0.0)
    scaler = torch.amp.GradScaler(case.device, enabled=half is torch.float16)
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, case.epochs * math.ceil(len(case.learned) / ROWS))
    for epoch in range(case.epochs):
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
    return case.figures_of(model, half)


def autocast(half: torch.dtype) -> Way:
    dtype = str(half).removeprefix("torch.")
    return Way(name="loop, autocast", train=lambda: loop(half), dtype=dtype, is_exact=False)


compare(
    given,
    case,
    *map(autocast, halves),
    Way(name="loop", train=lambda: loop(None)),
    *(ours(case, batch_rows=ROWS, dtype=str(half).removeprefix("torch.")) for half in halves),
    ours(case, batch_rows=ROWS),
)
