"""Rows of a JSON Lines file: one object a line, in UTF-8. A field that a line lacks is null; blank lines are no rows."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from fleet.errors import ShardError
from fleet.storage.inputs.columns import (
    REMEDY,
    RUN_REMEDY,
    Columns,
    counted_rows,
    no_such_field,
    seen_names,
    sliced,
    typed,
)
from fleet.storage.inputs.input_file import STEP_ROWS
from fleet.storage.inputs.json_types import Seen, TypeConflict, misfits
from fleet.storage.inputs.line_blocks import Block, LineFile, RecordEnds
from fleet.storage.inputs.type_names import is_named

_RECORDS = RecordEnds(last_end=lambda piece: piece.rfind(b"\n") + 1)
_WHITE = b" \t\r"
_NEWLINE, _BRACE = ord("\n"), ord("{")


class JsonLines:
    """A JSON Lines file as an InputFile. Without `columns`, those of its first rows; with `only`, others are left out."""

    def __init__(self, lines: LineFile, columns: Columns | None, *, only: bool = False) -> None:
        self._lines = lines
        self._columns = columns
        self._only = {name for name, _ in columns or ()} if only else None

    @cached_property
    def schema(self) -> pa.Schema:
        """Raises ShardError if the first rows have no common columns, UsageError if they lack a field whose type they decide."""
        if self._columns is None:
            return self._seen_schema()
        seen = self._seen_schema() if seen_names(self._columns) else pa.schema([])
        if missing := [name for name in seen_names(self._columns) if name not in seen.names]:
            raise no_such_field(missing[0], self._first_fields(), self._lines.uri)
        return typed(self._columns, seen, self._lines.uri)

    def batches(
        self, columns: Sequence[str] | None = None, *, most_rows: int = STEP_ROWS, use_threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Reads on the caller's thread only. Raises ShardError that names the line of a row which does not fit the schema."""
        for block in self._lines.blocks(_RECORDS):
            self._lines.check_utf8(block)
            if rows := self._row_count(block):
                yield from sliced(self._parsed(block, rows).select(columns or self.schema.names), most_rows)

    def count_rows(self, most: int | None = None) -> int:
        """Counts lines and checks little else."""
        return counted_rows(map(self._row_count, self._lines.blocks(_RECORDS)), most)

    def _seen_schema(self) -> pa.Schema:
        seen = Seen(kind=dict)
        for block in self._lines.sample(_RECORDS):
            for line, row in self._rows(block):
                try:
                    seen.add(self._read_fields(row))
                except TypeConflict as conflict:
                    raise self._lines.error(line, f"{conflict}. {REMEDY}") from conflict
        if not seen.fields and not self._first_fields():
            raise ShardError(f"{self._lines.uri} has no row with a field, so its columns are not known.")
        try:
            schema = seen.schema()
        except TypeConflict as conflict:
            raise ShardError(f"{self._lines.uri}: {conflict}. {REMEDY}") from conflict
        if unnamed := next((field.name for field in schema if not is_named(field.type)), None):
            problem = f'"{unnamed}" has fields with names like "a: b", which the name of its type cannot hold'
            raise ShardError(f"{self._lines.uri}: {problem}. {REMEDY}")
        return schema

    def _first_fields(self) -> list[str]:
        """The fields of the first rows, also those that are left out."""
        blocks = self._lines.sample(_RECORDS)
        return list(dict.fromkeys(name for block in blocks for _, row in self._rows(block) for name in row))

    def _row_count(self, block: Block) -> int:
        """The lines that are not blank. Each must be an object: pyarrow's reader ends the process for others."""
        content = np.frombuffer(block.data, np.uint8)
        starts = np.concatenate([[0], np.flatnonzero(content == _NEWLINE) + 1])
        starts = starts[starts < len(content)]
        if np.all(content[starts] == _BRACE):
            return len(starts)
        return sum(1 for _ in self._filled_lines(block))

    def _filled_lines(self, block: Block) -> Iterator[tuple[int, bytes]]:
        for line, text in enumerate(block.data.split(b"\n"), start=block.first_line):
            if text.strip(_WHITE):
                if not text.lstrip(_WHITE).startswith(b"{"):
                    raise self._lines.error(line, "not a JSON object. Each line has to be one object, like {…}.")
                yield line, text

    def _parsed(self, block: Block, rows: int) -> pa.Table:
        if self._has_objects and self._only is not None and (misfit := self._misfit(block)):
            raise misfit  # pyarrow would also leave out fields inside of the columns
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(block.data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self.schema,
                    newlines_in_values=False,
                    unexpected_field_behavior="error" if self._only is None else "ignore",
                ),
            )
        except pa.ArrowException as error:
            raise (self._misfit(block) or self._unreadable(block)) from error
        if len(table) != rows:
            raise self._misfit(block) or self._unreadable(block)
        return table

    @cached_property
    def _has_objects(self) -> bool:
        return any("struct<" in str(field.type) for field in self.schema)

    def _misfit(self, block: Block) -> ShardError | None:
        """The first row of a block that is not JSON or does not fit the schema, and why."""
        try:
            for line, row in self._rows(block):
                if problem := next(misfits(self._read_fields(row), self.schema), None):
                    return self._lines.error(line, f"{problem}. {RUN_REMEDY}")
        except ShardError as error:
            return error
        return None

    def _unreadable(self, block: Block) -> ShardError:
        return self._lines.error(block.first_line, "not readable as JSON Lines from this line on.")

    def _read_fields(self, row: dict[str, Any]) -> dict[str, Any]:
        return row if self._only is None else {name: value for name, value in row.items() if name in self._only}

    def _rows(self, block: Block) -> Iterator[tuple[int, dict[str, Any]]]:
        self._lines.check_utf8(block)
        for line, text in self._filled_lines(block):
            try:
                yield line, json.loads(text, object_pairs_hook=_object)
            except json.JSONDecodeError as error:
                raise self._lines.error(line, f"not valid JSON: {error.msg} (character {error.pos + 1:,}).") from error
            except (ValueError, RecursionError) as error:
                raise self._lines.error(line, f"not valid JSON: {error}.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f'the field "{next(name for name in names if names.count(name) > 1)}" stands twice in an object'
        )
    return fields
