"""The status of a run: read from the ledger, and told to people and programs.

`read` asks the ledger and the workers, `state` is what they say, with its JSON and exit code. For people, `screen` puts
together `verdict`, `facts` and `advice`; `runs_table` is a line for each run.
"""

from producer.status.read import Present, run_status
from producer.status.state import Checked, ExitCode, RunStatus

__all__ = ["Checked", "ExitCode", "Present", "RunStatus", "run_status"]
