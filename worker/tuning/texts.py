"""The texts of a trial: the first ones that a run would score of the user's input, or prose that comes with Python."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from fleet.errors import ShardsiftError, UsageError
from fleet.inputs.input_file import IgnoredBadRows
from fleet.inputs.listing import list_files
from fleet.inputs.opening import open_input
from fleet.run.choices import DEFAULT_TEXT_COLUMN
from fleet.run.text import TextOptions, check_takes_columns, chosen_columns, row_texts, template_of, text_columns
from fleet.storage.errors import translated
from worker.scoring.parity_trial import sample_texts
from worker.scoring.tokenizing.tokenize import plain_texts
from worker.shard.window_scoring import unscorable_rows

_STEP_ROWS = 256  # decoded at once
TrialTexts: TypeAlias = pa.LargeStringArray | pa.StructArray  # texts, or pairs of them


def trial_texts(uri: str | None, options: TextOptions, rows: int) -> TrialTexts:
    """The first `rows` texts, or pairs, without those that a run does not score. Raises UsageError if there are none."""
    if uri is None:
        _check_needs_no_input(options)
        return plain_texts(sample_texts(rows))
    try:
        found = _first_texts(uri, options, rows)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    except (ImportError, ValueError) as error:  # from fsspec: unknown protocol, or a package is missing
        raise UsageError(f"Cannot read {uri}: {error}.") from error
    if not found:
        raise UsageError(f"{uri} has no text {_where(options)}. Give --input a file with rows.")
    return pa.concat_arrays(found)


def _check_needs_no_input(options: TextOptions) -> None:
    given = {
        "--columns": options.columns,
        "--text-column": template_of(options.text_column),
        "--text-pair-column": options.text_pair_column,
    }
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} is about the columns of a file. Name one with --input.")


def _where(options: TextOptions) -> str:
    if template_of(options.text_column) is not None:
        return "for the template"
    second = "" if options.text_pair_column is None else f' with one in "{options.text_pair_column}"'
    return f'in the column "{options.text_column or DEFAULT_TEXT_COLUMN}"{second}'


def _first_texts(uri: str, options: TextOptions, rows: int) -> list[TrialTexts]:
    found: list[TrialTexts] = []
    missing = rows
    for part in _parts(uri, options):
        if len(part):
            found.append(part[:missing])
            missing -= len(found[-1])
        if not missing:
            break
    return found


def _parts(uri: str, options: TextOptions) -> Iterator[TrialTexts]:
    template, pair = template_of(options.text_column), options.text_pair_column
    chosen = chosen_columns(options.columns)
    for file_uri in list_files(uri).uris:
        if chosen is not None:
            check_takes_columns(file_uri)
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
