"""The status of a run: one view of it, and what people see of it. `screen`, `advice` and `metrics` draw the view."""

from shardsift.fleet.errors import ExitCode
from shardsift.producer.status.reading import RunStatus, run_status
from shardsift.producer.status.view import Checked, Present

__all__ = ["Checked", "ExitCode", "Present", "RunStatus", "run_status"]
