"""Turn a crawl, or files, folders, globs and URLs, into the shards of a run, pinned to one revision of the input."""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError
from huggingface_hub.hf_file_system import HfFileSystemResolvedRepositoryPath

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.folder_columns import renamed
from shardsift.fleet.inputs.formats import has_footer, without_ending
from shardsift.fleet.inputs.identity import identity_of
from shardsift.fleet.inputs.open_input import Listing, list_files, open_input
from shardsift.fleet.inputs.parquet_file import open_parquet, row_group_rows
from shardsift.fleet.process.redact import refuse_secrets
from shardsift.fleet.process.wording import counted, is_url, local_path
from shardsift.fleet.run.choices import CRAWLS_DATASET
from shardsift.fleet.run.model import folder_revision
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec, Shard, file_name, part_name, whole_name
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.hub_files import HubFiles
from shardsift.producer.planning.options import InputOptions

_NAMED = 3  # unreadable files that an error names
_ONE_FOLDER = (
    "Rename one, leave one out, or pass their common parent folder as the only --input. Or put each folder into a --subset "
    "of its own: the first with a run, each other with a run that has --extend."
)
_FOOTER_THREADS = 16
NO_SUCH_PLACE = (ImportError, ValueError, TypeError, AttributeError)  # raised by fsspec for a URL that it cannot use


@dataclass(frozen=True, kw_only=True)
class Input:
    """The shards of a run, in name order. `uris` pin Hub datasets to their current commit.

    `revision` is this commit if the input is one Hub URI, otherwise a digest of the shards' names and identities.
    """

    uris: tuple[str, ...]
    revision: str
    shards: tuple[Shard, ...]
    listed: tuple[Shard, ...]  # all files, before --limit-rows and --rows-per-task are applied
    left_out: tuple[str, ...]  # files in the input's folders that are not read, because of their names
    notes: tuple[str, ...] = ()  # for the user


def read_input(options: InputOptions) -> Input:
    """List the shards that the options name. Raises UsageError if they cannot be read."""
    return split(limited(listed_input(options), options.limit_rows), options.rows_per_task)


def listed_input(options: InputOptions) -> Input:
    """List the files that the options name, each as one shard. Raises UsageError if they cannot be read."""
    if not options.crawls and not options.input_uris:
        raise UsageError("Say what to read: either --crawl CC-MAIN-2024-10 or --input PATH.")
    if options.crawls:
        return crawl_input(*options.subsets)
    source = list_input(*options.input_uris)
    return source if options.subset is None else renamed_input(source, partial(_below, options.subset))


def named_uris(options: InputOptions) -> tuple[str, ...]:
    """Return the input's URIs as the user named them, not pinned to a commit."""
    return tuple(map(_crawl_uri, options.subsets) if options.crawls else map(absolute_uri, options.input_uris))


def _crawl_uri(crawl: str) -> str:
    return f"hf://datasets/{CRAWLS_DATASET}/data/{crawl}/*.parquet"


def crawl_input(*crawls: str) -> Input:
    """List the shards of FineWeb crawls. If one cannot be read, raises UsageError with the URL of the list of all crawls."""
    try:
        return list_input(*map(_crawl_uri, crawls))
    except UsageError as error:
        page = f"https://huggingface.co/datasets/{CRAWLS_DATASET}/tree/main/data"
        named = f"The crawl {crawls[0]!r}" if len(crawls) == 1 else "A crawl"
        raise UsageError(f"{named} cannot be read. The crawls are listed at {page}. {error}") from error


def _below(subset: str, files: Iterable[Shard]) -> tuple[Shard, ...]:
    try:
        return tuple(replace(file, name=f"{subset}/{file.name}") for file in files)
    except ValueError as error:  # a name may become too long
        raise UsageError(str(error)) from error


def renamed_input(source: Input, rename: Callable[[Iterable[Shard]], tuple[Shard, ...]]) -> Input:
    """Rename the shards of an input. If its revision is a digest of their names, computes the digest again."""
    shards, listed = rename(source.shards), rename(source.listed)
    has_digest = source.revision == digest_of(source.listed)
    return replace(source, shards=shards, listed=listed, revision=digest_of(listed) if has_digest else source.revision)


