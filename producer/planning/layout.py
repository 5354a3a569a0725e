"""Check the paths of a run's output files against the limits of disks, the Hub and readers."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.folder_columns import folder_values
from shardsift.fleet.run.spec import MOST_SHARDS_OF_FILE, RunSpec, Shard, merge_group
from shardsift.fleet.storage.open_output import is_on_hub

_FILES_A_FOLDER = 10_000  # the Hub's limit: https://huggingface.co/docs/hub/storage-limits


def check_layout(spec: RunSpec, shards: Sequence[Shard]) -> list[str]:
    """Check the paths of all output files. Returns warnings. Raises UsageError if an output cannot have these paths."""
    _check_tree(shards)
    _check_folders(spec, shards)
    _check_folder_names(spec, shards)
    return twins_line(shards)


def _check_tree(shards: Iterable[Shard]) -> None:
    """Raise UsageError if one shard's output file would have the same path as the folder of another output file.

    For example, `x.jsonl` becomes `x.parquet`, but `x.parquet/y.jsonl` needs a folder of this name.
    """
    by_path = {shard.data_path: shard for shard in shards}
    for path, shard in by_path.items():
        for folder in PurePosixPath(path).parents:
            if file := by_path.get(str(folder)):
                raise UsageError(
                    f"{file.uri} would be published as {folder}, which is a folder with the file of {shard.uri}. Rename one, "
                    "or leave one out."
                )


def _check_folders(spec: RunSpec, shards: Iterable[Shard]) -> None:
    """Raise UsageError if a folder on the Hub would have more files than the Hub allows."""
    together, files = defaultdict[tuple[str, ...], float](float), defaultdict[str, float](float)
    for shard in shards if is_on_hub(spec.output_uri) else ():
        together[merge_group(shard.name)] += _share_of_file(shard, spec.target_file_bytes)
    for (folder, *_), share in together.items():
        files[folder] += max(1, share)
    folder = max(files, key=files.__getitem__, default="")
    if files[folder] > _FILES_A_FOLDER:
        raise UsageError(
            f"The Hub takes at most {_FILES_A_FOLDER:,} files in a folder, and {f'data/{folder}'.rstrip('/')} would have "
            f"{files[folder]:,.0f}. Merge them by --target-file-size, sort the input into folders, or publish to a folder "
            "or bucket."
        )


def _share_of_file(shard: Shard, target_bytes: int | None) -> float:
    """Estimate the largest share of a merged data file that a shard's output can fill, from 0 to 1.

    Assumes that the output has at most twice the bytes of the shard. Returns 1 if files are not merged, or if the shard's
    size is unknown.
    """
    if target_bytes is None or shard.size_bytes is None:
        return 1
    return min(1, max(1 / MOST_SHARDS_OF_FILE, 2 * shard.size_bytes / target_bytes))


def _check_folder_names(spec: RunSpec, shards: Iterable[Shard]) -> None:
    """Raise UsageError if a folder such as `score=5` would give readers a second column `score`."""
    added = {name.lower() for name in spec.output_columns}
    for shard in shards:
        if taken := [name for name in folder_values(shard.name) if name.lower() in added]:
            raise UsageError(
                f'{shard.uri} is in a folder "{taken[0]}=…". Readers would take its value for that of the column "{taken[0]}", '
                "which the run adds. Rename the folders, or name the model: --model NAME=MODEL."
            )


def twins_line(shards: Iterable[Shard]) -> list[str]:
    """Return a warning if two shard names are equal on disks that ignore case or Unicode forms. Otherwise empty."""
    shown: dict[str, str] = {}
    for shard in shards:
        first = shown.setdefault(unicodedata.normalize("NFC", shard.name).casefold(), shard.name)
        if first != shard.name:
            return [
                f"{first} and {shard.name} are one name on disks of macOS and Windows: a copy of the output there loses rows."
            ]
    return []
