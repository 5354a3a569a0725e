"""Read the URL and the text of single rows of an input file, for a person who judges their scores."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fleet.inputs.input_file import IgnoredBadRows
from fleet.inputs.opening import open_input
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec
from fleet.run.text import texts_of
from fleet.storage.errors import translated

_URL = "url"


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """The text is the one that was scored."""

    url: str | None
    text: str


def shown_rows(uri: str, rows: Collection[int], spec: RunSpec, scoring: Scoring) -> dict[int, ShownRow]:
    """Row → its URL and text. Reads the file up to the last of these rows. Raises ShardError or TransientError."""
    found: dict[int, ShownRow] = {}
    first = 0
    columns = _columns(spec, scoring)
    with open_input(uri, spec.columns, only=spec.only_columns) as file, translated("Reading the input"):
        for batch in file.batches(columns, bad=IgnoredBadRows(), use_threads=False):
            here = sorted(row for row in rows if first <= row < first + len(batch))
            found.update(zip(here, _shown(batch, [row - first for row in here], scoring), strict=True))
            first += len(batch)
            if len(found) == len(rows):
                break
    return found


def _columns(spec: RunSpec, scoring: Scoring) -> list[str]:
    there_are = dict(spec.columns)
    wanted = (*scoring.text_columns, scoring.text_pair_column, _URL)
    return list(dict.fromkeys(name for name in wanted if name in there_are))


def _shown(batch: pa.RecordBatch, places: Sequence[int], scoring: Scoring) -> Iterator[ShownRow]:
    if not places:
        return
    rows = pa.Table.from_batches([batch]).take(pa.array(places))
    urls = rows[_URL].to_pylist() if _URL in rows.column_names else [None] * len(rows)
    for url, text in zip(urls, texts_of(rows, scoring).to_pylist(), strict=True):
        shown = "\n\n".join(text.values()) if isinstance(text, dict) else text
        yield ShownRow(url=None if url is None else str(url), text=shown or "")
