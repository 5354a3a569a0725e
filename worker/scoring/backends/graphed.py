"""Run packed batches at one fixed size: compiled once and, on a GPU, recorded as a CUDA graph, so that a batch is one launch.

A batch is filled up with dummy texts to a number of tokens, and with empty texts to a number of texts. Compiling for one size
joins the products of query, key and value, and fuses GELU and the normalisations.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from worker.scoring.backends.packed import Inputs, Packed
from worker.scoring.device import to_device
from worker.scoring.tokenizing.tokens import Tokens

_TOKENS_PER_TEXT = 16  # at least, on average over a batch; batches of shorter texts run packed
_FULL_ENOUGH = 0.5  # of the tokens; smaller batches run packed, which is faster for them


class Graphed:
    """`packed` at a size of `tokens`. The first batch takes a minute to compile.

    With a CUDA graph, logits are copied before the next batch overwrites them. Raises ValueError if `longest`, the most tokens
    of a text, is more than that.
    """

    name = "graphed"

    def __init__(self, packed: Packed, *, tokens: int, longest: int) -> None:
        if longest > tokens:
            raise ValueError(f"texts may have {longest:,} tokens, more than the {tokens:,} of a batch")
        self.packed = packed
        self._tokens = tokens
        self._texts = tokens // _TOKENS_PER_TEXT
        self._longest = longest
        is_cuda = packed.device.type == "cuda"
        # Without max_autotune: on an H100, cuBLAS won all large products, and trying the others took minutes.
        options: dict[str, Any] = {"freezing": True}
        self._run = torch.compile(self._run_packed, dynamic=False, fullgraph=True, options=options)
        self._graphs: dict[frozenset[str], _Graph] | None = {} if is_cuda else None

    def of_size(self, tokens: int) -> "Graphed | Packed":
        return Graphed(self.packed, tokens=tokens, longest=self._longest) if tokens >= self._longest else self.packed

    @torch.inference_mode()
    def logits(self, batch: Tokens) -> torch.Tensor:
        filled = self._filled(batch)
        if filled is None:
            return self.packed.logits(batch)
        return self._computed(self.packed.inputs(batch, filled))[: len(batch)].clone()

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

    def _computed(self, inputs: dict[str, npt.NDArray[Any]]) -> torch.Tensor:
        here = {name: to_device(array, self.packed.device) for name, array in inputs.items()}
        if self._graphs is None:
            computed: torch.Tensor = self._run(here)
            return computed
        kind = frozenset(here)  # with or without token types
        if kind not in self._graphs:
            self._graphs[kind] = _Graph(self._run, here)
        return self._graphs[kind].replay(here)


class _Graph:
    """A recorded run. Inputs and output have fixed places in the device's memory."""

    def __init__(self, run: Any, inputs: Inputs) -> None:
        self._inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compile and warm up on another stream, as recording demands
            for _ in range(3):
                run(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # another thread may fetch results
            self._output: torch.Tensor = run(self._inputs)

    def replay(self, inputs: Inputs) -> torch.Tensor:
        for name, place in self._inputs.items():
            place.copy_(inputs[name], non_blocking=True)
        self._graph.replay()
        return self._output
