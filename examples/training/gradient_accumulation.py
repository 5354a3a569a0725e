"""Gradient accumulation in a loop, and `worker train --accumulate`, on the same rows.

    python examples/training/gradient_accumulation.py
    python examples/training/gradient_accumulation.py --model ./my-encoder --data ./labelled.parquet --label-column topic

Four batches of 8 rows should train as one of 32, in less memory. `loss / 4` does that while each step has 4 batches of 8 rows.
The last step of an epoch has fewer, and the loop makes its gradient too small; `worker train` divides by the rows of the step.
"""

import math

import torch
from train_side_by_side import Figures, Way, arguments, compare, ours, prepared
from transformers import get_linear_schedule_with_warmup

given = arguments(__doc__)
case = prepared(given)


def loop(rows: int, accumulate: int) -> Figures:
    model = case.new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=case.learning_rate, weight_decay=0.0)
    batches = math.ceil(len(case.learned) / rows)
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, case.epochs * math.ceil(batches / accumulate))
    for epoch in range(case.epochs):
        for number, batch in enumerate(case.batches(rows, epoch), start=1):
            loss = model(**case.on_device(batch)).loss / accumulate
            loss.backward()
            if number % accumulate == 0 or number == batches:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    return case.figures_of(model)


compare(
    given,
    case,
    Way(name="loop, 4 batches of 8, loss / 4", train=lambda: loop(8, 4), is_exact=False),
    Way(name="loop, batches of 32", train=lambda: loop(32, 1)),
    ours(case, batch_rows=8, accumulation_steps=4),
    ours(case, batch_rows=32),
)
