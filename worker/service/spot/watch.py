"""Poll the cloud's metadata service in a thread, until it reports that this machine is reclaimed."""

import logging
import threading
from collections.abc import Callable

from fleet.settings import Settings
from worker.service.spot.aws import Aws
from worker.service.spot.azure import Azure
from worker.service.spot.gcp import Gcp
from worker.service.spot.notice import Notice

_CLOUDS: dict[str, type[Aws] | type[Gcp] | type[Azure]] = {"aws": Aws, "gcp": Gcp, "azure": Azure}
logger = logging.getLogger(__name__)


def start_watching(settings: Settings, on_notice: Callable[[Notice], None]) -> "SpotWatch | None":
    """Start the watch that the settings ask for, if any. `on_notice` is called at most once, in another thread."""
    if settings.spot_notice is None:
        return None
    return watch_for_notice(settings.spot_notice, address=settings.spot_notice_address, on_notice=on_notice)


def watch_for_notice(
    cloud: str, *, address: str | None, on_notice: Callable[[Notice], None], poll_seconds: float = 2.0
) -> "SpotWatch":
    """Start a watch of `aws`, `gcp` or `azure`. The default address is the cloud's own."""
    return SpotWatch(_CLOUDS[cloud](address), cloud, on_notice, poll_seconds)


class SpotWatch:
    """A daemon thread that runs until the first notice or `stop()`. Failures of the service do not end it."""

    def __init__(
        self, service: Aws | Gcp | Azure, cloud: str, on_notice: Callable[[Notice], None], poll_seconds: float
    ) -> None:
        self._service = service
        self._cloud = cloud
        self._on_notice = on_notice
        self._poll_seconds = poll_seconds
        self._is_failing = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"spot notice of {cloud}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop without waiting. `on_notice` is not called after this, even if a request still runs for seconds."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            if (notice := self._ask()) and not self._stopped.is_set():
                self._tell(notice)
                return
            self._stopped.wait(self._poll_seconds)

    def _ask(self) -> Notice | None:
        try:
            notice = self._service.ask()
        except Exception as error:  # no answer of the service may end the thread, or it would miss the notice
            if not self._is_failing:
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                logger.warning("The metadata service of %s fails; polling continues (%s)", self._cloud, reason)
            self._is_failing = True
            return None
        self._is_failing = False
        return notice

    def _tell(self, notice: Notice) -> None:
        left = "soon" if notice.seconds_left is None else f"in {notice.seconds_left:.0f} s"
        logger.warning("The cloud reclaims this machine %s (%s: %s)", left, notice.cloud, notice.action)
        try:
            self._on_notice(notice)
        except Exception:
            logger.exception("The worker failed to act on the spot notice")
