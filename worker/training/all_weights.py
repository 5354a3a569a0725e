"""Train all weights of a model with transformers' Trainer. An interrupted training resumes from its last checkpoint."""

import dataclasses
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from shardsift.fleet.errors import Stopped, UsageError
from shardsift.fleet.process.children import handling, without_main_module
from shardsift.worker.scoring.device import choose_device, device_name, multiplies_bfloat16
from shardsift.worker.scoring.quiet import quiet_transformers
from shardsift.worker.scoring.saved_model import SavedModel
from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer
from shardsift.worker.training.base_model import Trained, load_base
from shardsift.worker.training.labelled import Examples, Split, Target
from shardsift.worker.training.train_options import NOT_OF_THE_WEIGHTS, TrainOptions
from shardsift.worker.training.train_report import Steps

_WARMUP_SHARE = 0.1  # share of steps in which the learning rate grows from 0
_LOGS_PER_CHECKPOINT = 5
_KEPT_CHECKPOINTS = 2  # the newest and the best

_DESCRIPTION = "training.json"  # describes the training that a folder of checkpoints belongs to
# Options with locations, which may change. Digests of the rows are compared instead.
_ADDRESSES = ("output", "data", "label_with", "validation")

Loss = Callable[..., torch.Tensor]


def train_all_weights(options: TrainOptions, split: Split, *, device: str, say: Callable[[str], None]) -> Trained:
    """Train all weights, from the last checkpoint if there is one.

    Returns the weights with the lowest loss on the held-out rows. Raises Stopped after SIGTERM or Ctrl-C, once a
    checkpoint is saved.
    """
    on, folder = _training_device(device), options.checkpoint_folder
    arguments = _arguments(options, on, _dtype_on(on, options))
    set_seed(options.seed)  # the weights of a new last layer are random
    base = load_base(options, split.target)
    with arguments.main_process_first(local=False):
        if arguments.process_index == 0:
            _claim_folder(folder, _described(options, split, processes=arguments.world_size))
        checkpoint = _checkpoint_to_resume(folder, say)
    stop = _StopAtNextStep()
    trainer = _trainer(options, split, base, arguments, [stop, _Progress(say)])
    began = time.monotonic()
    listening = handling(signal.SIGTERM, signal.SIGINT, by=stop.note)
    with without_main_module(), listening, quiet_transformers():  # because transformers spawns loader processes
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    seconds = time.monotonic() - began
    if stop.is_asked:
        raise Stopped(
            f"Stopped after step {trainer.state.global_step:,}, with a checkpoint in {folder}. "
            "Run the same command again to go on."
        )
    with without_main_module():  # because the prediction spawns them, too
        return _trained(trainer, base, options, checkpoint, seconds)


def forget(folder: Path) -> None:
    """Delete the checkpoints in a folder, and the folder if it is then empty."""
    (folder / _DESCRIPTION).unlink(missing_ok=True)
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _trained(
    trainer: Trainer, base: SavedModel, options: TrainOptions, checkpoint: Path | None, seconds: float
) -> Trained:
    arguments, state = trainer.args, trainer.state
    assert isinstance(trainer.eval_dataset, TokenRows)
    logits = np.asarray(trainer.predict(trainer.eval_dataset).predictions)
    dtype = _dtype_on(arguments.device, options)
    if not np.isfinite(logits).all():
        if arguments.process_index == 0:
            forget(options.checkpoint_folder)  # another training could not use them
        raise UsageError(
            f"The training has diverged: the model's outputs are not finite numbers. Lower --learning-rate, which is "
            f"{options.learning_rate:g}, or choose another --dtype than {dtype}. Its checkpoints are deleted."
        )
    first_step = _step_of(checkpoint) if checkpoint else 0
    step_rows = arguments.world_size * options.batch_rows * options.accumulate
    losses = [entry for entry in state.log_history if "loss" in entry or "eval_loss" in entry]
    return Trained(
        base=base,
        held_out_logits=logits,
        rows_per_second=(state.global_step - first_step) * step_rows / seconds,
        device=device_name(arguments.device),
        dtype=dtype,
        steps=Steps(
            done=state.global_step,
            planned=state.max_steps,
            resumed_from=first_step or None,
            best=state.best_global_step,
            losses=tuple(losses),
        ),
    )


