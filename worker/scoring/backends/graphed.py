"""Run packed batches at one fixed size: compiled once and, on a GPU, recorded as a CUDA graph, so that a batch is one launch.

A batch is filled up with dummy texts to a number of tokens, and with empty texts to a number of texts. Compiling for one size
joins the products of query, key and value, and fuses GELU and the normalisations.
"""

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch._inductor import config as inductor

from worker.scoring.backends.packed import Inputs, Packed
from worker.scoring.device import to_device
from worker.scoring.tokenizing.tokens import Tokens

# The attention kernel starts a block for each text and each 128 tokens of the longest one, also where there are none.
_TOKENS_PER_TEXT = 64  # at least, on average over a batch; batches of shorter texts run packed
_LONGEST = 512  # tokens; batches with longer texts run packed
_FULL_ENOUGH = 0.5  # of the tokens; smaller batches run packed, which is faster for them
logger = logging.getLogger(__name__)


class Graphed:
    """`packed` at a size of `tokens`, for texts of `longest` tokens at most. The first batch takes a minute to compile.

    With a CUDA graph, logits are copied before the next batch overwrites them.
    """

    name = "graphed"

    def __init__(self, packed: Packed, *, tokens: int, longest: int) -> None:
        self.packed = packed
        self._tokens = tokens
        self._texts = tokens // _TOKENS_PER_TEXT
        self._longest = min(longest, _LONGEST, tokens)
        # Without max_autotune: on an H100, cuBLAS won all large products, and trying the others took minutes.
        self._run = torch.compile(self._run_packed, dynamic=False, fullgraph=True)
        self._graphs: dict[frozenset[str], _Graph | None] = {}  # None: it cannot be recorded

    def of_size(self, tokens: int) -> "Graphed":
        return Graphed(self.packed, tokens=tokens, longest=self._longest)

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        filled = self._filled(batch)
        computed = None if filled is None else self._computed(self.packed.inputs(batch, filled))
        return self.packed.logits(batch) if computed is None else computed[: len(batch)].clone()

    def _filled(self, batch: Tokens) -> Tokens | None:
        """The batch at the fixed size; None if it does not fit, or is too small."""
        taken, texts = len(batch.ids), len(batch)
        dummies = np.arange(taken, self._tokens, self._longest)  # where they start
        fits = texts + len(dummies) <= self._texts and batch.lengths.max() <= self._longest
        if not (fits and _FULL_ENOUGH * self._tokens <= taken <= self._tokens):
            return None
        offsets = np.full(self._texts + 1, self._tokens)
        offsets[:texts] = batch.offsets[:-1]
        offsets[texts : texts + len(dummies)] = dummies
        free = (0, self._tokens - taken)
        types = None if batch.types is None else np.pad(batch.types, free)
        return Tokens(ids=np.pad(batch.ids, free), offsets=offsets, types=types)

    def _run_packed(self, inputs: Inputs) -> torch.Tensor:
        return self.packed.run(inputs, longest=self._longest)

    def _computed(self, inputs: dict[str, npt.NDArray[Any]]) -> torch.Tensor | None:
        here = {name: to_device(array, self.packed.device) for name, array in inputs.items()}
        kind = frozenset(here)  # with or without token types
        if kind not in self._graphs:
            self._graphs[kind] = self._recorded(here)
        graph = self._graphs[kind]
        return graph.replay(here) if graph else None

    def _recorded(self, inputs: Inputs) -> "_Graph | None":
        """The first graph is recorded at a trial, which looks for another way if that fails; a later one is done without."""
        try:
            with inductor.patch(freezing=True):  # which comes too late as an option of torch.compile
                return _Graph(self._run, inputs, self.packed.device)
        except Exception as error:
            if not self._graphs:
                raise
            logger.warning("Batches with token types are not graphed: %s", error)
            return None


class _Graph:
    """A recorded run. Inputs and output have fixed places in the device's memory. On a CPU it only is a compiled one."""

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
