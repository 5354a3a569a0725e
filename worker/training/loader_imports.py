"""What a process that prepares batches needs. The server that forks such processes imports this module first."""

from worker.scoring.quiet import quieten_imports

quieten_imports()

import transformers.data.data_collator  # noqa: E402, F401

import worker.training.token_rows  # noqa: E402, F401
