"""What makes logits into scores: transformers' `function_to_apply`, in float32, for all rows at once."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def apply(function: str, logits: Floats) -> Floats:
    """`logits` has shape (rows, outputs), and so have the scores; "none" leaves them as they are."""
    if function == "sigmoid":
        with np.errstate(over="ignore"):  # a logit below -88 gives 1 / (1 + inf), which is right
            squashed: Floats = np.float32(1) / (np.float32(1) + np.exp(-logits))
        return squashed
    if function == "softmax":
        powers: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: Floats = powers / powers.sum(axis=1, keepdims=True)
        return shares
    return logits
