"""Choose the output of a run, and check early that its places are usable and that the Hub answers."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fsspec import get_filesystem_class

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.folder_columns import folder_values
from shardsift.fleet.process.wording import is_url, local_path
from shardsift.fleet.run.choices import CRAWLS_DATASET
from shardsift.fleet.run.model import with_revision
from shardsift.fleet.run.spec import MOST_SHARDS_OF_FILE, RunSpec, Shard, merge_group
from shardsift.fleet.storage.hub import place_of
from shardsift.fleet.storage.hub_access import check_hub_answers, hub_token
from shardsift.fleet.storage.open_output import is_on_hub
from shardsift.fleet.storage.run_branch import MAIN, PULL_REQUEST
from shardsift.producer.planning.options import RunOptions

_LONGEST_REPO_ID = 96  # characters, the Hub's limit
_REPO_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_SCORES = "-scores"
_FILES_A_FOLDER = 10_000  # the Hub's limit: https://huggingface.co/docs/hub/storage-limits
_LOCAL = {"file", "local"}
_FOR_OUTPUT = _LOCAL | {"hf", "memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}


def with_output(options: RunOptions, models: Iterable[str]) -> RunOptions:
    """The options with an output: the one that the user names or, for a crawl, a repository of the token's user.

    Asks the Hub once for the token's user, and only if an output has to be chosen, because the Hub limits such requests.
    Raises UsageError if none can be chosen.
    """
    if options.output_uri:
        return options
    if options.crawl is None:
        raise UsageError("Say where to put the rows: --output FOLDER, or --output hf://datasets/<user>/<name>.")
    named = "-".join(PurePosixPath(with_revision(model)[0]).name for model in models)
    longest = _LONGEST_REPO_ID - len(_SCORES) * options.needs_all_scores
    repo_id = default_repo_id(_user(), crawl=options.crawl, model=named, longest=longest)
    return replace(options, output_uri=f"hf://datasets/{repo_id}")


def default_repo_id(user: str, *, crawl: str, model: str, longest: int = _LONGEST_REPO_ID) -> str:
    """`<user>/fineweb-<crawl>-<model>`, in characters that the Hub allows, and cut to its limit.

    The Hub allows no `--` or `..`, no `.git` at the end, and no `-` or `.` at either end.
    """
    words = "-".join(PurePosixPath(part).name for part in (CRAWLS_DATASET, crawl, model))
    name = re.sub(r"(?:[^A-Za-z0-9._]|\.(?=\.))+", "-", words)
    return f"{user}/{name[: longest - len(user) - 1].removesuffix('.git').strip('-.')}"


def scores_beside(uri: str) -> str:
    """Where all scores are published before rows are chosen by them for an output: its name with `-scores`.

    Raises UsageError if the output has no name, or too long a one.
    """
    if is_on_hub(uri):
        repo_id, branch = place_of(uri)
        if len(repo_id + _SCORES) > _LONGEST_REPO_ID:
            raise UsageError(
                f"The scores are published beside the output, and {repo_id}{_SCORES} is too long for the Hub: choose an "
                f"--output of at most {_LONGEST_REPO_ID - len(_SCORES)} characters."
            )
        return f"hf://datasets/{repo_id}{_SCORES}" + (
            "" if branch == MAIN else f"@{branch.replace(PULL_REQUEST, 'pr-')}"
        )
    if not is_url(uri):
        path = local_path(uri)
        return f"{path.resolve() if '..' in path.parts else path}{_SCORES}"
    place = uri.rstrip("/")
    if place.partition("://")[2].removeprefix("buckets/").count("/") < (2 if place.startswith("hf://") else 1):
        raise UsageError(
            f"The scores are published beside the output, and {uri} is a whole bucket. Name a folder in it: {place}/kept."
        )
    return place + _SCORES


def check_output_place(uri: str, *, public: bool = False) -> None:
    """Raises UsageError for a URL that cannot hold an output, or needs another package."""
    protocol = uri.split("::")[0].partition("://")[0] if is_url(uri) else "file"
    scheme, colon, rest = uri.partition(":/")
    if protocol == "file" and colon and scheme in _FOR_OUTPUT and not rest.startswith("/"):  # a Path takes away a slash
        meant = f"{scheme}://{'/' if scheme in _LOCAL else ''}{rest}"
        raise UsageError(
            f"--output {uri} lacks a slash, so it names a folder here. Write {meant}, or ./{uri} for that folder."
        )
    if protocol not in _FOR_OUTPUT:
        raise UsageError(
            f"--output {uri} is of a kind that cannot be written to. Name a folder, a bucket "
            "(s3://, gs://, az://, hf://buckets/…), or hf://datasets/<user>/<name>[@<branch>]."
        )
    if protocol == "file" and uri and (folder := local_path(uri)).is_symlink() and not folder.exists():
        raise UsageError(f"--output {uri} is a link to {folder.readlink()}, which is not there. Create that folder.")
    if is_on_hub(uri):
        place_of(uri)
    elif public and protocol != "hf":
        raise UsageError(f"--public is for an output on the Hub, and {uri} is none. Leave it out.")
    try:
        get_filesystem_class(protocol)
    except ImportError as error:  # fsspec says which package to install
        raise UsageError(f"--output {uri} cannot be used: {error}.") from error


def check_tree(shards: Iterable[Shard]) -> None:
    """Raises UsageError if an output file of one shard would be a folder of another's: `x.jsonl` beside `x.parquet/`."""
    by_path = {shard.data_path: shard for shard in shards}
    for path, shard in by_path.items():
        for folder in PurePosixPath(path).parents:
            if file := by_path.get(str(folder)):
                raise UsageError(
                    f"{file.uri} would be published as {folder}, which is a folder with the file of {shard.uri}. Rename one, "
                    "or leave one out."
                )


