"""Publish a run: once, however often this is called and however often it dies midway."""

import logging
from dataclasses import dataclass

from fleet.errors import PublishConflict, ShardError, UsageError
from fleet.ledger import Ledger, Publication
from fleet.receipt import Receipt
from fleet.spec import RunSpec
from fleet.storage.manifest import manifest
from fleet.storage.opening import open_output
from fleet.storage.output import CARD_PATH, MANIFEST_PATH, Mark, Output
from producer.finalizer.card import dataset_card

_LOOKS = 5  # each conflict means that somebody else committed; look again, and then leave it to a later sweep
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NotReady:
    """Why a run is not published now; nothing is wrong."""

    reason: str


def finalize_run(ledger: Ledger, run_id: str, *, without_failed: bool) -> Publication | NotReady:
    """Publish a run when all its shards are done; with `without_failed`, when none is open.

    Looks at the output first, so that a commit whose answer was lost, or that another finalizer made, is not made twice.
    Raises TransientError or ShardError from the output, PublishConflict when others keep committing.
    """
    spec = ledger.spec(run_id)
    if why := _why_not_ready(ledger, run_id, without_failed=without_failed):
        return NotReady(reason=why)
    receipts = list(ledger.receipts(run_id))
    output = open_output(spec.output_uri, run_id)
    commit = _publish_once(output, spec, receipts)
    _tidy(output)
    publication = Publication(uri=spec.output_uri, commit=commit, shards=len(receipts))
    ledger.record_publication(run_id, publication)
    logger.info("Run %s is published: %d shards at %s %s", run_id, len(receipts), spec.output_uri, commit)
    return publication


def _why_not_ready(ledger: Ledger, run_id: str, *, without_failed: bool) -> str | None:
    if not ledger.is_complete(run_id):
        return "its enqueue did not end; run the same command again"
    counts = ledger.counts(run_id)
    if counts.open:
        return f"{counts.open} shards are not done yet"
    if counts.failed and not without_failed:
        return f"{counts.failed} shards failed; `producer retry` them, or `producer finalize` without them"
    return None if counts.done else "no shard is done"


def _publish_once(output: Output, spec: RunSpec, receipts: list[Receipt]) -> str:
    wanted = Mark.of(spec.run_id, receipts)
    for _ in range(_LOOKS):
        head = output.head()  # before the look: a commit made after it is refused as a conflict, never doubled
        published = output.published()
        if published == wanted:
            return output.head()
        if published and published.run_id != spec.run_id:
            raise UsageError(f"The output {spec.output_uri} now holds the data of another run, {published.run_id}.")
        documents = {MANIFEST_PATH: manifest(spec, receipts, wanted), CARD_PATH: dataset_card(spec, receipts)}
        try:
            return output.publish(receipts, documents, parent=head)
        except PublishConflict as conflict:
            logger.info("%s Looking again.", conflict)
    raise PublishConflict(f"Others keep committing to {spec.output_uri}; the next sweep tries again.")


def _tidy(output: Output) -> None:
    """Before the publication is recorded: whoever dies here is followed by a finalizer that tidies again."""
    try:
        output.tidy()
    except ShardError as error:  # the data are published all the same
        logger.warning("%s Remove it by hand.", error)
