"""A DataLoader with processes and a `collate_fn`, and `worker train --loader-processes`, on the same rows.

    python examples/training/data_loading.py --model ./my-encoder --data ./labelled.parquet --label-column topic

The loops tokenise each text again in each epoch. The first pads a batch to its longest text. The second, which many tutorials
have, pads every text to the longest length that there may be, so the model computes more. `worker train` tokenises once.
"""

import math
from collections.abc import Callable
from typing import Any

from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset
from train_side_by_side import EPOCHS, MAX_TOKENS, Case, Way

ROWS = 16  # per batch
PROCESSES = 2

case = Case(__doc__)
options = {"batch_size": ROWS, "num_workers": PROCESSES, "pin_memory": case.device == "cuda"}


class PaddedTexts(Dataset):
    def __len__(self) -> int:
        return len(case.learned)

    def __getitem__(self, row: int) -> dict[str, Any]:
        limits = {"padding": "max_length", "truncation": True, "max_length": MAX_TOKENS}
        encoded = case.tokenizer(case.learned[row]["text"], return_tensors="pt", **limits)
        return {**{name: values[0] for name, values in encoded.items()}, "labels": case.learned[row]["label"]}


def by_batch(epoch: int) -> DataLoader:
    return DataLoader(case.learned, sampler=case.order(epoch), collate_fn=case.collate, **options)


def by_text(epoch: int) -> DataLoader:
    return DataLoader(PaddedTexts(), sampler=case.order(epoch), **options)


def loop(batches: Callable[[int], DataLoader]) -> tuple[float, float]:
    model, optimizer, scheduler = case.begin(math.ceil(len(case.learned) / ROWS))
    for epoch in range(EPOCHS):
        for batch in batches(epoch):
            model(**case.on_device(batch)).loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return case.measured(model)


case.compare(
    Way(name=f"DataLoader, {PROCESSES} processes, collate_fn", train=lambda: loop(by_batch)),
    Way(name=f"DataLoader, {PROCESSES} processes, padded to {MAX_TOKENS}", train=lambda: loop(by_text)),
    case.ours(batch_rows=ROWS, loader_processes=PROCESSES),
    case.ours(batch_rows=ROWS),
)
