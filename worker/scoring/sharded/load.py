"""Load a classifier over several devices, and compare its scores with those that the model gives in float32 by layers."""

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedConfig

from worker.scoring.backends.padded import padded
from worker.scoring.device import default_batch_tokens, release_memory
from worker.scoring.errors import ModelError, NoRoom, ParityError
from worker.scoring.forward import is_lack_of_memory
from worker.scoring.parity import check_parity, first_faithful, reference_logits
from worker.scoring.parity_trial import Logits, ParityTrial
from worker.scoring.precision import QUANTISED, Candidate, formats, keep_heads_in_float32
from worker.scoring.sample import sample_texts
from worker.scoring.saved_model import SavedModel, saved_model
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.scoring.sharded.backend import Sharded
from worker.scoring.sharded.device_map import bytes_by_place, placing
from worker.scoring.sharded.rank_place import RankPlace
from worker.scoring.sharded.ranks import Ranks
from worker.scoring.sharded.sharding import Sharding, Way, check_accelerate, chosen_way
from worker.scoring.sharded.tensor_parallel import RankTask
from worker.scoring.tokenizing.tokenize import TextTokenizer

PARITY_ROWS = 16  # in float32 the model may not fit on the devices, and offloaded layers are slow
_BATCH_TOKENS_GPU = (
    8_192  # a large model leaves less memory for batches, and its matrices are large enough with fewer tokens
)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ShardedOptions:
    device: torch.device
    sharding: Sharding
    max_batch_tokens: int  # 0: a default for the device
    parity_rows: int | None  # None: PARITY_ROWS


def load_sharded(model: str, dtype: str, revision: str | None, options: ShardedOptions) -> SequenceClassifier:
    """As `load_scorer`, over several devices. The formats int8 and fp8 are not for divided models."""
    check_accelerate()
    if dtype in QUANTISED:
        raise ModelError(f"--dtype {dtype} is for a model on one device. Use bfloat16, float16 or float32.")
    way = chosen_way(options.sharding, model, revision, options.device)
    texts = sample_texts(PARITY_ROWS if options.parity_rows is None else options.parity_rows)
    reference = _reference(model, revision, texts, options) if texts else None
    candidates = [
        Candidate(dtype=one, is_plain=one == "float32" and way == "layers")
        for one in formats(dtype, options.device, _model_type(model, revision))
    ]
    if candidates[-1].dtype == "float32" and way == "tensor" and options.sharding.way == "auto":
        candidates.append(Candidate(dtype="float32", is_plain=True))
    advice = [
        "Start the worker without --sharding tensor." if options.sharding.way == "tensor" else "",
        "Enqueue the run with --dtype auto, which ends with float32." if dtype not in ("auto", "float32") else "",
    ]

    def loaded(one: Candidate) -> SequenceClassifier:
        scorer = _loaded(model, one.dtype, revision, "layers" if one.is_plain else way, options)
        return _checked(scorer, texts, reference, one)

    return first_faithful(candidates, loaded, advice=" ".join(filter(None, advice)))


def _checked(
    scorer: SequenceClassifier, texts: list[str], reference: Logits | None, one: Candidate
) -> SequenceClassifier:
    """Raises ParityError where its scores are not the model's own."""
    assert isinstance(scorer.backend, Sharded)
    shown = ", ".join(f"{place} {size / 2**20:,.1f} MiB" for place, size in scorer.backend.weight_bytes.items())
    logger.info("Weights of %s: %s", scorer.model, shown)
    if reference is None:
        return scorer
    parity = ParityTrial(reference=reference, fast=scorer.score(texts).values)
    try:
        check_parity(parity, model=scorer.model, backend=scorer.backend.name, candidate=one)
    except ParityError:
        scorer.backend.close()
        raise
    return scorer.with_parity(parity)


def _reference(model: str, revision: str | None, texts: list[str], options: ShardedOptions) -> Logits:
    """The logits of the plain model in float32. It is divided by layers, so it fits if the CPU or the disk has room."""
    with tempfile.TemporaryDirectory(prefix="shardsift-offload-", dir=options.sharding.scratch_dir) as folder:
        saved = saved_model(model, revision, dtype=torch.float32, **placing(options.sharding, options.device, folder))
        try:
            return reference_logits(
                saved.model,
                saved.tokenizer,
                texts,
                max_tokens=saved.max_tokens,
                outputs=saved.outputs,
                device=options.device,
            )
        except (RuntimeError, MemoryError) as error:
            if not is_lack_of_memory(error):
                raise
            raise NoRoom(
                f"The model {model} does not fit here in float32, in which its scores are tried when a worker starts, not even "
                "with layers on the CPU and the disk. SHARDSIFT_PARITY_ROWS=0 leaves the trial out."
            ) from error
        finally:
            del saved
            release_memory()


def _loaded(model: str, dtype: str, revision: str | None, way: Way, options: ShardedOptions) -> SequenceClassifier:
    """The scorer in one number format."""
    load = _by_tensor if way == "tensor" else _by_layers
    saved, backend = load(model, dtype, revision, options)
    return SequenceClassifier(
        model=model,
        revision=saved.revision,
        backend=backend,
        tokenizer=TextTokenizer(saved.tokenizer, max_tokens=saved.max_tokens),
        device=options.device,
        dtype=dtype,
        outputs=saved.outputs,
        max_batch_tokens=options.max_batch_tokens or _default_batch_tokens(options.device),
        config=saved.model.config,
    )


def _by_layers(model: str, dtype: str, revision: str | None, options: ShardedOptions) -> tuple[SavedModel, Sharded]:
    sharding = options.sharding
    folder = tempfile.TemporaryDirectory(prefix="shardsift-offload-", dir=sharding.scratch_dir)
    place = placing(sharding, options.device, folder.name)
    saved = saved_model(model, revision, dtype=getattr(torch, dtype), **place)
    keep_heads_in_float32(saved.model)
    weights = bytes_by_place(saved.model)
    backend = Sharded(
        padded=padded(saved.model, saved.tokenizer, options.device),
        way="layers",
        devices=len(weights),
        weight_bytes=weights,
        close=folder.cleanup,
    )
    return saved, backend


def _by_tensor(model: str, dtype: str, revision: str | None, options: ShardedOptions) -> tuple[SavedModel, Sharded]:
    sharding = options.sharding
    with tempfile.TemporaryDirectory(prefix="shardsift-ranks-", dir=sharding.scratch_dir) as folder:
        place = RankPlace(
            rank=0,
            ranks=sharding.devices,
            meeting_file=str(Path(folder, "meeting")),
            device_type=options.device.type,
            threads=max(1, torch.get_num_threads() // sharding.devices),
        )
        task = RankTask(place=place, model=model, revision=revision, dtype=dtype)
        ranks = Ranks(task, on_lost=sharding.on_lost_rank)
    saved = ranks.part.saved
    backend = Sharded(
        padded=padded(saved.model, saved.tokenizer, torch.device("cpu"), run=ranks),
        way="tensor",
        devices=sharding.devices,
        weight_bytes={f"rank {rank}": size for rank, size in enumerate(ranks.weight_bytes)},
        close=ranks.close,
    )
    return saved, backend


def _model_type(model: str, revision: str | None) -> str:
    config, _ = PreTrainedConfig.get_config_dict(model, revision=revision)
    return str(config.get("model_type", ""))


def _default_batch_tokens(device: torch.device) -> int:
    return min(_BATCH_TOKENS_GPU, default_batch_tokens(device))
