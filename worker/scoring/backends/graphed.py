"""Run packed batches at fixed sizes: compiled once and, on a GPU, recorded as a CUDA graph, so that a batch is one launch.

A batch is filled up with dummy texts to a number of tokens, and with empty texts to a number of texts. Compiling for a size
joins the products of query, key and value, and fuses GELU and the normalisations.
"""

import logging
from collections.abc import Hashable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._dynamo import config as dynamo
from torch._inductor import config as inductor

from shardsift.worker.scoring.backends.packed import Inputs, Packed
from shardsift.worker.scoring.device import to_device
from shardsift.worker.scoring.tokenizing.tokens import Tokens

# Average and maximum tokens of a text in a batch. Other batches run packed. For every text, the attention kernel starts as many
# blocks as the longest text needs (one per 128 tokens), so batches of many texts and of long texts use different sizes.
_SIZES = ((64, 512), (16, 128))
_FULL_ENOUGH = 0.5  # of the tokens; smaller batches run packed, which is faster for them
_MOST_ERROR = 0.05  # of a logit, as for bfloat16
logger = logging.getLogger(__name__)


class Graphed:
    """A packed model at a size of `tokens`, for texts of up to `longest` tokens. A new size takes a minute to compile.

    With a CUDA graph, logits are copied before the next batch overwrites them.
    """

    name = "graphed"

    def __init__(self, packed: Packed, *, tokens: int, longest: int) -> None:
        self.packed = packed
        self._tokens = tokens
        self._longest = longest
        self._sizes = [(tokens // average, min(longest, most, tokens)) for average, most in _SIZES]
        # Without max_autotune: on an H100, cuBLAS won all large products, and trying the others took minutes.
        self._run = torch.compile(packed.run, dynamic=False, fullgraph=True)
        self._graphs: dict[Hashable, _Graph | None] = {}  # by the inputs' shapes; None: it cannot be recorded

    def of_size(self, tokens: int) -> "Graphed":
        return Graphed(self.packed, tokens=tokens, longest=self._longest)

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        for texts, longest in self._sizes:
            filled = self._filled(batch, texts, longest)
            if filled is not None:
                inputs = self.packed.inputs(batch, filled)
                here = {name: to_device(array, self.packed.device) for name, array in inputs.items()}
                if graph := self._graph_of(here, texts=len(batch), longest=longest):
                    return graph.replay(here)[: len(batch)].clone()
        return self.packed.logits(batch)

    def _filled(self, batch: Tokens, texts: int, longest: int) -> Tokens | None:
        """Pad the batch to a fixed size. Returns None if it does not fit, or is too small."""
        taken = len(batch.ids)
        dummies = np.arange(taken, self._tokens, longest)  # where they start
        fits = len(batch) + len(dummies) <= texts and batch.lengths.max() <= longest
        if not (fits and _FULL_ENOUGH * self._tokens <= taken <= self._tokens):
            return None
        offsets = np.full(texts + 1, self._tokens)
        offsets[: len(batch)] = batch.offsets[:-1]
        offsets[len(batch) : len(batch) + len(dummies)] = dummies
        free = (0, self._tokens - taken)
        types = None if batch.types is None else np.pad(batch.types, free)
        return Tokens(ids=np.pad(batch.ids, free), offsets=offsets, types=types)

    def _graph_of(self, inputs: Inputs, *, texts: int, longest: int) -> "_Graph | None":
        """The graph for inputs of these shapes. Raises if the first one cannot be recorded: the trial goes on without graphs."""
        kind = (len(inputs["starts"]), frozenset(inputs))  # with or without token types
        if kind in self._graphs:
            return self._graphs[kind]
        self._graphs[kind] = None
        try:
            # Freezing comes too late as an option of torch.compile. All models and sizes of a process compile the same function.
            with inductor.patch(freezing=True), dynamo.patch(recompile_limit=256):
                graph = _Graph(partial(self._run, longest=longest), inputs, self.packed.device)
            _check_close(graph.replay(inputs)[:texts], self.packed.run(inputs, longest=longest)[:texts])
        except Exception as error:
            if len(self._graphs) == 1:
                raise
            logger.warning("Batches of texts of up to %d tokens are not graphed: %s", longest, error)
            return None
        self._graphs[kind] = graph
        return graph


def _check_close(logits: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise RuntimeError if the logits differ from the model's. The parity gate may not have tried a batch of each size."""
    error = float((logits - expected).abs().max())
    if not error <= _MOST_ERROR * max(1.0, float(expected.abs().max())):
        raise RuntimeError(f"a logit differs by {error:.3g}")


class _Graph:
    """A recorded run, whose inputs and output have fixed addresses on the device. On a CPU the run is only compiled."""

    def __init__(self, run: Any, inputs: Inputs, device: torch.device) -> None:
        self._run = run
        self._inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type != "cuda":
            run(self._inputs)
            return
        # Compiled, warmed up and recorded on one stream, which is left even if recording fails.
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(3):
                run(self._inputs)
            self._graph = torch.cuda.CUDAGraph()
            # Other threads may fetch results meanwhile.
            with torch.cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
                self._output: torch.Tensor = run(self._inputs)
        torch.cuda.current_stream(device).wait_stream(side)

    def replay(self, inputs: Inputs) -> torch.Tensor:
        if self._graph is None:
            computed: torch.Tensor = self._run(inputs)
            return computed
        for name, place in self._inputs.items():
            place.copy_(inputs[name], non_blocking=True)
        self._graph.replay()
        return self._output
