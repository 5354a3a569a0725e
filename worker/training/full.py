"""Train all weights of a model with transformers' Trainer, resumable from its last checkpoint."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
from worker.training.checkpoints import STATE, Checkpoint, checkpoint_to_resume
from worker.training.identity import described_in_full
from worker.training.loading import loading_arguments
from worker.training.loss import loss_of
from worker.training.memory import peak_memory_bytes
from worker.training.place import TrainPlace
from worker.training.processes import process_count
from worker.training.spec import FullTraining, TrainSpec
from worker.training.splits import Split
from worker.training.stop import StopAtNextStep
from worker.training.token_rows import TokenRows, tokenizer_of
from worker.training.trained import Steps, Trained

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
