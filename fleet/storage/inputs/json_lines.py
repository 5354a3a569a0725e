"""Rows of a JSON Lines file: one object a line, in UTF-8. A field that a line lacks is null; blank lines are no rows."""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from fleet.errors import ShardError
from fleet.storage.inputs.bad_rows import BadRow, BadRows, note_bad_rows
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
from fleet.storage.inputs.json_types import Seen, TypeConflict, has_rounded, is_unicode, misfits
from fleet.storage.inputs.line_blocks import Block, LineFile, RecordEnds, is_utf8
from fleet.storage.inputs.type_names import is_named

_RECORDS = RecordEnds(last_end=lambda piece: piece.rfind(b"\n") + 1)
_WHITE = b" \t\r\n"
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_NOTHING = b"{}"  # stands for a bad row, since it is read as a row of nulls
_NOT_JSON, _MISFIT = "not valid JSON", "does not fit the run's columns"


class JsonLines:
    """A JSON Lines file as an InputFile. Without `columns`, those of its first rows; with `only`, others are left out."""

    def __init__(self, lines: LineFile, columns: Columns | None, *, only: bool = False) -> None:
        self._lines = lines
        self._columns = columns
        self._only = {name for name, _ in columns or ()} if only else None

    @cached_property
    def schema(self) -> pa.Schema:
        """Raises ShardError if the first rows have no columns, UsageError if they lack a field whose type they decide."""
        if self._columns is None:
            return self._seen_schema()
        seen = self._seen_schema() if seen_names(self._columns) else pa.schema([])
        if missing := [name for name in seen_names(self._columns) if name not in seen.names]:
            raise no_such_field(missing[0], self._first_fields(), self._lines.uri)
        return typed(self._columns, seen, self._lines.uri)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Reads on the caller's thread only."""
        first_row = 0
        for block in self._lines.blocks(_RECORDS):
            table, found = self._rows(block)
            note_bad_rows(found, bad, first_row=first_row, uri=self._lines.uri)
            yield from sliced(table.select(columns or self.schema.names), most_rows)
            first_row += len(table)

    def count_rows(self, most: int | None = None) -> int:
        """Counts lines, whatever they hold."""
        return counted_rows((len(_filled_lines(block)) for block in self._lines.blocks(_RECORDS)), most)

    def _rows(self, block: Block) -> tuple[pa.Table, BadRows]:
        """The rows of a block, and the bad ones by their place among them."""
        table = self._parsed(block.data.rstrip(_WHITE))
        if table is not None:
            return table, {}
        lines = _filled_lines(block)
        texts = [text for _, text in lines]
        found = {place: self._bad_row(*lines[place]) for place in self._bad_places(texts)}
        good = [_NOTHING if place in found else text for place, text in enumerate(texts)]
        table = self._parsed(b"\n".join(good)) if good else self.schema.empty_table()
        if table is None:
            raise self._lines.error(block.first_line, "not readable as JSON Lines from this line on.")
        return table, found

    def _bad_places(self, texts: list[bytes], first: int = 0) -> Iterator[int]:
        """The places of the lines that cannot be read by themselves, found by halves."""
        if not texts or self._parsed(b"\n".join(texts)) is not None:
            return
        half = len(texts) // 2
        if not half:
            yield first
            return
        yield from self._bad_places(texts[:half], first)
        yield from self._bad_places(texts[half:], first + half)

    def _parsed(self, data: bytes) -> pa.Table | None:
        """The rows of some lines. None unless each is one object that fits the schema."""
        if not is_utf8(data) or not _are_objects(data):
            return None
        if self._only is not None and self._has_objects and any(map(self._problem, data.split(b"\n"))):
            return None  # pyarrow would also leave out fields inside of the columns
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self.schema,
                    newlines_in_values=False,
                    unexpected_field_behavior="error" if self._only is None else "ignore",
                ),
            )
        except pa.ArrowException:
            return None
        if len(table) != data.count(b"\n") + 1:
            return None
        if any(map(has_rounded, table.columns)) and any(map(self._problem, data.split(b"\n"))):
            return None
        return table

    @cached_property
    def _has_objects(self) -> bool:
        return any("struct<" in str(field.type) for field in self.schema)

    def _bad_row(self, line: int, text: bytes) -> BadRow:
        reason, detail, remedy = self._problem(text) or (_NOT_JSON, "not readable as JSON", "")
        return BadRow(place=f"line {line:,}", reason=reason, detail=detail, remedy=remedy)

    def _problem(self, text: bytes) -> tuple[str, str, str] | None:
        """The reason why a line cannot be read, the detail, and a remedy."""
        try:
            misfit = next(misfits(self._fields(text), self.schema), None)
        except ValueError as error:
            return _NOT_JSON, str(error), ""
        return (_MISFIT, misfit, RUN_REMEDY) if misfit else None

    def _seen_schema(self) -> pa.Schema:
        seen, refused = Seen(), ""
        for line, text in self._first_lines():
            try:
                seen.add(self._fields(text))
            except ValueError as error:
                refused = refused or f" Line {line:,}: {error}."
        if not seen.fields and (self._only is None or not self._first_fields()):
            raise ShardError(f"{self._lines.uri} has no row with a field, so its columns are not known.{refused}")
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
        names: dict[str, None] = {}
        for _, text in self._first_lines():
            with suppress(ValueError):
                names |= dict.fromkeys(_object(text))
        return list(names)

    def _first_lines(self) -> Iterator[tuple[int, bytes]]:
        for block in self._lines.sample(_RECORDS):
            yield from _filled_lines(block)

    def _fields(self, text: bytes) -> dict[str, Any]:
        """The fields that are read. Raises ValueError if the line is not an object."""
        row = _object(text)
        return row if self._only is None else {name: value for name, value in row.items() if name in self._only}


def _filled_lines(block: Block) -> list[tuple[int, bytes]]:
    """The lines that are not blank, each with its number."""
    lines = enumerate(block.data.split(b"\n"), start=block.first_line)
    return [(line, stripped) for line, text in lines if (stripped := text.strip(_WHITE))]


def _are_objects(data: bytes) -> bool:
    """Whether each line begins and ends with a brace. Then none is blank, and no object of valid JSON has more than one line.

    pyarrow's reader ends the process for some lines that are not an object.
    """
    if not data.endswith(b"}"):
        return False
    content = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(content == _NEWLINE)
    ends = newlines - np.where(content[newlines - 1] == _RETURN, 2, 1)
    return content[0] == _OPEN and bool(np.all(content[newlines + 1] == _OPEN) and np.all(content[ends] == _CLOSE))


def _object(text: bytes) -> dict[str, Any]:
    """The object in a line. Raises ValueError if it is none."""
    if not is_utf8(text):
        raise ValueError("not UTF-8")
    if not text.startswith(b"{"):
        raise ValueError("not a JSON object. Each line has to be one object, like {…}")
    try:
        row: dict[str, Any] = json.loads(text, object_pairs_hook=_with_unique_names, parse_float=_float)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} (character {error.pos + 1:,})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from error
    return row


def _with_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the field "{name}" stands twice in an object')
    if not all(map(is_unicode, fields)):
        raise ValueError("the name of a field has half of a surrogate pair, which is not Unicode")
    return fields


def _float(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise ValueError("a number is too large for a double")
    return value
