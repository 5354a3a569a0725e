"""Train all weights of a model with transformers' Trainer, resumable from its last checkpoint."""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from fleet.errors import Stopped, UsageError
from worker.scoring import ModelError
from worker.scoring.device import choose_device, device_name, multiplies_bfloat16
from worker.scoring.main_module import without_main_module
from worker.scoring.quiet import quiet_transformers
from worker.training.base_model import BaseModel, load_base
from worker.training.checkpoints import STATE, Checkpoint, checkpoint_to_resume, described_in_full
from worker.training.place import TrainPlace, peak_memory_bytes, process_count
from worker.training.rows import Split, Target, Targets
from worker.training.spec import ClassWeights, FullTraining, TrainSpec
from worker.training.token_rows import TokenRows, tokenizer_of
from worker.training.trained import Steps, Trained

# How processes prepare batches beside a training: `--loader-processes`.

_CONTEXT = "forkserver"
_IMPORTED_ONCE = ["worker.training.loader_imports"]


def loading_arguments(processes: int) -> dict[str, Any]:
    """For transformers' TrainingArguments.

    The training has threads, and a process forked from one with threads inherits the locks that they hold. So the processes are
    forked from a server without threads, which has imported what they need.
    """
    if not processes:
        return {"dataloader_num_workers": 0}
    multiprocessing.get_context(_CONTEXT).set_forkserver_preload(_IMPORTED_ONCE)
    return {
        "dataloader_num_workers": processes,
        "dataloader_multiprocessing_context": _CONTEXT,
    }


# The loss of a batch, so that it does not depend on how many batches a step is divided into.

Loss = Callable[..., torch.Tensor]


def loss_of(target: Target, targets: Targets, class_weights: ClassWeights) -> Loss:
    """For the Trainer's `compute_loss_func`: the sum over the rows of a batch, divided by the rows of the whole step.

    The models' own loss is a mean over a batch. Means of batches of different sizes do not add up to the mean of a step.
    """
    weights = None
    if class_weights == "balanced":  # as scikit-learn weights them: each class has the same sum
        counts = np.bincount(targets.astype(np.int64), minlength=target.outputs)
        weights = torch.tensor(len(targets) / (target.outputs * np.maximum(counts, 1)), dtype=torch.float32)

    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None) -> torch.Tensor:
        logits = outputs.logits.float()
        if target.is_regression:
            total = torch.nn.functional.mse_loss(logits[:, 0], labels.float(), reduction="sum")
        else:
            balance = None if weights is None else weights.to(logits.device)
            total = torch.nn.functional.cross_entropy(logits, labels, weight=balance, reduction="sum")
        return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)

    return loss


# Stop training at the next step, with a checkpoint, when SIGTERM or Ctrl-C arrives.


class StopAtNextStep(TrainerCallback):
    """The first signal saves a checkpoint at the next step and ends training; the second ends the process at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Only the main thread can handle signals; in another one, this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(number, signal.SIG_DFL)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.world_size > 1:
            self.asked = self._asked_anywhere(args.device)
        if self.asked:
            control.should_save = control.should_training_stop = True

    def _asked_anywhere(self, device: torch.device) -> bool:
        """A signal may reach the processes at different steps, and they must leave the loop together."""
        asked = torch.tensor(int(self.asked), device=device)
        dist.all_reduce(asked, dist.ReduceOp.MAX)
        return bool(asked.item())


_LOGS_PER_CHECKPOINT = 5
_KEPT_CHECKPOINTS = 2  # the newest and the best


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What the steps of a training have in common."""

    spec: TrainSpec
    full: FullTraining
    split: Split
    place: TrainPlace
    device: torch.device
    dtype: str
    tell: Callable[[str], None]
    processes: int  # of `torchrun`, each of which takes the rows of the spec in a step

    @property
    def step_rows(self) -> int:
        return self.processes * self.full.batch_rows * self.full.accumulation_steps


def train_full(
    spec: TrainSpec,
    full: FullTraining,
    split: Split,
    *,
    place: TrainPlace,
    tell: Callable[[str], None],
) -> Trained:
    """The weights with the lowest loss on the held-out rows. Begins at the last checkpoint in `place.folder`.

    Raises Stopped at SIGTERM or Ctrl-C, when a checkpoint is saved.
    """
    device, dtype = training_device(place.device), spec.dtype
    if dtype == "auto":
        dtype = "bfloat16" if multiplies_bfloat16(device) else "float32"
    if dtype == "float16" and device.type != "cuda":
        raise UsageError(
            f"--dtype float16 needs a GPU to train on, and this is {device.type}. Use bfloat16 or float32."
        )
    run = _Run(
        spec=spec,
        full=full,
        split=split,
        place=place,
        device=device,
        dtype=dtype,
        tell=tell,
        processes=process_count(),
    )
    with without_main_module():  # transformers starts the processes of loaders
        return _train(run)


def training_device(name: str) -> torch.device:
    """Raises UsageError if it is not here."""
    try:
        device = choose_device(name)
    except ModelError as error:
        raise UsageError(str(error)) from error
    if device.index:
        raise UsageError(f"To train on {name} only, set CUDA_VISIBLE_DEVICES={device.index} and --device cuda.")
    return device


