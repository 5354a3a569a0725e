"""Find what a run adds to a published dataset: the files that it does not have.

Published shards are scored again only if they have changed or are damaged, or share an output file with such a shard.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardsift.fleet.errors import NothingToAdd, UsageError
from shardsift.fleet.inputs.identity import are_of_other_bytes
from shardsift.fleet.process.wording import counted, first_of
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.scoring import name_and_model, score_column_of
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.open_output import Published, open_output
from shardsift.fleet.storage.output import differences_in_meaning, output_files
from shardsift.producer.planning.columns import with_folder_columns
from shardsift.producer.planning.inputs import (
    Input,
    absolute_uri,
    as_scored,
    listed_input,
    named_uris,
    read_input,
    split,
)
from shardsift.producer.planning.options import RunOptions

_NAMED_SHARDS = 3


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A published dataset, and the input of the run that adds to it.

    If nothing is new, the input is that of the dataset's latest run, so that repeating a command gives the same run.
    """

    published: Published
    options: RunOptions  # with models at the revisions of the dataset
    source: Input
    is_new: bool  # whether there are new files, or files to score again
    notes: tuple[str, ...]  # for the user

    @property
    def extends(self) -> str | None:
        return self.published.run_id if self.is_new else self.published.spec.extends

    def checked(self, spec: RunSpec) -> RunSpec:
        """Return the spec with the fields that an extension sets.

        Raises UsageError if an option that determines the rows differs from the dataset's. Raises NothingToAdd if nothing
        is new, unless the spec is the one of the dataset's latest run.
        """
        spec = _with_windows_of(self.published, spec)
        _refuse_other_meaning(self.published, spec)
        if self.extends:
            spec = replace(spec, extends=self.extends, input_uris=named_uris(self.options), input_revision="")
        if not self.is_new and spec.run_id != self.published.run_id:
            raise _nothing_to_add(self.published)
        return spec

    @property
    def published_files(self) -> tuple[Shard, ...]:
        """One shard for each published data file, with the name of that file."""
        files = {receipt.data.path: receipt for receipt in self.published.receipts}
        return tuple(
            Shard(
                name=path.removeprefix("data/").removesuffix(".parquet"),
                uri=receipt.source_uri,
                identity=receipt.source_identity,
            )
            for path, receipt in files.items()
        )


def find_extension(options: RunOptions, output_uri: str) -> Extension:
    """Compare the input with the dataset at the output.

    Damaged shards count as new. But if nothing else is new, and all of them, with those that share their files, are of the
    dataset's latest run, the result is that run again.

    Raises UsageError if nothing is published there, if the dataset cannot be extended, if a new file has the bytes of a
    published one, or if a published file has changed and `--changed score` is not given or the dataset was made with
    `--unique`. Raises NothingToAdd if nothing is new and the dataset has several runs, but the input lacks a shard of the
    latest one, so that this run cannot be planned again.
    """
    published = _published(absolute_uri(output_uri).rstrip("/"))
    files = with_folder_columns(listed_input(options), published.spec.folder_columns)
    shards = as_scored(files.shards, published.receipts, published.left_out)
    there = {receipt.shard: receipt for receipt in published.receipts}
    changed = _changed(shards.values(), there, options, published.spec)
    again = _sharing_files({*changed, *_damaged(published)}, published.receipts)
    added = [name for name in shards if name not in there and name not in published.left_out]
    _refuse_copies((shards[name] for name in added), there.values())
    latest = [receipt.shard for receipt in published.receipts_of(published.run_id)]
    is_new = bool(added or changed or not again <= {*latest})
    if is_new:
        found = tuple(shards[name] for name in sorted({*added, *again}) if name in shards)
        source = split(replace(files, shards=found, listed=found), options.rows_per_task)
    elif published.runs:
        if not {*latest} <= shards.keys():  # without some of its shards, the latest run cannot be planned again
            raise _nothing_to_add(published)
        source = replace(files, shards=tuple(shards[name] for name in latest))
    else:
        source = read_input(options)
    return Extension(
        published=published,
        options=replace(options, models=tuple(_at_revision(text, published.spec) for text in options.models)),
        source=source,
        is_new=is_new,
        notes=tuple(
            _notes(published, gone=_gone(there, shards, options.subsets), added=added, again=again if is_new else set())
        ),
    )


def _gone(there: Iterable[str], here: Collection[str], subsets: Collection[str]) -> set[str]:
    """Return the published shards that the input lacks. If the command names subsets, shards of other subsets do not count."""
    return {name for name in there if name not in here and (not subsets or name.partition("/")[0] in subsets)}


def _nothing_to_add(published: Published) -> NothingToAdd:
    shards = counted(len(published.receipts), "shard")
    there = {"run_id": published.run_id, "output_uri": published.uri, "shards": len(published.receipts), "added": 0}
    return NothingToAdd(
        f"Nothing to add: the {shards} at {published.uri} have all files of the input. To check them: "
        f"producer verify {published.uri}",
        published=there,
    )


