"""The status of a run: one view of it, and what people see of it. `screen`, `advice` and `metrics` draw the view."""

from shardsift.producer.status.reading import RunStatus, run_status
from shardsift.producer.status.view import Checked, ExitCode, Present

__all__ = ["Checked", "ExitCode", "Present", "RunStatus", "run_status"]
