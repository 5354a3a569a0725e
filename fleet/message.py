"""The task message. It names a run and a shard; everything else is in the ledger.

A message is a hint. It may be lost, duplicated or late, which costs only time. It carries no path and no code, so a
forged message can at most ask for a shard that the ledger already has.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict

from fleet.errors import NewerVersion
from fleet.shard import is_safe_name
from fleet.spec import is_run_id

SCORE_SHARD = "shardsift.score_shard"
NOT_OURS, NEWER = "messages that are not ours", "messages of a newer version"  # what the ledger counts as refused
_VERSION = 1


def _checked_run_id(text: str) -> str:
    if not is_run_id(text):
        raise ValueError("not a run id")
    return text


def _checked_shard_name(text: str) -> str:
    if not is_safe_name(text):
        raise ValueError("not a shard name")
    return text


class ScoreShard(BaseModel):
    """Try to score this shard of this run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1] = 1
    run_id: Annotated[str, AfterValidator(_checked_run_id)]
    shard: Annotated[str, AfterValidator(_checked_shard_name)]

    @classmethod
    def understood(cls, fields: dict[str, Any]) -> Self:
        """Parse a message. Raises NewerVersion, or pydantic's ValidationError if it is not one of ours."""
        version = fields.get("version")
        if isinstance(version, int) and version > _VERSION:
            raise NewerVersion(
                f"A message has version {version}, but this process only understands version {_VERSION}. Update shardsift here."
            )
        return cls.model_validate(fields)
