"""Read the texts of a trial: the first ones that a run would score of the user's input, or prose that comes with Python."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from fleet.errors import ShardsiftError, UsageError
from fleet.inputs.input_file import IgnoredBadRows
from fleet.inputs.opening import list_files, open_input
from fleet.run.text import TextOptions, chosen_columns, row_texts, template_of, text_columns
from fleet.storage.errors import translated
from worker.scoring.parity_trial import sample_texts
from worker.scoring.tokenizing.tokenize import plain_texts
from worker.shard.window_scoring import unscorable_rows

_STEP_ROWS = 256  # decoded at once
TrialTexts: TypeAlias = pa.LargeStringArray | pa.StructArray  # texts, or pairs of them


def trial_texts(uri: str | None, options: TextOptions, rows: int) -> TrialTexts:
    """The first `rows` texts, or pairs, without those that a run does not score. Raises UsageError if there are none."""
    if uri is None:
        return plain_texts(sample_texts(rows))
    found: list[TrialTexts] = []
    try:
        for part in _parts(uri, options):
            found.append(part)
            if sum(map(len, found)) >= rows:
                break
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    except (ImportError, ValueError) as error:  # from fsspec: unknown protocol, or a package is missing
        raise UsageError(f"Cannot read {uri}: {error}.") from error
    if not any(map(len, found)):
        raise UsageError(f"{uri} has no text to score. Name a column of texts with --text-column.")
    return pa.concat_arrays(found)[:rows]


def _parts(uri: str, options: TextOptions) -> Iterator[TrialTexts]:
    template, pair = template_of(options.text_column), options.text_pair_column
    chosen = chosen_columns(options.columns)
    for file_uri in list_files(uri).uris:
        with open_input(file_uri, chosen, only=chosen is not None) as file:
            columns = text_columns(options, file.schema, file_uri, called=file_uri)
            read = tuple(dict.fromkeys((*columns, *([] if pair is None else [pair]))))
            with translated(f"Reading {file_uri}"):
                for batch in file.batches(read, bad=IgnoredBadRows(), most_rows=_STEP_ROWS, use_threads=False):
                    rows = pa.Table.from_batches([batch])
                    yield _scored(row_texts(rows, columns, template=template, pair_column=pair))


def _scored(texts: TrialTexts) -> TrialTexts:
    unscorable = list(unscorable_rows(texts))
    return texts.take(pa.array(np.setdiff1d(np.arange(len(texts)), unscorable)))
