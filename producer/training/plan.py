"""From the options of `producer train` to a training that any worker of the fleet can do. Checks what needs no torch."""

from dataclasses import dataclass, replace
from pathlib import Path

from fleet.errors import ShardsiftError, UsageError
from fleet.sequence_classifier import pinned_model
from fleet.settings import read_settings
from fleet.shard import Shard
from fleet.storage.identity import identity_now
from fleet.storage.inputs.opening import open_input
from fleet.storage.output import MANIFEST_PATH
from fleet.target import is_place
from fleet.training.labels import LabelSource, checked_columns, label_source, shown_path
from fleet.training.model import trained_model_at
from fleet.training.options import TrainOptions
from fleet.training.spec import DEMO_ENCODER, TrainSpec
from fleet.training.task import WHOLE, FleetTraining, training_id
from producer.opening import published_output_of


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """`data` stands for the whole training in the ledger, and identifies the labelled rows."""

    training: FleetTraining
    data: Shard


def plan_training(options: TrainOptions) -> TrainingPlan:
    """Raises UsageError for data, an output or a base model that do not fit. Reads only the columns of the data, not its rows."""
    spec = _for_any_machine(options.spec)
    source = label_source(spec)
    _check_columns(source)
    if spec.validation_uri:
        _check_columns(source.beside(spec.validation_uri))
    _check_output(spec)
    checkpoints = options.checkpoints or f"{spec.output_uri}.checkpoints"
    if "://" in checkpoints:
        raise UsageError(f"--checkpoints {checkpoints}: name a folder that the workers share.")
    training = FleetTraining(
        spec=spec, checkpoints_uri=_absolute(checkpoints), loader_processes=options.loader_processes
    )
    return TrainingPlan(training=training, data=_data(_whole_uri(spec, source)))


def _for_any_machine(spec: TrainSpec) -> TrainSpec:
    """The same with full paths, and with the commit of a base model on the Hub."""
    model, revision = spec.base_model, spec.revision
    if model != DEMO_ENCODER:
        model, revision = pinned_model(model, revision)
    return replace(
        spec,
        data_uri=_absolute(spec.data_uri) if spec.data_uri else None,
        label_with=_output_of(spec.label_with) if spec.label_with else None,
        validation_uri=_absolute(spec.validation_uri) if spec.validation_uri else None,
        output_uri=_absolute(spec.output_uri),
        base_model=model,
        revision=revision,
    )


def _absolute(uri: str) -> str:
    return uri if "://" in uri else str(Path(uri).expanduser().absolute())


def _output_of(target: str) -> str:
    """The output of a published run, which is named by its place or its id."""
    return _absolute(target if is_place(target) else published_output_of(target, read_settings())[0])


def _check_columns(source: LabelSource) -> None:
    for uri in source.file_uris:
        try:
            with open_input(uri) as file:
                checked_columns(source, file.schema, uri)
        except ShardsiftError as error:
            raise UsageError(str(error)) from error


def _whole_uri(spec: TrainSpec, source: LabelSource) -> str:
    """The file that identifies all rows: the only one, or the manifest of a run, which has the digests of its files."""
    if spec.label_with:
        return f"{spec.label_with.rstrip('/')}/{MANIFEST_PATH}"
    if len(source.file_uris) > 1:
        raise UsageError(
            f"{source.shown} has {len(source.file_uris)} files, and a training of the fleet reads one, or the output of a run "
            "(--label-with). Put the rows into one file, or train on this machine: worker train."
        )
    return shown_path(source.file_uris[0])


def _check_output(spec: TrainSpec) -> None:
    """A model of the same training may be there: then the training is done."""
    if "://" in spec.output_uri:
        raise UsageError(f"--output {spec.output_uri}: name a folder that this machine and the workers share.")
    output, model = Path(spec.output_uri), trained_model_at(spec.output_uri)
    is_empty = output.is_dir() and not any(output.iterdir())
    if output.exists() and not is_empty and (model is None or model.training_id != training_id(spec)):
        raise UsageError(f"{output} already exists. Name another folder for the model, or remove this one.")


def _data(uri: str) -> Shard:
    try:
        identity, size_bytes = identity_now(uri)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    return Shard(name=WHOLE, uri=uri, identity=identity, size_bytes=size_bytes)