def twins_line(shards: Iterable[Shard]) -> list[str]:
    """Say that files are one on a disk that does not tell apart their names."""
    shown: dict[str, str] = {}
    for shard in shards:
        first = shown.setdefault(unicodedata.normalize("NFC", shard.name).casefold(), shard.name)
        if first != shard.name:
            return [
                f"{first} and {shard.name} are one name on disks of macOS and Windows: a copy of the output there loses rows."
            ]
    return []


def place_lines(output: str) -> list[str]:
    """A line for a new folder whose name could be meant for a dataset on the Hub, as it could for a model."""
    if not _REPO_ID.fullmatch(output) or Path(output).parent.exists():
        return []
    return [f"--output {output} is a folder here. For a dataset on the Hub, write --output hf://datasets/{output}."]


def check_folder_names(spec: RunSpec, shards: Iterable[Shard]) -> None:
    """Raises UsageError if readers of the output would find a column of the run in its folders too: `score=5`."""
    added = {name.lower() for name in spec.output_columns}
    for shard in shards:
        if taken := [name for name in folder_values(shard.name) if name.lower() in added]:
            raise UsageError(
                f'{shard.uri} is in a folder "{taken[0]}=…". Readers would take its value for that of the column "{taken[0]}", '
                "which the run adds. Rename the folders, or name the model: --model NAME=MODEL."
            )


def check_folders(spec: RunSpec, shards: Iterable[Shard]) -> None:
    """Raises UsageError if the output is on the Hub and a folder would have more files than it takes."""
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
    """Of a data file, at most: its rows are assumed to take no more than twice the bytes of the input."""
    if target_bytes is None or shard.size_bytes is None:
        return 1
    return min(1, max(1 / MOST_SHARDS_OF_FILE, 2 * shard.size_bytes / target_bytes))


def check_hub(options: RunOptions) -> None:
    """Raises UsageError if the input or the output is on the Hub and the Hub does not answer.

    The Hub's client itself would try for half a minute.
    """
    places = (*options.input_uris, options.output_uri)
    if options.crawl is None and not any(place.startswith("hf://") for place in places):
        return
    try:
        check_hub_answers()
    except UsageError as error:
        advice = "Check the network; --input, --model and --output may also be folders of this machine."
        raise UsageError(f"{error} {advice}") from error


def _user() -> str:
    try:
        token = hub_token()
    except UsageError as error:
        raise UsageError(f"{error} Set another, or name an --output.") from error
    if token is None:
        raise UsageError(
            "There is no --output and no Hugging Face token. Set HF_TOKEN to publish to a private dataset of yours "
            "on the Hub, or name a folder with --output FOLDER."
        )
    return token.user
