"""From the options of `producer train` to a training that any worker of the fleet can do. Checks what needs no torch."""

from dataclasses import dataclass, replace
from pathlib import Path

from fleet.errors import ShardsiftError, UsageError
from fleet.sequence_classifier import pinned_model
from fleet.settings import read_settings
from fleet.shard import Shard
from fleet.storage.errors import translated
from fleet.storage.inputs.opening import open_input
from fleet.storage.model_output import model_output
from fleet.target import is_place
from fleet.training.checkpoints import check_copied_to, is_uri
from fleet.training.data import training_data
from fleet.training.labels import LabelSource, checked_columns, label_source
from fleet.training.options import TrainOptions
from fleet.training.spec import DEMO_ENCODER, TrainSpec
from fleet.training.task import FleetTraining
from producer.opening import published_output_of
from producer.plan import refuse_secrets
from producer.sources.inputs import pinned_uri


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """`data` stands for the whole training in the ledger, and identifies the labelled rows."""

    training: FleetTraining
    data: Shard

    @property
    def warning(self) -> str | None:
        """What a user should know before a machine is lost."""
        if self.training.spec.full is None or self.training.checkpoints_uri is not None:
            return None
        return (
            "Checkpoints stay on the machine that trains. If it is lost, another one begins again. To go on from the last "
            "checkpoint anywhere, add --checkpoints s3://BUCKET/FOLDER."
        )


def plan_training(options: TrainOptions) -> TrainingPlan:
    """Raises UsageError for data, an output or a base model that do not fit. Reads only the columns of the data, not its rows.

    What the output has is looked at later, by `enqueue_training`.
    """
    spec = _for_any_machine(options.spec)
    source = label_source(spec)
    _check_columns(source)
    if spec.validation_uri:
        _check_columns(source.beside(spec.validation_uri))
    model_output(spec.output_uri)  # checks its form
    training = FleetTraining(
        spec=spec,
        checkpoints_uri=_checkpoints(options.checkpoints, spec.output_uri),
        loader_processes=options.loader_processes,
    )
    return TrainingPlan(training=training, data=_data(spec))


def _for_any_machine(spec: TrainSpec) -> TrainSpec:
    """The same with full paths, and with the commits of a base model and of data on the Hub."""
    model, revision = spec.base_model, spec.revision
    if model != DEMO_ENCODER:
        model, revision = pinned_model(model, revision)
    return replace(
        spec,
        data_uri=_pinned(spec.data_uri, "--data") if spec.data_uri else None,
        label_with=_output_of(spec.label_with) if spec.label_with else None,
        validation_uri=_pinned(spec.validation_uri, "--validation") if spec.validation_uri else None,
        output_uri=_absolute(spec.output_uri),
        base_model=model,
        revision=revision,
    )


def _pinned(uri: str, option: str) -> str:
    refuse_secrets(option, uri)
    try:
        with translated(f"Looking for {uri}"):
            pinned, _ = pinned_uri(uri)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    return _absolute(pinned)


def _absolute(uri: str) -> str:
    return uri if "://" in uri else str(Path(uri).expanduser().absolute())


def _checkpoints(given: str | None, output_uri: str) -> str | None:
    """Beside an output that is a folder. There is none beside a repository: they stay on the machine that trains."""
    if given is None:
        return None if is_uri(output_uri) else f"{output_uri}.checkpoints"
    if is_uri(given):
        refuse_secrets("--checkpoints", given)
        check_copied_to(given)
    return _absolute(given)


def _output_of(target: str) -> str:
    """The output of a published run, which is named by its place or its id."""
    refuse_secrets("--label-with", target)
    return _absolute(target if is_place(target) else published_output_of(target, read_settings())[0])


def _check_columns(source: LabelSource) -> None:
    for uri in source.file_uris:
        try:
            with open_input(uri) as file:
                checked_columns(source, file.schema, uri)
        except ShardsiftError as error:
            raise UsageError(str(error)) from error


def _data(spec: TrainSpec) -> Shard:
    try:
        return training_data(spec)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
