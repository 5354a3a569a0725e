"""One file of the input, and where its outputs go."""

import re
from dataclasses import dataclass

_NAME = re.compile(r"[\w=+,@.\-]+(/[\w=+,@.\-]+)*")
_NAME_LIMIT_CHARS = 512


@dataclass(frozen=True, kw_only=True)
class Shard:
    """An input file. Its `name` is the input's path below the dataset's data folder, without its ending."""

    name: str
    uri: str
    identity: str  # of the file's bytes, from `fleet.storage.identity`
    size_bytes: int | None = None
    row_limit: int | None = None  # score only the first rows; None: all of them
    changed: bool = False  # the file changed after the run was enqueued, and `retry` accepted the change

    def __post_init__(self) -> None:
        if not is_safe_name(self.name):
            raise ValueError(
                f"Shard name {self.name!r} cannot be used as an output path. Rename the file to letters, digits and _-.=+,@"
            )

    @property
    def data_path(self) -> str:
        return f"data/{self.name}.parquet"

    @property
    def scores_path(self) -> str:
        return f"scores/{self.name}.parquet"


def is_safe_name(name: str) -> bool:
    """Whether the name cannot leave the output: no empty, `.` or `..` segment, no control character."""
    segments = name.split("/")
    return len(name) <= _NAME_LIMIT_CHARS and bool(_NAME.fullmatch(name)) and not {"", ".", ".."} & set(segments)
