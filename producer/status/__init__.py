"""The status of a run: one view of it, and what people see of it. `screen`, `advice` and `metrics` draw the view."""

from producer.status.reading import RunStatus, readable_runs, run_status
from producer.status.view import Checked, ExitCode, Present

__all__ = ["Checked", "ExitCode", "Present", "RunStatus", "readable_runs", "run_status"]
