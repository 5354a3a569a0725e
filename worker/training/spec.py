"""What decides the weights of a trained classifier. Knows no torch."""

from dataclasses import dataclass, fields
from typing import Literal

TrainTask = Literal["auto", "regression", "classification"]
ClassWeights = Literal["none", "balanced"]
TrainDtype = Literal["auto", "float32", "bfloat16", "float16"]
FEWEST_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class FullTraining:
    """How all weights of a model are trained. A step takes `batch_rows` × `accumulation_steps` rows.

    Under `torchrun`, each process takes as many.
    """

    epochs: float = 3.0
    learning_rate: float = 5e-5
    batch_rows: int = 32  # in memory at once, on each device at most
    accumulation_steps: int = 1  # batches of which the gradients are added before the weights change
    weight_decay: float = 0.01
    warmup_share: float = 0.1  # of all steps, in which the learning rate grows from 0
    checkpoint_steps: int = 500  # steps between two checkpoints; the held-out rows are scored at each
    patience: int | None = None  # checkpoints without a lower loss, after which training ends early


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """Equal specs and equal files give the same classifier, on one kind of device and one set of versions."""

    data_uri: str | None = None  # a file, folder or glob of files with labelled texts
    label_with: str | None = None  # instead: the output of a published run, whose scores are the labels
    text_column: str | None = None  # None: "text", or what the run has scored
    label_column: str | None = (
        None  # None: "label", or the best label of the run, or its score if it has one output; of several models, it says which
    )
    min_label_score: float | None = None  # rows of the run whose label has a lower score are left out
    base_model: str  # NAME@REVISION for a revision on the Hub
    output_uri: str
    task: TrainTask = "auto"  # texts as labels are classes, numbers are a regression
    class_weights: ClassWeights = "none"
    full: FullTraining | None = None  # None: the encoder is frozen, and only the last layer is fitted
    dtype: TrainDtype = "auto"
    max_tokens: int | None = None  # read of a text; None: as many as the model takes
    threshold: float | None = (
        None  # of a regression: a score from here on is kept; None: the middle of the labels' range
    )
    validation_uri: str | None = None  # rows to measure on; None: `held_out_share` of the data, chosen by the seed
    held_out_share: float = 0.2
    seed: int = 0


_OPTIONS = {  # of `worker train`, where they are not called as the fields
    "data_uri": "data",
    "output_uri": "output",
    "validation_uri": "validation",
    "held_out_share": "held-out",
    "accumulation_steps": "accumulate",
}
_WITHOUT_OPTION = ("full", "weight_decay", "warmup_share")


def train_command(spec: TrainSpec) -> list[str]:
    """The command that trains this, without options that have their default."""
    full = [] if spec.full is None else ["--full", *_given(spec.full)]
    return ["worker", "train", *_given(spec), *full]


def _given(part: TrainSpec | FullTraining) -> list[str]:
    given: list[str] = []
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name not in _WITHOUT_OPTION and value != field.default:
            given += [f"--{_OPTIONS.get(field.name, field.name.replace('_', '-'))}", str(value)]
    return given
