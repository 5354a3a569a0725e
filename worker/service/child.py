"""The child of a worker: the process that owns the device and the model.

The parent talks to the broker, imports no torch, and turns SIGTERM into the signal "stop at the next batch" for this
child. If the child dies, Celery starts another one.
"""

import faulthandler
import logging
import math
import os
import signal
import threading
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from shardsift.fleet.errors import ExitCode
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.demand import format_to_follow
from shardsift.fleet.process.children import end_with_parent
from shardsift.fleet.process.redis_away import wait_for_redis
from shardsift.fleet.process.settings import Settings, read_settings
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.model import Model, joint_format, worker_queue
from shardsift.fleet.run.receipt import refusal_reason
from shardsift.fleet.storage.scratch import remove_abandoned
from shardsift.worker.scoring import DeviceLost, Scorer, ScorerInfo
from shardsift.worker.scoring.quiet import quieten_imports
from shardsift.worker.service import ipc
from shardsift.worker.service.device_meter import metered
from shardsift.worker.service.in_hand import InHand
from shardsift.worker.service.program import quieten_celery
from shardsift.worker.service.watchdog import Watchdog
from shardsift.worker.shard.scoring_groups import load_scorers, sharing_scorers
from shardsift.worker.shard.vitals import WindowPace

_SKIP_SECONDS = 5.0  # pause after a shard that this worker may not score, so that others take the next one
logger = logging.getLogger(__name__)


