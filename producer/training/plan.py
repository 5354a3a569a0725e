"""From the options of `producer train` to a training that any worker of the fleet can do. Checks what needs no torch."""

from dataclasses import dataclass, replace
from pathlib import Path

from fleet.errors import ShardsiftError, UsageError
from fleet.fleet_training import WHOLE, FleetTraining, training_id
from fleet.sequence_classifier import pinned_model
from fleet.shard import Shard
from fleet.storage.identity import identity_now
from fleet.storage.opening import open_parquet
from fleet.train_options import TrainOptions
from fleet.trained_model import trained_model_at
from fleet.training import DEMO_ENCODER, TrainSpec


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """`data` stands for the whole training in the ledger, and identifies the labelled rows."""

    training: FleetTraining
    data: Shard


def plan_training(options: TrainOptions) -> TrainingPlan:
    """Raises UsageError for data, an output or a base model that do not fit. Reads the footers of the data files only."""
    spec = _for_any_machine(options.spec)
    for uri in filter(None, (spec.data_uri, spec.validation_uri)):
        _check_columns(uri, spec)
    _check_output(spec)
    checkpoints = options.checkpoints or f"{spec.output_uri}.checkpoints"
    training = FleetTraining(
        spec=spec, checkpoints_uri=_absolute(str(checkpoints)), loader_processes=options.loader_processes
    )
    return TrainingPlan(training=training, data=_data(spec.data_uri))


def _for_any_machine(spec: TrainSpec) -> TrainSpec:
    """The same with full paths, and with the commit of a base model on the Hub."""
    model, revision = spec.base_model, spec.revision
    if model != DEMO_ENCODER:
        model, revision = pinned_model(model, revision)
    return replace(
        spec,
        data_uri=_absolute(spec.data_uri),
        validation_uri=_absolute(spec.validation_uri) if spec.validation_uri else None,
        output_uri=_absolute(spec.output_uri),
        base_model=model,
        revision=revision,
    )


def _absolute(uri: str) -> str:
    return uri if "://" in uri else str(Path(uri).expanduser().absolute())


def _check_columns(uri: str, spec: TrainSpec) -> None:
    try:
        with open_parquet(uri) as parquet:
            names = parquet.schema_arrow.names
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    for option, name in (("--text-column", spec.text_column), ("--label-column", spec.label_column)):
        if name not in names:
            raise UsageError(f'{uri} has no column "{name}"; it has: {", ".join(names)}. Name one with {option}.')


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
