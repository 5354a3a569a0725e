"""The status of a run. `reading` reads it into the view of `view`; `screen`, `advice` and `metrics` present that."""

from shardsift.fleet.errors import ExitCode
from shardsift.producer.status.reading import RunStatus, run_status
from shardsift.producer.status.view import Checked, Present

__all__ = ["Checked", "ExitCode", "Present", "RunStatus", "run_status"]