def added_to_refiltered(uri: str, spec: RunSpec, source: Input) -> tuple[RunSpec, Input]:
    """Reduce a refilter to the shards that the dataset at `uri` does not have. Returns its new spec and input.

    Raises UsageError like `find_extension`, NothingToAdd if the dataset has all shards.
    """
    published = _published(uri)
    spec = _with_windows_of(published, spec)
    _refuse_other_meaning(published, spec)
    there = {*published.left_out, *(receipt.shard for receipt in published.receipts)}
    new = tuple(shard for shard in source.shards if shard.name not in there)
    if not new:
        raise _nothing_to_add(published)
    return replace(spec, extends=published.run_id, input_revision=""), replace(source, shards=new, listed=new)


def _with_windows_of(published: Published, spec: RunSpec) -> RunSpec:
    """Copy the window sizes of the dataset into the spec, because an earlier release may have used other sizes."""
    return replace(spec, window_rows=published.spec.window_rows, window_bytes=published.spec.window_bytes)


def _refuse_other_meaning(published: Published, spec: RunSpec) -> None:
    if differing := differences_in_meaning(published.spec, spec):
        raise UsageError(
            f"The dataset at {published.uri} was made with other options. What differs: {', '.join(differing)}. Repeat those "
            "options with --extend, or choose another --output."
        )


def _published(uri: str) -> Published:
    """Read the dataset at a URI. Raises UsageError if nothing is published there, or if it cannot be extended."""
    manifest = open_output(uri, "").manifest()
    if manifest is None:
        raise UsageError(
            f"Nothing is published at {uri}, so --extend has nothing to add to. Leave it out the first time."
        )
    spec = manifest.spec
    if spec.limit_rows:
        raise UsageError(f"The dataset at {uri} has the first {spec.limit_rows:,} rows alone: it cannot be extended.")
    if spec.best or spec.buckets:
        raise UsageError(
            f"The rows at {uri} were ranked by --keep-top or --buckets, which new rows would change. Extend the dataset whose "
            "scores they are from, and refilter that one again."
        )
    return Published(uri=uri, **vars(manifest))


def _damaged(published: Published) -> set[str]:
    """Return the shards with a file that is lost or has another size. On the Hub, the bytes are compared too."""
    findings = open_output(published.uri, published.run_id).inspect(published.receipts, hashes=False)
    return {finding.shard for finding in findings if finding.shard and finding.is_mendable}


def _changed(shards: Iterable[Shard], there: Mapping[str, Receipt], options: RunOptions, spec: RunSpec) -> list[str]:
    """Return the published shards whose files have changed.

    Raises UsageError if there are any, and `--changed score` is not given or the dataset was made with `--unique`.
    """
    changed = [
        shard.name
        for shard in shards
        if shard.name in there and are_of_other_bytes(shard.identity, there[shard.name].source_identity)
    ]
    named = f"{counted(len(changed), 'published file')} changed: {first_of(changed, _NAMED_SHARDS)}."
    if changed and options.changed != "score":
        raise UsageError(
            f"{named} To score the new content in place of the old, add --changed score. To keep both, give the new content "
            "another name."
        )
    if changed and spec.unique:
        raise UsageError(
            f"{named} Rows may have been left out as duplicates of their old rows, so they cannot be replaced. Publish the whole "
            "input to another --output."
        )
    return changed


def _sharing_files(names: set[str], receipts: Sequence[Receipt]) -> set[str]:
    """Return these shards, and all that share an output file with one of them, because a file is replaced as a whole."""
    found = set[str]()
    while names != found:
        found = names
        paths = {file.path for receipt in receipts if receipt.shard in found for file in output_files(receipt)}
        names = {receipt.shard for receipt in receipts if paths & {receipt.data.path, receipt.scores.path}}
    return found


def _refuse_copies(added: Iterable[Shard], there: Iterable[Receipt]) -> None:
    """Raise UsageError if a new file has the bytes of a published file. This happens if the user names another root folder."""
    names = {receipt.source_identity: receipt.shard for receipt in there if receipt.rows_in}
    for shard in added:
        if shard.identity in names:
            raise UsageError(
                f"{shard.uri} would be the shard {shard.name}, and its bytes are published as {names[shard.identity]}. Its rows "
                "would be there twice. Name the input as it was named before, or leave this file out."
            )


def _at_revision(text: str, spec: RunSpec) -> str:
    """Add the dataset's revision to a model that is named without one, because the model may have a newer revision."""
    column, model = name_and_model(text)
    scoring = spec.scoring_of.get(score_column_of(column) if column else "score")
    is_same = scoring is not None and scoring.model.name == model and not scoring.model.is_folder
    return f"{text}@{scoring.model.revision}" if scoring and is_same else text


def _notes(published: Published, *, gone: set[str], added: Sequence[str], again: set[str]) -> Iterator[str]:
    yield f"{counted(len(published.receipts), 'shard')} published at {published.uri}. New: {len(added):,}."
    if again:
        yield f"Changed or damaged, and scored again: {first_of(sorted(again), _NAMED_SHARDS)}."
    if gone:
        yield f"No longer in the input: {first_of(sorted(gone), _NAMED_SHARDS)}. They stay published."
    if published.left_out:
        yield f"Failed in an earlier run, and left out again: {first_of(published.left_out, _NAMED_SHARDS)}."
