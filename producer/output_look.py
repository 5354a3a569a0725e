"""Look at the output of a run before its status is shown: a ledger that says "published" may be wrong."""

from dataclasses import replace

from fleet.ledger import Ledger
from fleet.storage.opening import output_class
from producer.finalizer.publish import inspect_published
from producer.opening import patient
from producer.status import Checked, RunStatus


@patient
def looked_at(ledger: Ledger, status: RunStatus, *, hashes: bool) -> RunStatus:
    """The status after checking the output itself, if the run is published. With `hashes`, reads its files too."""
    return replace(
        status,
        findings=inspect_published(ledger, status.run_id, hashes=hashes),
        checked=_checked(status, hashes=hashes) if status.is_published else None,
    )


def _checked(status: RunStatus, *, hashes: bool) -> Checked:
    return Checked.SHA256 if hashes or output_class(status.output_uri).lists_sha256 else Checked.SIZES
