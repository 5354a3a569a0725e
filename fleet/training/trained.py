"""Look whether the output of a training has a model, and of which training it is."""

from pydantic import ValidationError

from fleet.errors import ShardError, TransientError, UsageError
from fleet.storage.model_output import model_output
from fleet.training.model import MARK, TrainedModel
from fleet.training.spec import TrainSpec
from fleet.training.task import training_id


def trained_model_at(output_uri: str) -> TrainedModel | None:
    """What the model there says of its training. None if there is none, or no training wrote it.

    Raises ShardError or TransientError if the Hub does not say.
    """
    content = model_output(output_uri).content(MARK)
    try:
        return None if content is None else TrainedModel.from_json(content)
    except ValidationError:
        return None


def model_of(spec: TrainSpec) -> TrainedModel | None:
    """The model of this training, if its output has it. Raises as `trained_model_at`."""
    model = trained_model_at(spec.output_uri)
    return model if model and model.training_id == training_id(spec) else None


def reserve_output(spec: TrainSpec) -> None:
    """Make sure that the model of this training is at the output, or can be written to it. May run twice.

    On the Hub, creates the repository, private and empty. Raises UsageError if something else is there, or if the token may
    not write.
    """
    output = model_output(spec.output_uri)
    try:
        if model_of(spec):
            return
        output.reserve()
        is_taken = output.content(MARK) is not None
    except (ShardError, TransientError) as error:
        raise UsageError(str(error)) from error
    if is_taken:
        raise UsageError(f"{spec.output_uri} has the model of another training. Name another --output.")