def list_input(*uris: str, in_subsets: bool = False) -> Input:
    """List the input files at paths, folders, globs or fsspec URLs.

    Raises UsageError if a URI names no file or contains a secret, if a file is named twice, or, without `in_subsets`, if
    two files have the same name. With it, they may, because `named_as_scored` can add different subsets to their names.
    """
    for uri in uris:
        refuse_secrets("--input", uri)
    parts = [_list(uri) for uri in uris]
    _refuse_files_named_twice(uris, parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    if not in_subsets:
        refuse_same_names(shards, advice=_ONE_FOLDER if len(uris) > 1 else "Rename one.")
    return Input(
        uris=tuple(uri for part in parts for uri in part.uris),
        revision=parts[0].revision if len(parts) == 1 else digest_of(shards),
        shards=shards,
        listed=shards,
        left_out=tuple(name for part in parts for name in part.left_out),
    )


def _list(uri: str) -> Input:
    try:
        with translated(f"Listing {uri}"):
            pinned, commit = pinned_uri(uri)
            listing = list_files(pinned, shown_as=uri)
            with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
                shards = tuple(pool.map(lambda info: _shard(info, listing), listing.files))
    except ShardError as error:
        raise UsageError(str(error)) from error
    except NO_SUCH_PLACE as error:
        raise UsageError(f"{uri} cannot be read: {error}.") from error
    return Input(
        uris=(absolute_uri(pinned),),
        revision=commit or digest_of(shards),
        shards=shards,
        listed=shards,
        left_out=listing.left_out,
    )


def _refuse_files_named_twice(uris: Sequence[str], parts: Sequence[Input]) -> None:
    seen: dict[Hashable, tuple[int, str]] = {}
    for number, part in enumerate(parts):
        for shard in part.shards:
            path = shard.uri.removeprefix("file://")
            first, first_path = seen.setdefault(_file(shard), (number, path))
            if (first, first_path) != (number, path):
                again = "" if path == first_path else f" as {path}"
                raise UsageError(
                    f"The file {first_path} is named twice: by --input {uris[first]} and{again} by --input {uris[number]}. "
                    "Its rows would be there twice. Leave one of the two out."
                )


def _file(shard: Shard) -> Hashable:
    """Return a key that is equal for all paths of one file.

    Includes the file's identity, because file systems may reuse inodes.
    """
    if not shard.uri.startswith("file://"):
        return shard.uri
    with suppress(FileNotFoundError):  # removed after the listing; reading it will raise
        found = Path(shard.uri.removeprefix("file://")).stat()
        return found.st_dev, found.st_ino, shard.identity
    return shard.uri


def refuse_same_names(shards: Iterable[Shard], *, advice: str) -> None:
    uris: dict[str, str] = {}
    for shard in shards:
        if shard.name in uris:
            raise UsageError(f"Two files would become shard {shard.name}: {uris[shard.name]} and {shard.uri}. {advice}")
        uris[shard.name] = shard.uri


def limited(source: Input, rows: int | None) -> Input:
    """Limit the input to its first `rows` rows: the shards that have them, the last with a row limit if it has more.

    Raises UsageError if a file cannot be read.
    """
    if rows is None:
        return source
    try:
        return replace(source, shards=tuple(_first_rows(source.shards, rows)))
    except ShardError as error:
        raise UsageError(f"The rows cannot be counted. {error}") from error


def split(source: Input, rows_per_task: int | None) -> Input:
    """Split Parquet files longer than `rows_per_task` into several shards. Raises UsageError if a file cannot be read."""
    if rows_per_task is None:
        return source
    try:
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            found = list(pool.map(lambda shard: _parts(shard, rows_per_task), source.shards))
    except (ShardError, ValueError) as error:  # a part's name may be too long
        raise UsageError(f"The input cannot be split. {error}") from error
    shards = tuple(chain.from_iterable(parts for parts, _ in found))
    refuse_same_names(shards, advice="Rename one, or leave out --rows-per-task.")
    return replace(source, shards=shards, notes=(*_unsplit(source, max(rows for _, rows in found), rows_per_task),))


def _unsplit(source: Input, longest_group: int, rows_per_task: int) -> Iterator[str]:
    if longest_group > rows_per_task:
        yield f"Some tasks have more rows, up to {longest_group:,}: --rows-per-task does not split row groups."
    if lines := sum(not has_footer(shard.uri) for shard in source.shards):
        yield f"{counted(lines, 'file')} not split: --rows-per-task splits Parquet files only."


def _parts(file: Shard, rows_per_task: int) -> tuple[list[Shard], int]:
    """Split a file into parts. Returns the parts, and the number of rows in its longest row group.

    Returns the file itself if it needs no split. Unless the file has a row limit, the last part has no end, so that it
    includes rows that are added to the file.
    """
    if not has_footer(file.uri):
        return [file], 0
    with open_parquet(file.uri) as parquet:
        groups = row_group_rows(parquet)
    rows = file.row_limit or sum(groups)
    starts = [start for start in part_starts(groups, rows_per_task) if start < rows]
    longest = min(max(groups, default=0), rows)
    if len(starts) < 2:
        return [file], longest
    ends = [*starts[1:], file.row_limit]
    bytes_a_row = (file.size_bytes or 0) / sum(groups)
    parts = [
        replace(
            file,
            name=part_name(file.name, number),
            first_row=start,
            row_limit=None if end is None else end - start,
            size_bytes=round(bytes_a_row * ((end or rows) - start)),
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return parts, longest


def part_starts(row_groups: Sequence[int], rows_per_task: int) -> list[int]:
    """Return the first row of each part of a file. `row_groups` has the number of rows of each row group.

    A part is one or more whole row groups. It has at most `rows_per_task` rows, unless one row group has more.
    """
    starts, end = [0], 0
    for rows in row_groups:
        if rows and end > starts[-1] and end + rows - starts[-1] > rows_per_task:
            starts.append(end)
        end += rows
    return starts


def named_as_scored(
    files: Iterable[Shard], spec: RunSpec, receipts: Iterable[Receipt], left_out: Iterable[str] = ()
) -> tuple[Shard, ...]:
    """Give input files the shard names that a finished run gave them.

    Removes folders that are columns, and adds subsets. If the run has a file's bytes under several names, which differ in
    the subset, returns the file under each of them. A changed file gets the first of its names in the run that no unchanged file
    has. A new file gets a subset only if the run has a single one.
    """
    subsets, files = spec.subsets, renamed(files, spec.folder_columns)
    scored = dict.fromkeys(left_out, "") | {receipt.shard: receipt.source_identity for receipt in receipts}
    scored = {whole_name(name): identity for name, identity in scored.items()} | scored

    def names_of(file: Shard) -> list[str]:
        names = (*(f"{subset}/{file.name}" for subset in subsets), file.name)
        return [name for name in names if name in scored]

    def is_same(file: Shard, name: str) -> bool:
        return scored[name] == file.identity

    taken = {name for file in files for name in names_of(file) if is_same(file, name)}
    found = []
    for file in files:
        same = [name for name in names_of(file) if is_same(file, name)]
        changed = [name for name in names_of(file) if name not in taken][:1]
        is_new_below = len(subsets) == 1 and file.name.partition("/")[0] not in subsets
        new = [f"{subset}/{file.name}" for subset in subsets] if is_new_below else [file.name]
        found += [replace(file, name=name) for name in same or changed or new]
    return tuple(found)


def as_scored(files: Iterable[Shard], receipts: Iterable[Receipt], left_out: Iterable[str] = ()) -> dict[str, Shard]:
    """Return the shards of a finished run by name, from its input files. A split file is replaced by its parts.

    `left_out` names shards without a receipt. If such a shard is a part, its rows are unknown, so it gets all rows of its
    file.
    """
    whole = {file.name: file for file in files}
    rows = {receipt.shard: (receipt.first_row, receipt.rows_in) for receipt in receipts}
    parts = {part: file_name(part, whole) for part in sorted({*rows, *left_out} - whole.keys())}
    last = {file: part for part, file in parts.items()}
    found = {name: file for name, file in whole.items() if name not in last}
    for part, name in parts.items():
        if name in whole:
            found[part] = replace(whole[name], name=part)
        if name in whole and part in rows:
            first_row, row_limit = rows[part]
            ends_with_file = part == last[name] and whole[name].row_limit is None
            found[part] = replace(found[part], first_row=first_row, row_limit=None if ends_with_file else row_limit)
    return dict(sorted(found.items()))


def count_rows(shards: tuple[Shard, ...]) -> int:
    """Count the rows to score, from the files' footers. Reads files without a footer whole.

    Raises UsageError if a file cannot be read.
    """

    def rows_or_error(shard: Shard) -> int | ShardError:
        try:
            return _rows(shard)
        except ShardError as error:
            return error

    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        found = list(pool.map(rows_or_error, shards))
    if errors := [str(one) for one in found if isinstance(one, ShardError)]:
        unread = f"{len(errors):,} of {counted(len(shards), 'shard')} cannot be read"
        raise UsageError(f"The rows cannot be counted: {unread}. {' '.join(errors[:_NAMED])}")
    return sum(one for one in found if isinstance(one, int))


def _first_rows(shards: tuple[Shard, ...], limit: int) -> Iterator[Shard]:
    for shard in shards:
        if limit <= 0:
            return
        rows = _rows(shard, most=limit + 1)
        yield replace(shard, row_limit=limit) if rows > limit else shard
        limit -= rows


def _rows(shard: Shard, most: int | None = None) -> int:
    limits = [limit for limit in (shard.row_limit, most) if limit is not None]
    with open_input(shard.uri, (), first_row=shard.first_row) as file:
        return file.count_rows(min(limits, default=None))


def pinned_uri(uri: str) -> tuple[str, str | None]:
    """Pin the URI of a Hub repository to the current commit of its revision. Returns the new URI and the commit.

    Returns any other URI, such as that of a bucket, unchanged and with None. Raises UsageError if there is no such repository
    or revision.
    """
    if not uri.startswith("hf://"):
        return uri, None
    try:
        place = HubFiles().resolve_path(uri)
    except FileNotFoundError as error:  # from the client, for a missing repository or revision
        if isinstance(error.__cause__, GatedRepoError):
            raise  # the caller's `translated` has a message for it
        missing = "revision" if isinstance(error.__cause__, RevisionNotFoundError) else "repository"
        raise UsageError(f"The Hub shows no such {missing} to this HF_TOKEN: {uri}. Check the name.") from error
    if not isinstance(place, HfFileSystemResolvedRepositoryPath):
        return uri, None  # a bucket has no commits
    commit = str(HfApi().repo_info(place.repo_id, repo_type=place.repo_type, revision=place.revision).sha)
    kind = "datasets/" if place.repo_type == "dataset" else ""
    return f"hf://{kind}{place.repo_id}@{commit}/{place.path_in_repo}", commit


def _shard(info: dict[str, Any], listing: Listing) -> Shard:
    name = without_ending(str(info["name"]).removeprefix(listing.root).strip("/"))
    uri = listing.filesystem.unstrip_protocol(info["name"])
    try:
        return Shard(name=name, uri=uri, identity=identity_of(listing.filesystem, info), size_bytes=info["size"])
    except ValueError as error:
        raise UsageError(str(error)) from error


def absolute_uri(uri: str) -> str:
    """Make a local path absolute, because workers run in other folders."""
    return uri if is_url(uri) or uri.startswith("file://") else str(local_path(uri))


def digest_of(shards: Iterable[Shard]) -> str:
    """Compute a digest that changes if a file is added, removed, renamed or rewritten, but not if the folder moves."""
    total = hashlib.sha256()
    for shard in shards:
        total.update(f"{shard.name} {shard.identity}\n".encode())
    return folder_revision(total.hexdigest())
