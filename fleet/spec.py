"""The RunSpec: everything that decides what a run publishes, and nothing else.

Two specs with equal fields are the same run, on any machine and any day. What changes speed only
(batch sizes, number of workers, lease) is a setting, not part of the spec.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import TypeAdapter

from fleet.choices import Dtype, Function
from fleet.model import Model, slug

WINDOW_ROWS = 8192  # rows tokenised, sorted and scored together
WINDOW_BYTES = 64 << 20  # and never more Arrow bytes than this, however long the texts are
_RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """What to read, how to score it, what to keep, and where to put it."""

    input_uris: tuple[str, ...]
    input_revision: str  # the commit of a Hub dataset, else a digest of the shards' names and identities
    crawl: str | None
    columns: tuple[tuple[str, str], ...]  # (name, Arrow type) of every input column, in order
    text_column: str
    model: Model
    dtype: Dtype
    score_column: str
    int_score: bool  # add FineWeb-Edu's rounded score
    where: str | None  # SQL over columns and scores; None keeps every row
    output_uri: str
    function_to_apply: Function = "none"  # turns logits into scores
    score_blank: bool = False  # give texts without a visible character to the model too
    row_columns: tuple[str, str] | None = ("shard", "row")  # of a kept row: the shard and the place that it came from
    limit_shards: int | None = None
    limit_rows: int | None = None
    window_rows: int = WINDOW_ROWS
    window_bytes: int = WINDOW_BYTES
    publish_paths: bool = False  # name inputs, model and workers in full in what is published; see fleet/disclosure.py

    @property
    def run_id(self) -> str:
        """A readable head and 12 hex digits of the digest of all fields."""
        digest = hashlib.sha256(self.to_json()).hexdigest()[:12]
        return f"{slug(self._input_head)}.{self.model.slug}.{digest}"

    @property
    def queue(self) -> str:
        return self.model.queue(self.dtype)

    @property
    def int_score_column(self) -> str:
        return f"int_{self.score_column}"

    @property
    def label_column(self) -> str:
        return f"{self.score_column}_label"

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns that a kept row gains, in order."""
        label = (self.label_column,) if len(self.model.labels) > 1 else ()
        rounded = (self.int_score_column,) if self.int_score else ()
        return (self.score_column, *label, *rounded)

    @property
    def _input_head(self) -> str:
        if self.crawl:
            return self.crawl
        fixed = re.split(r"[*?\[]", self.input_uris[0])[0].rstrip("/")
        return PurePosixPath(fixed).stem or "input"

    def to_json(self) -> bytes:
        return _SPEC.dump_json(self)

    @staticmethod
    def from_json(data: bytes | str) -> "RunSpec":
        """The spec written by `to_json`. Raises pydantic's ValidationError on anything else."""
        return _SPEC.validate_json(data, strict=False)


_SPEC = TypeAdapter(RunSpec)


def is_run_id(text: str) -> bool:
    return bool(_RUN_ID.fullmatch(text))