class ScoringChild:
    """The state that a child's tasks share: settings, ledger, scorers and shards in hand. Also stops the process.

    `scorers` maps each model's queue to its scorer. `followed` is the number format that was tried first when the
    models were loaded, because an open run was already scored in it. None if there was no such run.
    """

    def __init__(
        self,
        settings: Settings,
        scorers: Mapping[str, Scorer[Any]],
        ledger: Ledger,
        crash_report: IO[str],
        *,
        followed: str | None = None,
    ) -> None:
        self.settings = settings
        self.scorers = scorers
        self.stopping = threading.Event()
        self.ledger = ledger
        self.watchdog = Watchdog(settings.stall_seconds, crash_report)
        self.pace = WindowPace()
        self.in_hand = InHand()
        self.number_format = joint_format({queue: scorer.info.dtype for queue, scorer in scorers.items()})
        self._followed = followed
        self._parent_spoke = False

    def replace(self) -> None:
        """Stop at the next batch and exit, so that Celery starts a new process."""
        self.in_hand.exit_when_drained(ExitCode.DEVICE_FAULT)
        self.stop()

    def on_other_format(self, run_id: str) -> None:
        """Handle a shard that was refused because its run uses another number format than this worker.

        Looks up the format of the oldest run that needs workers. If there is no such run, or it uses this worker's
        format, pauses for a few seconds. If it uses another format, replaces this process by one that tries that format
        first. If this process has already tried that format, and could not use it, ends the worker; the supervisor then
        leaves the queue to other machines.
        """
        wanted = format_to_follow(self.ledger, worker_queue(self.scorers))
        if wanted in (None, self.number_format):  # other runs need this worker's format
            self.stopping.wait(_SKIP_SECONDS)
        elif wanted != self._followed:
            logger.info("A new process replaces this one, to score in %s as the workers of run %s", wanted, run_id)
            self.replace()
        elif not self.stopping.is_set():
            settled = self.ledger.state(run_id).number_format
            ipc.leave_failure(
                f"Run {run_id} is scored in {settled}, and this worker scores in {self.number_format}. Start one that has the "
                "format of the run."
            )
            os.kill(int(os.environ[ipc.PARENT]), signal.SIGTERM)

    def stop(self) -> None:
        """Stop at the next batch. If that takes longer than `stop_seconds`, exit anyway. Further calls do nothing."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        timer = threading.Timer(self.settings.stop_seconds, self.end_now)
        timer.daemon = True
        timer.start()

    def on_stop_signal(self) -> None:
        """Handle the parent's signals: the first stops the worker at the next batch, the second exits immediately.

        A SIGTERM also stops the worker at the next batch. It is not counted as one of these signals, because it may have
        been sent to the whole process group.
        """
        if self._parent_spoke:
            threading.Thread(target=self.end_now, name="end now").start()
        self._parent_spoke = True
        self.stop()

    def end_now(self) -> NoReturn:
        """Give the shards back and exit, without waiting for other threads. Finished windows are stored already."""
        try:
            self.in_hand.give_back()
        finally:
            os._exit(ExitCode.DONE)

    def install_signal_handlers(self) -> None:
        """Handle SIGTERM and the parent's signals. Each task calls this again.

        After `start_child`, Celery sets a SIGTERM handler of its own, which would abort a task at any point.
        """
        signal.signal(signal.SIGTERM, lambda _signal, _frame: self.stop())
        signal.signal(ipc.STOP_SIGNAL, lambda _signal, _frame: self.on_stop_signal())


def start_child() -> ScoringChild:
    """Load the models. If the GPU failed, end this process. On any other error, report it and end the whole worker."""
    end_with_parent(int(os.environ[ipc.PARENT]), signal.SIGKILL)
    quieten_celery()
    signal.signal(ipc.STOP_SIGNAL, lambda _signal, _frame: os._exit(ExitCode.DONE))  # no shard is claimed yet
    try:
        child = _loaded_child(read_settings())
    except DeviceLost as error:
        logger.error("%s", error)
        os._exit(ExitCode.DEVICE_FAULT)  # Celery starts another
    except Exception as error:
        _give_up(error)
    child.install_signal_handlers()
    ipc.leave_loaded(next(iter(child.scorers.values())).info.device_type)
    return child


def _loaded_child(settings: Settings) -> ScoringChild:
    crash_report = ipc.crash_report_path().open("w")
    faulthandler.enable(crash_report)
    remove_abandoned(settings.scratch_dir)
    # Wait for Redis: the settings are right, because the parent has already reached it.
    ledger = Ledger.connect(settings, wait_seconds=math.inf)
    names = {model.queue(settings.dtype): model.name for model in ipc.handed_down()}
    followed = wait_for_redis(lambda: format_to_follow(ledger, worker_queue(names)), threading.Event())
    if followed:
        first = zip(sorted(names), followed.split("+"), strict=False)
        settings = settings.model_copy(update={"first_dtypes": {names[queue]: dtype for queue, dtype in first}})
    return ScoringChild(settings, load_handed_down(settings), ledger, crash_report, followed=followed)


def load_handed_down(settings: Settings) -> dict[str, Scorer[Any]]:
    """Load the models that the parent passed to this process. Returns their scorers by queue.

    Raises NoRoom if one does not fit beside the others.
    """
    quieten_imports()
    models = ipc.handed_down()
    scorers: dict[str, Scorer[Any]] = {}
    for model, loaded in zip(models, load_scorers(models, settings), strict=True):
        scorer = metered(loaded)
        logger.info("%s", loaded_line(model, scorer.info))
        if peak := scorer.info.matmul_peak:
            logger.info(
                "Matrices of its shapes are multiplied here at %.3g TFLOP/s: the peak of `producer status`", peak / 1e12
            )
        scorers[model.queue(settings.dtype)] = scorer
    _log_shared_encoders({model.queue(settings.dtype): model.name for model in models}, scorers)
    return scorers


def loaded_line(model: Model, info: ScorerInfo) -> str:
    """Say where and in which format a model is loaded, and how close its logits are to float32."""
    compared = "not compared with float32"
    if info.parity:
        rows, error = counted(info.parity.rows, "sample text"), info.parity.max_error
        compared = f"its logits of {rows} differ from float32 by at most {error:.2g}"
    dtype = f"{info.dtype}{refusal_reason(info.refused_dtypes, info.faulty_ways)}"
    return f"{model.name} is loaded on {info.device} in {dtype}, {info.backend}; {compared}."


def _log_shared_encoders(names: Mapping[str, str], scorers: Mapping[str, Scorer[Any]]) -> None:
    """Log which models share an encoder. Caches the comparison of weights, so that the first shard need not wait."""
    queues = list(scorers)
    for numbers in sharing_scorers(list(scorers.values())):
        shown = " and ".join(names[queues[number]] for number in numbers)
        logger.info("The models %s have the same encoder, which runs once.", shown)


def _give_up(error: Exception) -> NoReturn:
    """Report the error and end the worker. Celery would ignore the error and start one child after another."""
    ipc.leave_failure(" ".join(str(error).split()) or type(error).__name__)
    os.kill(int(os.environ[ipc.PARENT]), signal.SIGTERM)
    os._exit(ExitCode.NO_MODEL)
