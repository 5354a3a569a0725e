"""A finalizer's notes about a run: that it is being published, was published, or could not be."""

import redis
from pydantic import TypeAdapter

from fleet.ledger.base import FINISHED, Keys, LedgerBase
from fleet.ledger.records import Publication
from fleet.process.redact import redacted

_PUBLICATION = TypeAdapter(Publication)
_DAMAGED = "damaged:"  # prefix of the run's fields that count how often a shard's stored files were found damaged


class Publishing(LedgerBase):
    """The state of a publication: which finalizer works on it, and whether to try again. The output says what is published."""

    def wait_for_finished_run(self, seconds: float) -> bool:
        """Wait for a worker that has done the last shard of a run. Returns whether there was one within this time.

        It wakes one finalizer. The wake may be lost with that one, so check the runs from time to time without it.
        """
        try:
            is_woken = self.redis.brpop([FINISHED], timeout=seconds) is not None
        except redis.ResponseError:  # somebody has put another thing there
            is_woken = True
        if is_woken:
            self.redis.delete(FINISHED)
        return is_woken

    def publication(self, run_id: str) -> Publication | None:
        published = self.redis.hget(Keys(run_id).run, "published")
        return _PUBLICATION.validate_json(published) if published else None

    def begin_publishing(self, run_id: str) -> int | None:
        """Begin a publication. Returns the version of the receipts, or None if the run is cancelled.

        Read the receipts after this call. A later cancellation does not stop the publication; it is ended by it.
        """
        version = self._run_script("begin_publishing", Keys(run_id).of(), [])
        return None if version is None else int(version)

    def is_publishing(self, run_id: str) -> bool:
        """Whether a finalizer has begun a publication and not yet reported its end. It may be working, or dead."""
        return bool(self.redis.hexists(Keys(run_id).run, "publishing_ms"))

    def end_publishing(self, run_id: str) -> None:
        """Note that the publication that was begun did not happen, after looking at the output."""
        self.redis.hdel(Keys(run_id).run, "publishing_ms")

    def record_publication(self, run_id: str, publication: Publication, *, version: int | None = None) -> bool:
        """Record what was published. Ends a cancellation that arrived meanwhile.

        Returns False if the receipts no longer have this `version`. Then the run is not published, and a sweep asks again.
        """
        arguments = [_PUBLICATION.dump_json(publication), "" if version is None else version]
        return bool(self._run_script("record_publication", Keys(run_id).of(), arguments) == "recorded")

    def withdraw_publication(self, run_id: str) -> None:
        """Note that the output no longer holds what was published."""
        self.redis.hdel(Keys(run_id).run, "published")

    def publish_error(self, run_id: str) -> str | None:
        """Why the last attempt to publish failed."""
        error = self.redis.hget(Keys(run_id).run, "publish_error")
        return None if error is None else str(error)

    def publish_failed(self, run_id: str) -> bool:
        """Whether that error is permanent. Then the finalizer does not publish again until a person asks for it."""
        return bool(self.redis.hexists(Keys(run_id).run, "publish_failed"))

    def may_publish(self, run_id: str) -> bool:
        """Whether to publish now: the last error was not permanent, and the time that a service asked to wait is over."""
        failed, after_ms = self.redis.hmget(Keys(run_id).run, "publish_failed", "publish_after_ms")
        return failed is None and int(after_ms or 0) <= self._now_ms()

    def record_publish_error(
        self, run_id: str, error: str, *, is_permanent: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        """Note why publishing failed, whether the error is permanent, and how long to wait before the next attempt."""
        key, pipeline = Keys(run_id).run, self.redis.pipeline()
        pipeline.hdel(key, "publish_failed", "publish_after_ms")
        pipeline.hset(key, "publish_error", redacted(error))
        if is_permanent:
            pipeline.hset(key, "publish_failed", 1)
        if retry_after_seconds:
            pipeline.hset(key, "publish_after_ms", self._now_ms() + int(retry_after_seconds * 1000))
        pipeline.execute()

    def clear_publish_error(self, run_id: str) -> None:
        """Forget why publishing failed and how often files were found damaged, because a person asks to publish again."""
        key = Keys(run_id).run
        damaged = [field for field in map(str, self.redis.hkeys(key)) if field.startswith(_DAMAGED)]
        self.redis.hdel(key, "publish_error", "publish_failed", "publish_after_ms", *damaged)
