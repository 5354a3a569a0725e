"""Whether a folder can be written to and has enough space."""

import shutil
import tempfile
from pathlib import Path

from fleet.doctor.checks import Check, Verdict, ok, warning, wrong
from fleet.settings import Settings

_GIB = 1 << 30


def state_disk_check(settings: Settings) -> Check:
    mend = "Free space, or set SHARDSIFT_STATE_DIR to a writable folder on a larger disk."
    return disk_check("state disk", settings.state_dir, enough_bytes=2 * _GIB, least_bytes=_GIB // 4, mend=mend)


def scratch_disk_check(settings: Settings) -> Check:
    """A worker builds the output files of its shard there. Those of FineWeb take up to 2 GiB."""
    folder = settings.scratch_dir or Path(tempfile.gettempdir())
    mend = "Free space, or set SHARDSIFT_SCRATCH_DIR to a writable folder on a larger disk."
    return disk_check("scratch disk", folder, enough_bytes=4 * _GIB, least_bytes=_GIB // 4, mend=mend)


def model_cache_check(folder: Path) -> Check:
    mend = "Free space, or set HF_HOME to a writable folder on a larger disk."
    return disk_check("model cache", folder, enough_bytes=2 * _GIB, least_bytes=_GIB // 4, mend=mend)


def disk_check(name: str, folder: Path, *, enough_bytes: int, least_bytes: int, mend: str) -> Check:
    """A warning below `enough_bytes` of free space, wrong below `least_bytes`. A missing folder may be created later."""

    def look() -> Verdict:
        existing = _nearest_existing(folder)
        try:
            with tempfile.TemporaryFile(dir=existing):
                pass
            free = shutil.disk_usage(existing).free
        except OSError as error:
            return wrong(f"{folder} cannot be written to: {error.strerror}.", mend)
        says = f"{folder} has {free / _GIB:,.1f} GiB free."
        if free < least_bytes:
            return wrong(says, mend)
        return ok(says) if free >= enough_bytes else warning(says, mend)

    return Check(name=name, look=look, mend=mend)


def _nearest_existing(folder: Path) -> Path:
    folder = folder.expanduser().absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())
