"""The light half of the scorer `fasttext`: a model file, its digest and its labels. Does not import fastText.

A fastText model can have gigabytes, so the producer reads the labels from its dictionary and loads nothing.
"""

import hashlib
import mmap
import struct
from pathlib import Path

from shardsift.scorers import Model, ScorerKind, UsageError

_PREFIX = "__label__"
_MAGIC, _SUPERVISED = 793712314, 3
_ARGUMENTS = struct.Struct(
    "<2i 12i d"
)  # magic number, version, arguments of the training; the 8th argument is the kind of model
_DICTIONARY = struct.Struct("<3i 2q")  # entries, words, labels; tokens, size of the pruned index
_ENTRY = struct.Struct("<qb")  # follows a name that ends with a zero byte: how often it occurs, and 1 for a label


def resolve(name: str, revision: str | None) -> Model:
    """Return the model in a file. Its revision is a digest of the file, so a run never mixes two models of one name.

    Raises UsageError if there is no such file, or it has another revision.
    """
    file = Path(name).expanduser().resolve()
    if not file.is_file():
        raise UsageError(f"There is no file {file}. Name a fastText model, such as model.bin, with --model.")
    with file.open("rb") as opened:
        found = f"sha256-{hashlib.file_digest(opened, 'sha256').hexdigest()}"
    if revision not in (None, found):
        raise UsageError(
            f"The model {file} has changed: its revision is {found}, not {revision}. Restore it, or enqueue again."
        )
    return Model(name=str(file), revision=found, labels=_labels(file))


def _labels(file: Path) -> tuple[str, ...]:
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _labels_in(content)
    except (ValueError, IndexError, struct.error) as error:  # an empty file, another magic number, too short, not UTF-8
        raise UsageError(f"{file} is not a fastText classifier: {error}.") from error


def _labels_in(content: mmap.mmap) -> tuple[str, ...]:
    magic, _, *arguments = _ARGUMENTS.unpack_from(content)
    if magic != _MAGIC or arguments[7] != _SUPERVISED:
        raise ValueError("it does not begin like a supervised model")
    entries, *_ = _DICTIONARY.unpack_from(content, _ARGUMENTS.size)
    labels = []
    position = _ARGUMENTS.size + _DICTIONARY.size
    for _ in range(entries):
        end = content.find(b"\0", position)
        if end < 0:
            raise ValueError("its dictionary is cut off")
        _, is_label = _ENTRY.unpack_from(content, end + 1)
        if is_label:
            labels.append(content[position:end].decode().removeprefix(_PREFIX))
        position = end + 1 + _ENTRY.size
    return tuple(labels)


KIND = ScorerKind(
    resolve=resolve,
    loader="fasttext_scorer.scorer:load",
    requires=("fasttext",),
    install="fasttext-community",
    uses_gpu=False,
)
