"""Gradient accumulation in a loop, and `worker train --accumulate`, on the same rows.

    python examples/training/gradient_accumulation.py --model ./my-encoder --data ./labelled.parquet --label-column topic

Four batches of 8 rows should train as one of 32, in less memory. `loss / 4` does that while each step has 4 batches of 8 rows.
The last step of an epoch has fewer, and the loop makes its gradient too small; `worker train` divides by the rows of the step.
"""

import math

from torch.nn.utils import clip_grad_norm_
from train_side_by_side import EPOCHS, Case, Way

case = Case(__doc__)


def loop(rows: int, accumulate: int) -> tuple[float, float]:
    batches = math.ceil(len(case.learned) / rows)
    model, optimizer, scheduler = case.begin(math.ceil(batches / accumulate))
    for epoch in range(EPOCHS):
        for number, batch in enumerate(case.batches(rows, epoch), start=1):
            loss = model(**case.on_device(batch)).loss / accumulate
            loss.backward()
            if number % accumulate == 0 or number == batches:
                clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    return case.measured(model)


case.compare(
    Way(name="loop, 4 batches of 8, loss / 4", train=lambda: loop(8, 4), is_exact=False),
    Way(name="loop, batches of 32", train=lambda: loop(32, 1)),
    case.ours(batch_rows=8, accumulate=4),
    case.ours(batch_rows=32),
)
