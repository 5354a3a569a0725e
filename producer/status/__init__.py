"""The status of a run. `reading` reads it into a RunView of `view`, which `screen`, `advice` and `metrics` present."""

from shardsift.fleet.errors import ExitCode
from shardsift.producer.status.reading import RunStatus, run_status
from shardsift.producer.status.view import Checked, Present

__all__ = ["Checked", "ExitCode", "Present", "RunStatus", "run_status"]
