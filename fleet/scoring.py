"""A scoring: one model applied to one text column, and the columns that it adds to each row."""

from dataclasses import dataclass

from fleet.choices import Dtype, Function
from fleet.model import Model


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What to score and with what. The names of the columns that it adds begin with `score_column`."""

    model: Model
    dtype: Dtype  # precision of the model
    text_column: str
    score_column: str
    function_to_apply: Function = "none"  # turns logits into scores
    int_score: bool = False  # add FineWeb-Edu's rounded score
    score_blank: bool = False  # also score texts without a visible character
    scores_from: Model | None = None  # an earlier run that has the scores: the model is not loaded

    @property
    def outputs(self) -> int:
        return len(self.model.labels)

    @property
    def served_by(self) -> Model:
        """What a worker loads to do this scoring."""
        return self.scores_from or self.model

    @property
    def queue(self) -> str:
        """The queue of the workers that can do this scoring."""
        return self.served_by.queue(self.dtype)

    @property
    def int_score_column(self) -> str:
        return f"int_{self.score_column}"

    @property
    def label_column(self) -> str:
        return f"{self.score_column}_label"

    @property
    def logits_column(self) -> str:
        """In the scores file only, and only if the logits do not follow from the score."""
        return f"{self.score_column}_logits"

    @property
    def has_logits_column(self) -> bool:
        return self.outputs > 1 or self.function_to_apply != "none"

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns that a kept row gains, in order."""
        label = (self.label_column,) if self.outputs > 1 else ()
        rounded = (self.int_score_column,) if self.int_score else ()
        return (self.score_column, *label, *rounded)
