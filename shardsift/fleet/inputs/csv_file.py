"""Read the rows of a CSV file as in RFC 4180: UTF-8, a line of names, commas, doubled quotes in quoted fields.

An empty field is null; an empty field in quotes is the empty text. Blank lines are skipped. pyarrow reads the fields.
It would misread some invalid rows without an error, so a pattern finds those first.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.columns import ColumnTypes, Misfit, field_path, schema_of
from shardsift.fleet.inputs.formats import CSV_LAYOUT
from shardsift.fleet.inputs.input_file import BadRow, BadRows, LeftOut, with_nulls
from shardsift.fleet.inputs.line_blocks import Block, LineRows, is_utf8

_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^",\r\n]*+)'
_END = rb"\r?(?:\n|\Z)"
_ANY_ROW = rb"%b(?:,%b)*+%b" % (_FIELD, _FIELD, _END)
_LINE = rb"[^\n]*+(?:\n|\Z)"
_HEADER = re.compile(rb"%b|(?P<odd>%b)" % (_ANY_ROW, _LINE))
_FIELDS = "another number of fields"
_ODD, _ODD_DETAIL = "a quote or CR inside a field", 'a quote (") or a CR inside a field'
_NO_END = "a quoted field has no end, or a quote stands inside a field"
_ODD_REMEDY = 'Quote such a field whole, with two quotes for one: "a ""b"" c".'
_NOT_UTF8 = ("not UTF-8", "not UTF-8", "Convert the file to UTF-8.")
_Problems = dict[int, tuple[str, str, str]]  # index of a row in its block → reason, detail, remedy


class CsvFile(LineRows):
    @cached_property
    def schema(self) -> pa.Schema:
        """The run's columns. Those that the file lacks are null. Raises ShardError if the file has none of them."""
        if not {name for name, _ in self.columns} & {*self._names}:
            wanted, here = (", ".join(names) for names in (dict(self.columns), self._names))
            raise ShardError(f"{self.uri} has no column of the run, which reads {wanted}; it has: {here}. {CSV_LAYOUT}")
        known = schema_of(self.columns, self.uri)
        for field in known:
            if field.name in self._names and field.type not in (pa.string(), *_PATTERNS):
                raise ShardError(
                    f'{self.uri} cannot have the column "{field.name}" of the run, which is {field.type}. Score the file in '
                    "a run of its own."
                )
        return known

    def sample(self, sample_bytes: int) -> pa.Table:
        texts = (self._texts(block)[0] for block in self._first_blocks(sample_bytes))
        return pa.concat_tables([self._no_texts(), *texts])

    @staticmethod
    def columns_of(samples: Sequence[Any]) -> ColumnTypes:
        """Find the columns of a run. Skips files that share no column with the most common header."""
        common = {*Counter(tuple(one.column_names) for one in samples).most_common(1)[0][0]}
        read = [one for one in samples if common & {*one.column_names}]
        chunks: dict[str, list[pa.Array]] = {}
        for name, texts in ((name, one[name]) for one in read for name in one.column_names):
            chunks.setdefault(name, []).extend(texts.chunks)
        return tuple((name, str(type_of(pa.chunked_array(found, pa.string())))) for name, found in chunks.items())

    def _blocks(self) -> Iterator[Block]:
        for number, block in enumerate(super()._blocks()):
            yield block if number else block.part(self._header[1], len(block.data))

    def _last_end(self, piece: bytes) -> int:
        """Return the offset after the last line end that follows an even number of quotes.

        A line end after an odd number of quotes is inside a field.
        """
        last, quotes = len(piece), piece.count(b'"')
        while True:
            end = piece.rfind(b"\n", 0, last) + 1
            quotes -= piece.count(b'"', end, last)
            if not end or quotes % 2 == 0:
                return end
            last = end - 1

    def _count(self, block: Block) -> int:
        return len(self._split(block)[0])

    @property
    def _names(self) -> list[str]:
        return self._header[0]

    @cached_property
    def _header(self) -> tuple[list[str], int]:
        """The names of the columns, and the offset in the first block at which the line of names ends."""
        first = next(super()._blocks(), Block(data=b"", first_line=1))
        match = next((match for match in _HEADER.finditer(first.data) if not _is_blank(match)), None)
        if match is None:
            raise ShardError(f"{self.uri} is empty. A CSV file begins with a line of names.")
        line = first.line_at(match.start())
        if match["odd"] is not None:
            raise self._error(line, f"{_ODD_DETAIL}. {_ODD_REMEDY}")
        if not is_utf8(match[0]):
            raise self._error(line, "not UTF-8. Convert the file to UTF-8.")
        names = next(csv.reader(io.StringIO(match[0].decode(), newline="")))
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise self._error(line, f'several columns are called "{repeated}". Rename all but one.')
        named = [name or f"Unnamed: {index}" for index, name in enumerate(names)]  # as pandas calls an index
        return named, match.end()

    @cached_property
    def _row(self) -> re.Pattern[bytes]:
        """The pattern of a row.

        The group `fields` matches a row with a wrong number of fields; `odd` matches invalid CSV.
        """
        more = len(self._names) - 1
        return re.compile(
            rb"%b(?:,%b){%d}%b|(?P<fields>%b)|(?P<odd>%b)" % (_FIELD, _FIELD, more, _END, _ANY_ROW, _LINE)
        )

    def _no_texts(self) -> pa.Table:
        return pa.schema([(name, pa.string()) for name in self._names]).empty_table()

    def _rows(self, block: Block, columns: Sequence[str]) -> tuple[pa.Table, BadRows, LeftOut]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        texts, starts, problems = self._texts(block)
        has = {*texts.column_names}
        for field in schema:
            for index in misfits(texts[field.name], field.type) if field.name in has else ():
                error = Misfit(field_path("", field.name), texts[field.name][index].as_py(), str(field.type))
                problems.setdefault(index, (error.reason, str(error), error.remedy(self.columns, are_chosen=self.only)))
        read = with_nulls(texts, problems)
        absent = partial(pa.nulls, len(texts))
        values = [read[one.name].cast(one.type) if one.name in has else absent(one.type) for one in schema]
        others = (
            () if self.only else tuple(field_path("", name) for name in self._names if name not in self.schema.names)
        )
        left_out = {index: others for index in range(len(texts)) if others and index not in problems}
        return pa.table(values, schema=schema), _bad_rows(block, starts, problems), left_out

    def _texts(self, block: Block) -> tuple[pa.Table, list[int], _Problems]:
        starts, problems = self._split(block)
        if not starts:
            return self._no_texts(), starts, problems
        data = block.data
        if problems:
            nothing = b'""' + b"," * (len(self._names) - 1) + b"\n"
            rows = enumerate(_split_at(block, starts))
            data = b"".join(nothing if index in problems else row for index, row in rows)
        table = _parsed(data, self._names)
        if table is None or len(table) != len(starts):
            raise self._error(block.first_line, "not readable as CSV from this line on.")
        return with_nulls(table, problems), starts, problems

    def _split(self, block: Block) -> tuple[list[int], _Problems]:
        """Find the rows that are not blank. Returns their offsets, and the problems of bad rows.

        Raises ShardError for an unclosed quote, which makes the ends of the following rows uncertain.
        """
        starts: list[int] = []
        problems: _Problems = {}
        for match in self._row.finditer(block.data):
            if _is_blank(match):
                continue
            if match.lastgroup == "fields":
                detail = f"another number of fields than the line of names, which has {len(self._names):,}"
                problems[len(starts)] = (_FIELDS, detail, CSV_LAYOUT)
            elif match.lastgroup == "odd":
                if match[0].count(b'"') % 2:
                    raise self._error(block.line_at(match.start()), f"{_NO_END}. {_ODD_REMEDY}")
                problems[len(starts)] = (_ODD, _ODD_DETAIL, _ODD_REMEDY)
            starts.append(match.start())
        if not is_utf8(block.data):
            rows = enumerate(_split_at(block, starts))
            problems |= {index: _NOT_UTF8 for index, row in rows if not is_utf8(row)}
        return starts, problems


