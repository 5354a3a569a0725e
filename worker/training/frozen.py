"""Train the last layer of a model only, the recipe of HuggingFaceFW/fineweb-edu-classifier.

Everything before the last layer is frozen, so each text goes through the model once.
"""

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import torch

from worker.training.base_model import BaseModel, load_base
from worker.training.embeddings import embeddings_of, load_embedder
from worker.training.head import Head, fit_head
from worker.training.memory import peak_memory_bytes
from worker.training.spec import TrainSpec
from worker.training.splits import Split
from worker.training.trained import Trained


def train_frozen(spec: TrainSpec, split: Split, *, device: str, tell: Callable[[str], None]) -> Trained:
    """The figures are of a head that was fitted without the held-out rows; the saved head is fitted to all rows of the data.

    On the CPU of one machine, the same spec and files give the same weights, bit for bit.
    """

    def load() -> BaseModel:
        return load_base(spec.base_model, split.target)

    embedder = load_embedder(load, dtype=spec.dtype, device=device)
    began = time.monotonic()
    texts = pa.concat_arrays([split.learned.texts, split.held_out.texts])
    embeddings = embeddings_of(texts, embedder, max_tokens=spec.max_tokens, tell=tell)
    seconds = time.monotonic() - began
    learned, held_out = np.split(embeddings, [len(split.learned)])
    head = fit_head(learned, split.learned.targets, split.target, spec.class_weights)
    final = head
    if spec.validation_uri is None:
        targets = np.concatenate([split.learned.targets, split.held_out.targets])
        final = fit_head(embeddings, targets, split.target, spec.class_weights)
    return Trained(
        base=_with_head(load(), final),
        held_out_logits=head.logits(held_out),
        rows_per_second=len(texts) / seconds,
        work_seconds=seconds,
        peak_memory_bytes=peak_memory_bytes(),
        device=embedder.info.device,
        dtype=embedder.info.dtype,
    )


def _with_head(base: BaseModel, head: Head) -> BaseModel:
    layer = base.model.get_submodule(base.head)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(head.weight))
        layer.bias.copy_(torch.from_numpy(head.bias))
    return base
