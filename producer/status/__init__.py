"""The status of a run. `reading` reads it into a RunStatus of `view`, which `screen`, `advice` and `metrics` present."""

from shardsift.fleet.errors import ExitCode as ExitCode
from shardsift.producer.status.reading import run_status as run_status
from shardsift.producer.status.reading import run_statuses as run_statuses
from shardsift.producer.status.view import Checked as Checked
from shardsift.producer.status.view import Present as Present
from shardsift.producer.status.view import RunStatus as RunStatus
