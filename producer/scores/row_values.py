"""The text and the URL of single rows, for a person to read."""

from collections.abc import Collection, Mapping

import pyarrow as pa

from fleet.scoring import Scoring
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.inputs.bad_rows import IgnoredBadRows
from fleet.storage.inputs.input_file import InputFile

_URL = "url"


def shown_columns(spec: RunSpec, scoring: Scoring) -> list[str]:
    """The columns of the input that a person needs to judge a score."""
    there_are = dict(spec.columns)
    return list(dict.fromkeys(name for name in (*scoring.text_columns, _URL) if name in there_are))


def values_of_input(file: InputFile, rows: Collection[int], columns: list[str]) -> dict[int, dict[str, object]]:
    """Row → its values. Reads the file from the beginning up to the last of these rows. Raises ShardError or TransientError."""
    found: dict[int, dict[str, object]] = {}
    first = 0
    with translated("Reading the input"):
        for batch in file.batches(columns, bad=IgnoredBadRows(), use_threads=False):
            for row in rows:
                if first <= row < first + len(batch):
                    found[row] = values_at(batch, row - first)
            first += len(batch)
            if len(found) == len(rows):
                break
    return found


def values_at(batch: pa.RecordBatch, place: int) -> dict[str, object]:
    return dict(batch.slice(place, 1).to_pylist()[0])


def text_of(values: Mapping[str, object], scoring: Scoring) -> str:
    return "\n\n".join(str(values[name]) for name in scoring.text_columns if values.get(name))


def url_of(values: Mapping[str, object]) -> str | None:
    url = values.get(_URL)
    return None if url is None else str(url)