def _train(run: _Run) -> Trained:
    set_seed(run.spec.seed)  # the weights of a new last layer are random
    base = load_base(run.spec.base_model, run.split.target)
    arguments = _arguments(run)
    with arguments.main_process_first(local=False):
        description = described_in_full(run.spec, run.split, base, processes=run.processes)
        checkpoint = checkpoint_to_resume(run.place, description, run.tell)
    first_step = checkpoint.step if checkpoint else 0
    stop = StopAtNextStep()
    trainer = _trainer(run, base, arguments, stop)
    began = time.monotonic()
    _run_steps(trainer, base, checkpoint, stop, run.full.patience)
    seconds = time.monotonic() - began
    if stop.asked:
        raise Stopped(
            f"Stopped after step {trainer.state.global_step:,}, with a checkpoint in {run.place.folder}. "
            "Run the same command again to go on."
        )
    assert isinstance(trainer.eval_dataset, TokenRows)
    logits = np.asarray(trainer.predict(trainer.eval_dataset).predictions)
    if not np.isfinite(logits).all():
        raise UsageError(
            f"The training has diverged: the model's outputs are not finite numbers. Lower --learning-rate, which is "
            f"{run.full.learning_rate:g}, or choose another --dtype than {run.dtype}."
        )
    return Trained(
        base=base,
        held_out_logits=logits,
        rows_per_second=(trainer.state.global_step - first_step) * run.step_rows / seconds,
        work_seconds=seconds,
        peak_memory_bytes=peak_memory_bytes(),
        device=device_name(run.device),
        dtype=run.dtype,
        steps=_steps(trainer.state, first_step),
    )


def _trainer(run: _Run, base: BaseModel, arguments: TrainingArguments, stop: StopAtNextStep) -> Trainer:
    tokenizer, target, targets = tokenizer_of(base, run.spec.max_tokens), run.split.target, run.split.learned.targets
    trainer = Trainer(
        model=base.model,
        args=arguments,
        train_dataset=TokenRows(run.split.learned, target, tokenizer),
        eval_dataset=TokenRows(run.split.held_out, target, tokenizer),
        data_collator=DataCollatorWithPadding(base.tokenizer),
        compute_loss_func=loss_of(target, targets, run.spec.class_weights),
        callbacks=[stop, _Progress(run.tell), *_early_stopping(run.full)],
    )
    trainer.remove_callback(PrinterCallback)  # it prints to stdout, which is for the report
    return trainer


def _run_steps(
    trainer: Trainer, base: BaseModel, checkpoint: Checkpoint | None, stop: StopAtNextStep, patience: int | None
) -> None:
    """Train from the checkpoint to the end. If training had ended already, the best weights are only loaded again."""
    if checkpoint is not None and checkpoint.is_last(patience):
        trainer.state = TrainerState.load_from_json(str(checkpoint.folder / STATE))
        _load_weights(base, checkpoint.best or checkpoint.folder)
        return
    with stop.listening(), quiet_transformers():
        trainer.train(resume_from_checkpoint=str(checkpoint.folder) if checkpoint else None)


def _arguments(run: _Run) -> TrainingArguments:
    full, on_cpu = run.full, run.device.type == "cpu"
    arguments = TrainingArguments(
        output_dir=str(run.place.folder),
        per_device_train_batch_size=full.batch_rows,
        per_device_eval_batch_size=full.batch_rows,
        gradient_accumulation_steps=full.accumulation_steps,
        num_train_epochs=full.epochs,
        learning_rate=full.learning_rate,
        weight_decay=full.weight_decay,
        warmup_steps=full.warmup_share,  # below 1, it is a share of all steps
        bf16=run.dtype == "bfloat16",
        fp16=run.dtype == "float16",
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and run.processes > 1 else None,
        **loading_arguments(run.place.loader_processes),
        dataloader_pin_memory=not on_cpu,
        eval_strategy="steps",
        eval_steps=full.checkpoint_steps,
        save_strategy="steps",
        save_steps=full.checkpoint_steps,
        save_total_limit=_KEPT_CHECKPOINTS,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        restore_callback_states_from_checkpoint=True,  # how long there was no progress
        logging_steps=max(1, full.checkpoint_steps // _LOGS_PER_CHECKPOINT),
        seed=run.spec.seed,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    if run.processes == 1:  # several GPUs are for several processes, not for threads of this one
        arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def _early_stopping(full: FullTraining) -> list[TrainerCallback]:
    return [] if full.patience is None else [EarlyStoppingCallback(early_stopping_patience=full.patience)]


class _Progress(TrainerCallback):
    """Tells the losses as they are logged."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not state.is_world_process_zero or logs is None:
            return
        for name, called in (("loss", "loss"), ("eval_loss", "held-out loss")):
            if name in logs:
                self._tell(f"step {state.global_step:,} of {state.max_steps:,}: {called} {logs[name]:.4f}")


def _load_weights(base: BaseModel, folder: Path) -> None:
    with quiet_transformers():
        saved = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    base.model.load_state_dict(saved.state_dict())


def _steps(state: Any, first_step: int) -> Steps:
    logged = [
        {name: entry[name] for name in ("step", "loss", "eval_loss") if name in entry} for entry in state.log_history
    ]
    return Steps(
        done=state.global_step,
        planned=state.max_steps,
        resumed_from=first_step or None,
        best=state.best_global_step,
        losses=tuple(entry for entry in logged if len(entry) > 1),
    )
