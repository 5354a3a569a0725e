"""The finalizers of a fleet, as they announce themselves. For `producer status`."""

from dataclasses import dataclass

from fleet.announcements import Announcements


@dataclass(frozen=True, kw_only=True)
class FinalizerState:
    """`name` is the host and the process id. `only_run` is the run of a finalizer that leaves all others alone."""

    name: str
    only_run: str | None = None

    def serves(self, run_id: str) -> bool:
        return self.only_run in (None, run_id)


_RECORDS = Announcements("finalizer", FinalizerState)
announce_finalizer, withdraw_finalizer, list_finalizers = _RECORDS.announce, _RECORDS.withdraw, _RECORDS.read