def _training_device(name: str) -> torch.device:
    device = choose_device(name)
    if device.index:
        raise UsageError(f"To train on {name} only, set CUDA_VISIBLE_DEVICES={device.index} and --device cuda.")
    return device


def _dtype_on(device: torch.device, options: TrainOptions) -> str:
    if options.dtype == "auto":
        return "bfloat16" if multiplies_bfloat16(device) else "float32"
    if options.dtype == "float16" and device.type != "cuda":
        raise UsageError(
            f"--dtype float16 needs a GPU to train on, and this is {device.type}. Use bfloat16 or float32."
        )
    return options.dtype


def _arguments(options: TrainOptions, device: torch.device, dtype: str) -> TrainingArguments:
    on_cpu = device.type == "cpu"
    arguments = TrainingArguments(
        output_dir=str(options.checkpoint_folder),
        per_device_train_batch_size=options.batch_rows,
        per_device_eval_batch_size=options.batch_rows,
        gradient_accumulation_steps=options.accumulate,
        num_train_epochs=options.epochs,
        learning_rate=options.learning_rate,
        warmup_steps=_WARMUP_SHARE,  # below 1, it is a share of all steps
        bf16=dtype == "bfloat16",
        fp16=dtype == "float16",
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and "WORLD_SIZE" in os.environ else None,  # torchrun sets it
        dataloader_pin_memory=not on_cpu,
        **_loading_arguments(options.loader_processes),
        eval_strategy="steps",
        eval_steps=options.checkpoint_steps,
        save_steps=options.checkpoint_steps,
        save_total_limit=_KEPT_CHECKPOINTS,
        load_best_model_at_end=True,  # by the loss on the held-out rows
        logging_steps=max(1, options.checkpoint_steps // _LOGS_PER_CHECKPOINT),
        seed=options.seed,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    if arguments.world_size == 1:  # use one GPU per process, not several by threads
        arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def _loading_arguments(processes: int) -> dict[str, Any]:
    """Return the arguments of TrainingArguments for loader processes, which prepare batches.

    A fork of a process with threads, like this one, would inherit locks that the threads hold. So loaders are forked
    from a server without threads. They live until the training ends, because importing torch takes them seconds.
    """
    if not processes:
        return {}
    return {
        "dataloader_num_workers": processes,
        "dataloader_multiprocessing_context": "forkserver",
        "dataloader_persistent_workers": True,
    }


def _trainer(
    options: TrainOptions,
    split: Split,
    base: SavedModel,
    arguments: TrainingArguments,
    callbacks: list[TrainerCallback],
) -> Trainer:
    tokenizer = _tokenizer_of(base, options.max_tokens)
    trainer = Trainer(
        model=base.model,
        args=arguments,
        train_dataset=TokenRows(split.learned, split.target, tokenizer),
        eval_dataset=TokenRows(split.held_out, split.target, tokenizer),
        data_collator=DataCollatorWithPadding(base.tokenizer),
        compute_loss_func=_loss_of(split.target),
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)  # it prints to stdout
    return trainer


def _tokenizer_of(base: SavedModel, max_tokens: int | None) -> TextTokenizer:
    tokenizer = TextTokenizer(base.tokenizer, max_tokens=base.max_tokens)
    try:
        return tokenizer.limited_to(max_tokens) if max_tokens else tokenizer
    except ValueError as error:
        raise UsageError(f"{error} Choose another --max-tokens.") from error


class TokenRows(Dataset[dict[str, Any]]):
    """Tokens of texts with their targets, as a dataset for the Trainer.

    All rows are stored in a few flat tensors, so that PyTorch can share their memory with loader processes.
    """

    def __init__(self, rows: Examples, target: Target, tokenizer: TextTokenizer) -> None:
        tokens = tokenizer.encode(rows.texts)
        if not tokens.lengths.all():
            row = int(np.argmin(tokens.lengths))
            raise UsageError(f'There is no token in the labelled text "{rows.texts[row]}". Leave such rows out.')
        self._ids = torch.from_numpy(tokens.ids)  # shape (tokens,)
        self._offsets = torch.from_numpy(tokens.offsets)  # shape (rows + 1,)
        self._targets = torch.tensor(rows.targets)  # shape (rows,)
        self._as_label = float if target.is_regression else int

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, row: int) -> dict[str, Any]:
        ids = self._ids[self._offsets[row] : self._offsets[row + 1]]
        return {"input_ids": ids.tolist(), "labels": self._as_label(self._targets[row])}


def _loss_of(target: Target) -> Loss:
    """Make a loss for the Trainer's `compute_loss_func`: the sum over a batch, divided by the rows of the whole step.

    The models' own loss is the mean over a batch. If the batches of a step differ in size, the mean of their means is
    not the mean over the step.
    """

    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None) -> torch.Tensor:
        logits = outputs.logits.float()
        if target.is_regression:
            total = torch.nn.functional.mse_loss(logits[:, 0], labels.float(), reduction="sum")
        else:
            total = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)

    return loss


