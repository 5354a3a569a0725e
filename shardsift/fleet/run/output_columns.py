"""The columns that scores add to a row, and the schemas of the output files."""

import json
from collections.abc import Sequence

import pyarrow as pa

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import BUCKET, RunSpec

SHARD = pa.field("shard", pa.string(), nullable=False)  # the shard's name, as in the manifest
ROW = pa.field("row", pa.int64(), nullable=False)  # the row's number in its file, from 0
ERROR = pa.field("error", pa.string())  # the reason why a row has no score; null if it has one
TEXT_DIGEST = pa.field("text_digest", pa.binary(16))  # from `row_digests`; null if a row has no text
_FEATURES = b"huggingface"
_DTYPES = {pa.string(): "string", pa.int64(): "int64", pa.float32(): "float32"}  # names of `datasets` for our types
_LOGITS = pa.list_(pa.float32())
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # view type → its plain type
_FIELD_ID = b"PARQUET:field_id"  # an id that is only valid in the input file


def output_fields(spec: RunSpec) -> list[pa.Field]:
    """Return the fields that kept rows and the scores file have in common, in the order of `spec.output_columns`."""
    fields = [field for scoring in spec.scorings for field in scoring_fields(scoring)]
    return [*fields, pa.field(BUCKET, pa.int64())] if spec.buckets else fields


def scoring_fields(scoring: Scoring) -> list[pa.Field]:
    types = {
        scoring.score_column: pa.float32(),
        scoring.label_column: pa.string(),
        **dict.fromkeys(scoring.label_score_columns, pa.float32()),
        scoring.int_score_column: pa.int64(),
    }
    return [pa.field(name, types[name]) for name in scoring.output_columns]


def logits_fields(spec: RunSpec) -> list[pa.Field]:
    """Return the fields that only scores files have. Each holds the list of all logits of one scoring."""
    return [pa.field(scoring.logits_column, _LOGITS) for scoring in spec.scorings if scoring.has_logits_column]


def row_fields(spec: RunSpec) -> list[pa.Field]:
    """Return the fields that identify the input row of a kept row. Use them to join kept rows with the scores file."""
    return [field.with_name(name) for field, name in zip((SHARD, ROW), spec.row_columns, strict=True)]


def kept_schema(input_schema: pa.Schema, spec: RunSpec) -> pa.Schema:
    """Return the schema of kept rows: the input's columns, then the run's. Raises UsageError if names collide.

    If the run merges files, the input's columns become nullable and are not dictionary-coded, because shards may differ
    in this.
    """
    _refuse_collisions(input_schema, spec)
    fields = [*input_schema] if spec.target_file_bytes is None else [*map(_as_in_others, input_schema)]
    added = [*row_fields(spec), *output_fields(spec)]
    return pa.schema([*fields, *added], metadata=_metadata(input_schema, added))


def _metadata(schema: pa.Schema, added: Sequence[pa.Field]) -> dict[bytes, str] | None:
    """Return the metadata of the output: the features that the library `datasets` reads, such as the names of classes.

    None if the input has no features. Other metadata of the input is dropped, because it may be wrong for the output.
    Spark, for example, reads only the columns that its metadata names.
    """
    try:
        known = json.loads(schema.metadata[_FEATURES])["info"]["features"]
        features = {name: known[name] for name in schema.names if name in known}
    except (KeyError, TypeError, ValueError):
        return None
    features |= {field.name: {"dtype": _DTYPES[field.type], "_type": "Value"} for field in added}
    return {_FEATURES: json.dumps({"info": {"features": features}})}


def _as_in_others(field: pa.Field) -> pa.Field:
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return field.with_type(plain_type(plain, nullable=True)).with_nullable(True)


def plain_type(kind: pa.DataType, *, nullable: bool = False) -> pa.DataType:
    """Return the type with which Parquet can store the values: plain types replace views and nested dictionaries.

    All list items get the field name `element`. If `nullable`, every inner value may be null, except the key of a map.
    """

    def inner(field: pa.Field, name: str) -> pa.Field:
        value = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        kept = {key: value for key, value in (field.metadata or {}).items() if key != _FIELD_ID}
        return pa.field(name, plain_type(value, nullable=nullable), nullable or field.nullable, kept)

    if pa.types.is_struct(kind):
        return pa.struct([inner(field, field.name) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            inner(kind.key_field, "key").with_nullable(False), inner(kind.item_field, "value"), kind.keys_sorted
        )
    if not pa.types.is_nested(kind):
        return _PLAIN.get(kind, kind)
    item = inner(kind.value_field, "element")
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    is_large = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    return pa.large_list(item) if is_large else pa.list_(item)


def _refuse_collisions(input_schema: pa.Schema, spec: RunSpec) -> None:
    added = {name.lower() for name in spec.output_columns}  # SQL ignores the case
    taken = {name for name in input_schema.names if name.lower() in added}
    if spec.buckets and any(name.lower() == BUCKET for name in taken):
        raise UsageError('The input already has a column "bucket", which --buckets adds. Leave out --buckets.')
    if taken:
        raise UsageError(
            f'The input already has a column "{min(taken)}", which scoring adds. '
            "Give the model another name, by which its columns are called: --model NAME=MODEL adds NAME_score."
        )
    check_output_columns(spec.scorings)


def check_output_columns(scorings: Sequence[Scoring]) -> None:
    """Raise UsageError if scorings add two columns of the same name, or a column that every scores file has."""
    added = [column for scoring in scorings for column in scoring.output_columns]
    lower = [column.lower() for column in added]  # SQL ignores the case
    if doubled := [column for column in added if lower.count(column.lower()) > 1]:
        raise UsageError(
            f'Two models would add a column "{doubled[0]}". Give one of them another name, as in --model NAME=MODEL.'
        )
    logits = (scoring.logits_column.lower() for scoring in scorings if scoring.has_logits_column)
    if reserved := {SHARD.name, ROW.name, *logits, ERROR.name, TEXT_DIGEST.name} & set(lower):
        raise UsageError(
            f'The name "{min(reserved)}" is taken in the scores file. '
            "Name the model otherwise, with --model NAME=MODEL."
        )


def scores_schema(spec: RunSpec) -> pa.Schema:
    """Return the schema of a scores file. The file has every input row, so that a new threshold needs no GPU."""
    digest = [TEXT_DIGEST] if spec.unique else []
    return pa.schema([SHARD, ROW, *output_fields(spec), *logits_fields(spec), ERROR, *digest])


def repeated_column(schema: pa.Schema) -> str | None:
    """Return the first name that several columns have, or None. Parquet allows this, but many readers do not."""
    return next((name for name in schema.names if schema.names.count(name) > 1), None)


def describe_columns(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """Return the name and type of each column. They must be equal in all shards of a run."""
    return tuple((field.name, type_name(field.type)) for field in schema)


def type_name(kind: pa.DataType) -> str:
    """Return a type's name without "not null", because nullability may differ between shards."""
    return str(kind).replace(" not null", "")
