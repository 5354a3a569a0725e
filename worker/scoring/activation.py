"""Turn logits into scores: transformers' `function_to_apply`, in float32, vectorised over rows."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def apply(function: str, logits: Floats) -> Floats:
    """Logits and scores have shape (rows, outputs). "none" returns the logits unchanged."""
    if function == "sigmoid":
        with np.errstate(over="ignore"):  # a logit below -88 overflows to 1 / (1 + inf) = 0, the correct score
            squashed: Floats = np.float32(1) / (np.float32(1) + np.exp(-logits))
        return squashed
    if function == "softmax":
        powers: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: Floats = powers / powers.sum(axis=1, keepdims=True)
        return shares
    return logits
