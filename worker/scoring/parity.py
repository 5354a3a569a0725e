"""The parity gate: a worker serves a model only if the optimised model reproduces the plain model's scores.

The plain model is called as in a pipeline: in float32, with one text at a time and so without padding.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from shardsift.worker.scoring import DeviceLost, ModelError, ParityError
from shardsift.worker.scoring.backends import Backend
from shardsift.worker.scoring.backends.padded import restore_attention
from shardsift.worker.scoring.device import TOLERANCES, Candidate, release_memory
from shardsift.worker.scoring.forward import room_or
from shardsift.worker.scoring.gpu_notes import FORGETFUL, GpuNotes
from shardsift.worker.scoring.parity_trial import Logits, ParityTrial, sample_texts
from shardsift.worker.scoring.saved_model import SavedModel
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer

_ADVICE = (
    "Enqueue the run with --dtype auto, which ends with float32. Start the worker without SHARDSIFT_COMPILE and --sharding "
    "tensor, if it has them."
)
logger = logging.getLogger(__name__)


def float32_logits(saved: SavedModel, texts: list[str], device: torch.device | None = None) -> Logits:
    """Compute the logits of a plain float32 model. If it is on several devices, `device` takes its inputs.

    Raises ModelError if a logit is not finite, and NoRoom if memory is short.
    """
    with room_or(
        f"The model {saved.model.name_or_path} does not fit here in float32, in which its scores are tried when a worker "
        "starts. SHARDSIFT_PARITY_ROWS=0 leaves the trial out."
    ):
        logits = _logits(saved, texts, device or saved.model.device)
    if not np.isfinite(logits).all():
        raise ModelError(
            f"The model {saved.model.name_or_path} gives logits that are not finite, also in float32 and as transformers runs "
            "it: its weights are damaged. Save or download them again."
        )
    return logits


@torch.inference_mode()
def _logits(saved: SavedModel, texts: list[str], device: torch.device) -> Logits:
    logits = np.empty((len(texts), saved.outputs), dtype=np.float32)
    for row, text in enumerate(texts):
        inputs = saved.tokenizer(text, truncation=True, max_length=saved.max_tokens, return_tensors="pt")
        restore_attention(saved.model)
        logits[row] = saved.model(**inputs.to(device)).logits.cpu().numpy()
    return logits


def checked_scorer(
    name: str,
    saved: SavedModel,
    backend: Backend,
    candidate: Candidate,
    *,
    reference: Logits | None,
    device: torch.device,
    max_batch_tokens: int,
) -> SequenceClassifier:
    """Make the scorer of a loaded model. Raises ParityError if the optimised model does not pass the parity gate.

    `reference` has the plain model's logits of the sample texts. None skips the gate.
    """
    scorer = SequenceClassifier(
        model=name,
        revision=saved.revision,
        backend=backend,
        tokenizer=TextTokenizer(saved.tokenizer, max_tokens=saved.max_tokens),
        device=device,
        dtype=candidate.dtype,
        outputs=saved.outputs,
        max_batch_tokens=max_batch_tokens,
        config=saved.model.config.get_text_config(),
    )
    if reference is None:
        return scorer
    parity = ParityTrial(reference=reference, fast=scorer.score(sample_texts(len(reference))).values)
    check_parity(parity, model=name, backend=backend.name, candidate=candidate)
    return replace(scorer, parity=parity)


def check_parity(parity: ParityTrial, *, model: str, backend: str, candidate: Candidate) -> None:
    """Raise ParityError, with the figures, if the logits differ by more than the tolerance of the candidate's format.

    An `unpadded` candidate is the plain model itself, so it is refused only for logits that are not finite.
    """
    tolerance = TOLERANCES[candidate.dtype]
    limit = tolerance.error * parity.scale
    if not np.isfinite(parity.fast).all():
        problem = "some logits are not finite"
    elif candidate.way == "unpadded":
        return
    elif parity.max_error > limit:
        problem = f"a logit differs by {parity.max_error:.2g}, and at most {limit:.2g} is allowed"
    elif (correlation := parity.rank_correlation(tolerance.rounding)) < tolerance.rank_correlation:
        problem = f"the rank correlation is {correlation:.4f}, and at least {tolerance.rank_correlation} is needed"
    else:
        return
    raise ParityError(
        f"The model {model} scores differently in {candidate.dtype} ({backend}) than in float32, one text at a time: of "
        f"{parity.rows} sample texts, {problem}."
    )


def first_faithful(
    candidates: Sequence[Candidate],
    load: Callable[[Candidate], SequenceClassifier],
    notes: GpuNotes = FORGETFUL,
) -> SequenceClassifier:
    """Load the first candidate that passes the gate. Logs why the candidates before it are refused.

    The refused formats are in the scorer's `refused_dtypes`. Graphed and packed candidates that fail to compile or run
    are skipped. Raises DeviceLost if one of them makes the GPU fail. With `notes`, the next process skips this way to
    run batches, and lists it in `faulty_ways`. Raises ParityError, with advice on settings, if no candidate passes.
    """
    refused: list[str] = []
    faulty: list[str] = []
    for candidate in candidates:
        way, is_optional = candidate.way, candidate.way in ("graphed", "packed")
        if is_optional and (fault := notes.fault_of(way)):
            logger.warning("%s batches are left out here: %s", way.capitalize(), fault)
            faulty.append(way)
            continue
        with notes.trying(way):
            try:
                scorer = load(candidate)
            except ParityError as error:
                if candidate is candidates[-1]:
                    raise ParityError(f"{error} {_ADVICE}") from None
                logger.warning("%s The next best is tried.", error)
            except Exception as error:
                if isinstance(error, ModelError) or not is_optional:
                    raise
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                logger.warning("In %s, %s batches are not used: %s", candidate.dtype, way, reason)
            else:
                others = dict.fromkeys(dtype for dtype in refused if dtype != candidate.dtype)
                return replace(scorer, refused_dtypes=tuple(others), faulty_ways=tuple(dict.fromkeys(faulty)))
            refused.append(candidate.dtype)
            try:
                release_memory()
            except RuntimeError as error:
                if not is_optional:
                    raise
                notes.store(way, str(error).splitlines()[0])
                raise DeviceLost(
                    f"The GPU failed when {way} batches were tried. The next process skips them."
                ) from error
    raise ValueError("There is no format to try.")
