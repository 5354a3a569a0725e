"""Run packed batches at fixed sizes: compiled once and, on a GPU, recorded as a CUDA graph, so that a batch is one launch.

Dummy texts fill a batch up to the number of tokens, and empty texts up to the number of texts. Compiling for a fixed
size joins the products of query, key and value, and fuses GELU and the normalisations.
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

# Average and maximum tokens of a text in a batch. The first size that fits is used; other batches run packed. The
# attention kernel starts as many blocks for each text as the longest one needs (one per 128 tokens), and an empty block
# costs time too, so batches of many texts and of long texts have different sizes. Only models that read more than 512
# tokens use the last two.
_SIZES = ((256, 512), (64, 512), (16, 128), (512, 2_048), (2_048, 8_192))
_FULL_ENOUGH = 0.5  # share of the tokens; smaller batches are faster if they run packed
_MOST_ERROR = 0.05  # of a logit, as in bfloat16
logger = logging.getLogger(__name__)


class Graphed:
    """Runs a packed model at fixed sizes. Dummy texts fill a batch up to `tokens` tokens.

    Each of the five sizes limits the number of texts in a batch and the tokens of a text. `longest` is the highest
    limit for a text. The first batch of each size takes a minute to compile. A batch that exceeds the limits of all
    sizes, or has less than half of `tokens`, runs packed. With a CUDA graph, logits are copied before the next batch
    overwrites them.
    """

    def __init__(self, packed: Packed, *, tokens: int, longest: int) -> None:
        self.packed = packed
        self._tokens = tokens
        self._longest = longest
        self.sizes = [(tokens // average, min(longest, most, tokens)) for average, most in _SIZES]
        # Without max_autotune: on an H100, cuBLAS won all large products, and trying the others took minutes.
        self._run = torch.compile(packed.run, dynamic=False, fullgraph=True)
        self._graphs: dict[Hashable, _Graph | None] = {}  # by the inputs' shapes; None if recording failed

    @property
    def name(self) -> str:
        """The way in which batches run: "graphed", "packed" or "partly graphed".

        It is "graphed" if every size that was used is recorded, and "packed" if none is.
        """
        recorded = [graph is not None for graph in self._graphs.values()]
        return "graphed" if all(recorded) else "partly graphed" if any(recorded) else "packed"

    def of_size(self, tokens: int) -> "Graphed":
        return Graphed(self.packed, tokens=tokens, longest=self._longest)

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        for texts, longest in self.sizes:
            filled = self._filled(batch, texts, longest)
            if filled is not None:
                inputs = self.packed.inputs(batch, filled)
                here = {name: to_device(array, self.packed.device) for name, array in inputs.items()}
                if graph := self._graph_of(here, texts=len(batch), longest=longest):
                    return graph.replay(here)[: len(batch)].clone()
        return self.packed.logits(batch)

    def _filled(self, batch: Tokens, texts: int, longest: int) -> Tokens | None:
        taken = len(batch.ids)
        dummies = np.arange(taken, self._tokens, longest)  # starts of the dummy texts
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
        """Return the graph for inputs of these shapes, which is made at its first use. None if it cannot be made.

        `texts` does not count dummy texts. If no graph was tried before, raises the error instead of returning None,
        unless memory is short.
        """
        kind = (len(inputs["starts"]), frozenset(inputs))  # with or without token types
        if kind in self._graphs:
            return self._graphs[kind]
        self._graphs[kind] = None
        try:
            # An option of torch.compile would set freezing too late. All models and sizes recompile one function.
            with inductor.patch(freezing=True), dynamo.patch(recompile_limit=256):
                graph = _Graph(partial(self._run, longest=longest), inputs, self.packed.device)
            _check_close(graph.replay(inputs)[:texts], self.packed.run(inputs, longest=longest)[:texts])
        except Exception as error:
            if len(self._graphs) == 1 and not isinstance(error, torch.OutOfMemoryError):
                raise
            logger.warning("Batches of texts of up to %d tokens are not graphed: %s", longest, error)
            return None
        self._graphs[kind] = graph
        return graph


def _check_close(logits: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise RuntimeError if a new graph's logits are not close to those that the packed model gives.

    The parity gate does not check each graph, because its batches need not have all sizes.
    """
    error = float((logits - expected).abs().max())
    if not error <= _MOST_ERROR * max(1.0, float(expected.abs().max())):
        raise RuntimeError(f"a logit differs by {error:.3g}")


class _Graph:
    """A recorded run of the model, with fixed addresses for inputs and output. On a CPU, `run` is compiled, not recorded."""

    def __init__(self, run: Any, inputs: Inputs, device: torch.device) -> None:
        self._run = run
        self._inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type != "cuda":
            run(self._inputs)
            return
        # Compile, warm up and record on one side stream.
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