def _is_blank(row: re.Match[bytes]) -> bool:
    return row.end() - row.start() <= len(b"\r\n") and row[0] in (b"", b"\r", b"\n", b"\r\n")


def _split_at(block: Block, starts: list[int]) -> list[bytes]:
    return [block.data[start:end] for start, end in pairwise([*starts, len(block.data)])]


def _bad_rows(block: Block, starts: list[int], problems: _Problems) -> BadRows:
    bad: BadRows = {}
    line, read = block.first_line, 0
    for index, (reason, detail, remedy) in sorted(problems.items()):
        line += block.data.count(b"\n", read, starts[index])
        read = starts[index]
        bad[index] = BadRow(position=f"line {line:,}", reason=reason, detail=detail, remedy=remedy)
    return bad


def _parsed(data: bytes, names: list[str]) -> pa.Table | None:
    content = pa.array([data], pa.large_binary()).buffers()[2]  # Arrow's own memory: its thread must not free Python's
    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(content),
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
                check_utf8=False,
            ),
        )
    except pa.ArrowException:
        return None


# Types of CSV values. A value is a number only if parsing loses nothing: `007` and `1.` stay texts.

_WHOLE = "^(0|-?[1-9][0-9]{0,18})$"
_LEAST_WHOLE, _MOST_WHOLE = str(-(1 << 63)), str((1 << 63) - 1)
_DIGITS = 17  # significant digits; 17 are enough to write any double
_FRACTIONS = rf"0(\.0*[0-9]{{1,{_DIGITS}}})?|" + "|".join(
    rf"[1-9][0-9]{{{more}}}(\.[0-9]{{1,{_DIGITS - 1 - more}}})?" for more in range(15)
)
_BIG_FRACTION = r"[1-8][0-9]{15}(\.[0-9])?"  # below 2**53
# 7e3 may be an id, so it is a text; 7.0E3 is how Java writes a double.
_NUMBER = rf"^-?((({_FRACTIONS}|{_BIG_FRACTION})([eE][+-][0-9]{{1,3}})?)|[0-9]\.[0-9]{{1,{_DIGITS - 1}}}E[0-9]{{1,3}})$"
_BOOL = "^(true|false|True|False|TRUE|FALSE)$"
_PATTERNS = {pa.bool_(): _BOOL, pa.int64(): _WHOLE, pa.float64(): _NUMBER}


def type_of(texts: pa.ChunkedArray) -> pa.DataType:
    """Find the narrowest type that fits all values. A column without values is text."""
    if texts.null_count == len(texts):
        return pa.string()
    return next((kind for kind in _PATTERNS if not misfits(texts, kind)), pa.string())


def misfits(texts: pa.ChunkedArray, data_type: pa.DataType) -> list[int]:
    if data_type == pa.string():
        return []
    fits = pc.match_substring_regex(texts, _PATTERNS[data_type])
    if data_type != pa.bool_():
        fits = pc.and_kleene(fits, _is_held(pc.if_else(fits, texts, None), data_type))
    fits = pc.fill_null(fits, True)
    return pc.indices_nonzero(pc.invert(fits)).to_pylist()  # type: ignore[no-any-return]


def _is_held(numbers: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    if data_type == pa.float64():
        return pc.is_finite(numbers.cast(data_type))
    digits = pc.utf8_ltrim(numbers, "-")
    is_small = pc.or_(pc.less(pc.utf8_length(digits), len(_MOST_WHOLE)), pc.less_equal(digits, _MOST_WHOLE))
    return pc.or_(is_small, pc.equal(numbers, _LEAST_WHOLE))