class _StopAtNextStep(TrainerCallback):
    """Stops at the next step, with a checkpoint, after SIGTERM or Ctrl-C. A second signal ends the process at once."""

    def __init__(self) -> None:
        self.is_asked = False

    def note(self, number: int, _frame: FrameType | None) -> None:
        self.is_asked = True
        signal.signal(number, signal.SIG_DFL)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.world_size > 1:  # processes may get the signal at different steps, but must leave the loop together
            asked = torch.tensor(int(self.is_asked), device=args.device)
            dist.all_reduce(asked, dist.ReduceOp.MAX)
            self.is_asked = bool(asked.item())
        if self.is_asked:
            control.should_save = control.should_training_stop = True


class _Progress(TrainerCallback):
    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        logs = given["logs"]
        for name, called in (("loss", "loss"), ("eval_loss", "held-out loss")):
            if name in logs:
                self._say(f"step {state.global_step:,} of {state.max_steps:,}: {called} {logs[name]:.4f}")


# The folder of checkpoints: `training.json` describes the training; the Trainer writes the rest.


def _described(options: TrainOptions, split: Split, *, processes: int) -> dict[str, Any]:
    """Describe everything that determines the weights. Trainings with equal descriptions give the same model."""
    chosen = dataclasses.asdict(options)
    for name in (*NOT_OF_THE_WEIGHTS, *_ADDRESSES):
        del chosen[name]
    return {**chosen, "data": split.data_digest, "validation": split.validation_digest, "processes": processes}


def _claim_folder(folder: Path, wanted: dict[str, Any]) -> None:
    """Create the folder of checkpoints for this training. Raises UsageError if it belongs to another training."""
    file = folder / _DESCRIPTION
    if file.exists():
        found = json.loads(file.read_text("utf-8"))
        changed = [name.replace("_", " ") for name in wanted if found.get(name) != wanted[name]]
        if changed:
            raise UsageError(
                f"The checkpoints in {folder} are of another training, with another {', '.join(changed)}. "
                "Name another folder with --checkpoints, or delete this one to start again."
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files. Name another folder with --checkpoints.")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    partial.write_text(json.dumps(wanted, indent=1))
    partial.replace(file)


def _checkpoint_to_resume(folder: Path, say: Callable[[str], None]) -> Path | None:
    """Find the newest complete checkpoint. Deletes incomplete ones."""
    while last := get_last_checkpoint(str(folder)):
        if _is_whole(Path(last)):
            say(f"Going on after step {_step_of(Path(last)):,}, from {last}")
            return Path(last)
        shutil.rmtree(last)
    return None


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[2])


def _is_whole(checkpoint: Path) -> bool:
    """Return whether a checkpoint is complete. The Trainer writes its state file last."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True
