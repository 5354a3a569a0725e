"""The columns that scoring adds to a row, and the schemas that follow from them."""

import pyarrow as pa

from fleet.errors import UsageError
from fleet.spec import RunSpec

ROW = pa.field("row", pa.int64(), nullable=False)  # the row's place in its shard, from 0
LOGITS = pa.field("logits", pa.list_(pa.float32()))  # every output, for models with more than one
ERROR = pa.field("error", pa.string())  # why a row has no score; null where it has one


def added_fields(spec: RunSpec) -> list[pa.Field]:
    """The fields a kept row gains, in the order of `spec.added_columns`."""
    types = {
        spec.score_column: pa.float32(),
        spec.label_column: pa.string(),
        spec.int_score_column: pa.int64(),
    }
    return [pa.field(name, types[name]) for name in spec.added_columns]


def kept_schema(input_schema: pa.Schema, spec: RunSpec) -> pa.Schema:
    """The input's columns and metadata, then the added ones. Raises UsageError where the names collide."""
    taken = set(input_schema.names) & set(spec.added_columns)
    if taken:
        raise UsageError(
            f'The input already has a column "{min(taken)}", which scoring adds. '
            "Name the added one otherwise, for example --score-column edu_score."
        )
    reserved = {field.name for field in (ROW, LOGITS, ERROR)} & set(spec.added_columns)
    if reserved:
        raise UsageError(
            f'The name "{min(reserved)}" is taken in the scores file. '
            "Name the added column otherwise, for example --score-column edu_score."
        )
    return pa.schema([*map(_without_view, input_schema), *added_fields(spec)], metadata=input_schema.metadata)


def _without_view(field: pa.Field) -> pa.Field:
    """A view type as the plain type that is the same in Parquet: pyarrow cannot pick rows of views."""
    return field.with_type(_PLAIN.get(field.type, field.type))


_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def scores_schema(spec: RunSpec) -> pa.Schema:
    """The side file: a line for every input row, so that another threshold needs no GPU."""
    logits = [LOGITS] if len(spec.model.labels) > 1 else []
    return pa.schema([ROW, *added_fields(spec), *logits, ERROR])


def is_text(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return is_text(data_type.value_type)
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def describe_columns(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """The (name, type) pairs by which shards of a run must agree."""
    return tuple((field.name, str(field.type)) for field in schema)
