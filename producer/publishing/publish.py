"""Publish a run exactly once, however often publishing is called or interrupted.

A run is recorded as published only after its manifest and files have been found in the output.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import takewhile

from shardsift.fleet.errors import OutputDamaged, PublishConflict, ShardError, TransientError, UsageError
from shardsift.fleet.inputs.input_file import too_many_bad_rows
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.process.wording import counted, first_of, place_taken
from shardsift.fleet.run.receipt import Receipt, Receipts
from shardsift.fleet.run.spec import RunSpec, data_path_of, scores_path_of
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.fleet.storage.hub_access import is_card_accepted
from shardsift.fleet.storage.inspection import Finding, Problem, is_readable_card, lines_of
from shardsift.fleet.storage.manifest import Manifest, joined
from shardsift.fleet.storage.open_output import content_at, is_on_hub, open_output
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH, PICTURE_PATH, Output
from shardsift.producer.evidence.evidence import Evidence, check_evidence, evidence_in
from shardsift.producer.publishing.card import CardFacts, dataset_card
from shardsift.producer.publishing.card_evidence import evidence_section, with_section
from shardsift.producer.publishing.hub_cards import NO_CARDS, read_hub_cards
from shardsift.producer.publishing.merge import DATA, SCORES, merge_shards
from shardsift.producer.publishing.unique import remove_duplicates
from shardsift.producer.scores.distribution import score_picture
from shardsift.producer.status import Checked, RunStatus
from shardsift.producer.transient_errors import with_retries

_MOST_TRIES = 5  # each conflict means that another process committed; after this many, a later sweep tries again
_NAMED_REASONS = 5
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NotReady:
    """A reason why a run cannot be published yet, although nothing is wrong."""

    reason: str


def finalize_run(ledger: Ledger, run_id: str, *, without_failed: bool, hashes: bool = False) -> Publication | NotReady:
    """Publish a run if all its shards are done, or if `without_failed` and none is open. Otherwise return why not.

    Inspects the output first, and publishes only what is missing or wrong. `hashes` also reads and hashes the published
    files. If stored files of shards are lost or damaged, queues these shards again; a later call publishes the run.

    Raises UsageError if the output has another run, or, unless `without_failed`, if too many rows are bad. Raises
    TransientError or ShardError from the output, such as PublishConflict if other processes keep committing.
    """
    spec = ledger.spec(run_id)
    if why := _why_not_ready(ledger, run_id, without_failed=without_failed):
        return NotReady(reason=_why_cancelled(ledger, run_id) if ledger.state(run_id).cancelled else why)
    version = ledger.begin_publishing(run_id)
    receipts, failed = Receipts(ledger.receipts(run_id)), [failure.shard for failure in ledger.failures(run_id)]
    shards = ledger.counts(run_id).shards
    if len(receipts) + len(failed) != shards:
        return NotReady(reason="its record has changed meanwhile; the next sweep looks again")
    if not without_failed:
        _refuse_bad_rows(spec, receipts)
    output = open_output(spec.output_uri, run_id)
    if version is None and not _was_published(ledger, spec, output, receipts):
        return NotReady(reason=_why_cancelled(ledger, run_id))
    manifest = Manifest(
        run_id=run_id,
        spec=spec,
        receipts=receipts,
        left_out=tuple(failed),
        shards=shards,
        card_sha256="",
        command=ledger.command(run_id),
        evidence=ledger.evidence(run_id),
    )
    try:
        if version is not None and spec.unique and _duplicates_removed(ledger, spec, output, receipts):
            return finalize_run(ledger, run_id, without_failed=without_failed, hashes=hashes)
        merged = (merge_shards(ledger, spec, output, kind, receipts, is_over=True) for kind in (DATA, SCORES))
        if version is not None and any(merged):  # one kind at a time, because merging replaces receipts
            return finalize_run(ledger, run_id, without_failed=without_failed, hashes=hashes)
        is_current = partial(ledger.has_receipts_of, run_id, version)
        commit = _published(output, manifest, hashes=hashes, is_current=is_current)
    except OutputDamaged as damage:
        return send_back(ledger, run_id, damage, receipts)
    _tidy(output, receipts)
    publication = Publication(uri=spec.output_uri, commit=commit, shards=len(receipts))
    if not ledger.record_publication(run_id, publication, version=version):
        return NotReady(reason="its shards were scored again meanwhile; the next sweep publishes them")
    where = f"{spec.output_uri} {commit}".rstrip()  # a folder has no commit
    logger.info(
        "Run %s is published: %s at %s", run_id, counted(len(receipts), "shard"), where, extra={"run_id": run_id}
    )
    return publication


def merge_finished(ledger: Ledger, run_id: str) -> None:
    """Merge the finished shards before the first unfinished one, as far as they fill whole files. May run twice."""
    spec = ledger.spec(run_id)
    if spec.target_file_bytes is None:
        return
    for kind in [SCORES] if spec.unique else [DATA, SCORES]:  # until all are done, any row may be a duplicate
        done = Receipts(ledger.receipts(run_id))
        by_name = zip(done, ledger.shards(run_id), strict=False)  # both in name order
        first = sum(1 for _ in takewhile(lambda pair: pair[0].shard == pair[1].name, by_name))
        try:
            output = open_output(spec.output_uri, run_id)
            merge_shards(ledger, spec, output, kind, done[:first], is_over=False)
        except OutputDamaged as damage:
            send_back(ledger, run_id, damage, done)


def inspect_and_repair(ledger: Ledger, run_id: str, *, hashes: bool) -> tuple[Finding, ...]:
    """Inspect and repair the output of a run that is published according to the ledger or the output's manifest.

    Returns all findings, repaired or not. Queues the shards that must be scored again.
    """
    spec = ledger.spec(run_id)
    publication, counts = ledger.state(run_id).publication, ledger.counts(run_id)
    output = open_output(spec.output_uri, run_id)
    if counts.open or not counts.done or not (publication or output.is_published()):
        return ()
    findings = output.inspect(Receipts(ledger.receipts(run_id)), hashes=hashes)
    if publication is None or _repairable(findings):
        ledger.withdraw_publication(run_id)
        try:
            finalize_run(ledger, run_id, without_failed=publication is not None, hashes=hashes)
        except (TransientError, UsageError) as error:  # the finalizer tries again after a TransientError
            ledger.record_publish_error(run_id, str(error), is_permanent=isinstance(error, UsageError))
    return tuple(findings)


@with_retries
def publish_evidence(uri: str, run_id: str, evidence: Evidence) -> None:
    """Write the evidence for a published run's filter to its card and manifest, in one commit. May run twice.

    Leaves the rest of the card unchanged. Raises UsageError if the run is not published there, or if the evidence is not
    about its filter.
    """
    output = open_output(uri, run_id)
    head = output.head()
    published, card = published_run(uri), content_at(uri, CARD_PATH)
    if run_id not in published.run_ids:
        raise UsageError(f"The output {uri} now holds the data of another run, {published.run_id}.")
    check_evidence(evidence, published.spec)
    if card is None or not is_readable_card(card):
        raise UsageError(
            f"There is no {CARD_PATH} at {uri} that can be read. The command that made the run repairs it."
        )
    before, now = (
        with_section(card.decode(), evidence_section(published.spec, published.receipts, one)).encode()
        for one in (evidence_in(published.evidence), evidence)
    )
    manifest = replace(published, evidence=evidence.to_json())
    # The digest distinguishes our card from an edited one, so it is updated only for ours. If an earlier call died after it had
    # written the card, the manifest still has the digest of `before`.
    if published.card_sha256 in {sha256(card).hexdigest(), sha256(before).hexdigest()}:
        manifest = replace(manifest, card_sha256=sha256(now).hexdigest())
    if (now, manifest) != (card, published):
        output.publish((), {CARD_PATH: now, MANIFEST_PATH: manifest.to_parquet()}, parent=head)


@with_retries
def with_findings(ledger: Ledger, status: RunStatus, *, hashes: bool) -> RunStatus:
    """Inspect a published run's output and add the findings to its status, because the ledger's record may be wrong.

    `hashes` also reads and hashes the output's files.
    """
    found = replace(status, findings=inspect_published(ledger, status.run_id, hashes=hashes))
    if not status.is_published:
        return found
    has_hashes = hashes or is_on_hub(status.output_uri)
    return replace(found, checked=Checked.SHA256 if has_hashes else Checked.SIZES)


def inspect_published(ledger: Ledger, run_id: str, *, hashes: bool) -> tuple[Finding, ...]:
    """Inspect the output of a run that is published according to the ledger. Returns the faults, and changes nothing."""
    spec = ledger.spec(run_id)
    if ledger.state(run_id).publication is None or ledger.counts(run_id).open:
        return ()
    try:
        return tuple(open_output(spec.output_uri, run_id).inspect(Receipts(ledger.receipts(run_id)), hashes=hashes))
    except ShardError as error:  # the repository or folder itself cannot be read
        if error.of_machine:  # the output may be sound
            raise
        return (Finding(path=spec.output_uri, problem=Problem.UNREADABLE, detail=str(error)),)


def send_back(ledger: Ledger, run_id: str, damage: OutputDamaged, receipts: Sequence[Receipt]) -> NotReady:
    """Queue the shards with lost or damaged files again, and end the publication in progress."""
    queued = ledger.requeue(run_id, damage.damaged, of=receipts)
    ledger.end_publishing(run_id)
    again = [f"shard {shard} is scored again: {reason}" for shard, reason in damage.damaged.items()]
    for line in lines_of(again) if queued else ():  # otherwise another finalizer has moved their rows meanwhile
        logger.warning("Run %s: %s", run_id, line, extra={"run_id": run_id})
    return NotReady(reason=f"{counted(queued, 'shard')} queued again: {next(iter(damage.damaged.values()))}")


def _why_not_ready(ledger: Ledger, run_id: str, *, without_failed: bool) -> str | None:
    if not ledger.state(run_id).complete:
        return "enqueueing was interrupted; run the same command again"
    counts = ledger.counts(run_id)
    if not counts.is_whole:
        return "Redis has lost a part of its record; run the same command again"
    if counts.open:
        return f"{counted(counts.open, 'shard')} not done yet"
    if counts.failed and not without_failed:
        return f"{counted(counts.failed, 'shard')} failed; `producer retry` them, or `producer finalize` without them"
    return None if counts.done else "no shard is done"


def _refuse_bad_rows(spec: RunSpec, receipts: Sequence[Receipt]) -> None:
    """Raise UsageError if all shards together have too many bad rows.

    Each shard may have passed this check by itself, because a shard may always have a few.
    """
    bad = rows = 0
    reasons = Counter[str]()
    for receipt in receipts:
        bad, rows = bad + receipt.rows_bad, rows + receipt.rows_in
        reasons.update(receipt.errors if receipt.rows_bad else {})
    if why := too_many_bad_rows(bad, rows, spec.max_bad_rows, of_run=True):
        causes = first_of([f"{number:,} {reason}" for reason, number in reasons.most_common()], _NAMED_REASONS)
        raise UsageError(
            f"In all shards together, {why} in another run. Errored rows: {causes}. All others are scored, and "
            "`producer finalize` publishes them without these."
        )


def _why_cancelled(ledger: Ledger, run_id: str) -> str:
    other = ledger.state(run_id).replaced_by
    if other:
        return f"it is cancelled. {place_taken(other)}".removesuffix(".")
    return "it is cancelled; `producer retry` resumes it"


def _was_published(ledger: Ledger, spec: RunSpec, output: Output, receipts: Sequence[Receipt]) -> bool:
    """Return whether a finalizer published a cancelled run, but died before it recorded this.

    If it did not publish the run, notes in the ledger that the publication is over.
    """
    if not ledger.is_publishing(spec.run_id):
        return False
    if not _repairable(output.inspect(receipts, hashes=False)):
        return True
    ledger.end_publishing(spec.run_id)
    return False


def _published(output: Output, manifest: Manifest, *, hashes: bool, is_current: Callable[[], bool]) -> str:
    """Make all files of the run visible. Returns the commit that readers see."""
    spec, receipts = manifest.spec, manifest.receipts
    for _ in range(_MOST_TRIES):
        # Read first: if another process commits after this, our commit is refused instead of repeating its files.
        head = output.head()
        findings = output.inspect(receipts, hashes=hashes)
        _refuse_another_run(spec, output, findings)
        stale = _stale(findings, manifest)
        # A staged file must replace a damaged one even if the damaged one has the right size.
        if not _repairable(findings) and not stale and not output.has_staged(receipts):
            return output.head()
        documents = _documents(output, manifest, findings)
        if stale and not is_current():
            raise PublishConflict(
                f"Shards of {spec.output_uri} were scored again meanwhile; the next sweep tries again."
            )
        try:
            return output.publish(receipts, documents, parent=head, removed=stale)
        except PublishConflict as conflict:
            logger.info("%s Looking again.", conflict)
    raise PublishConflict(f"Others keep committing to {spec.output_uri}; the next sweep tries again.")


def _stale(findings: Sequence[Finding], manifest: Manifest) -> list[str]:
    """List the run's own files that no receipt names any more. They are left by an interruption or a failed shard."""
    foreign = [finding.path for finding in findings if finding.problem is Problem.FOREIGN]
    if not foreign:
        return []
    shards = [*(receipt.shard for receipt in manifest.receipts), *manifest.left_out]
    own = {path_of(shard) for shard in shards for path_of in (data_path_of, scores_path_of)}
    return [path for path in foreign if path in own]


def _refuse_another_run(spec: RunSpec, output: Output, findings: Sequence[Finding]) -> None:
    """Raise UsageError if the output has the manifest of a run that this one neither extends nor replaces."""
    if any(finding.path == MANIFEST_PATH and not finding.is_mendable for finding in findings):
        there = output.manifest()
        if there and not (spec.run_id in there.run_ids or there.gives_way_to(spec) or there.grows_by(spec)):
            raise UsageError(f"The output {spec.output_uri} now holds the data of another run, {there.run_id}.")


def _documents(output: Output, manifest: Manifest, findings: Sequence[Finding]) -> dict[str, bytes]:
    """Return the manifest, card and picture to write, by path. Empty if only data files need repair.

    They describe all runs of the dataset. Leaves out a card that a person has edited. Raises UsageError if the dataset that
    this run extends is gone.
    """
    problems = {finding.path: finding.problem for finding in findings}
    if not {finding.path for finding in _repairable(findings)} & {MANIFEST_PATH, CARD_PATH}:
        return {}
    there = output.manifest()
    if there is None and manifest.spec.extends:
        raise UsageError(
            f"The dataset at {output.uri} that this run adds to is gone. Restore it, then run the same command again."
        )
    manifest = joined(there, manifest)
    picture = score_picture(manifest.spec, manifest.receipts)
    card = _card(manifest, has_picture=picture is not None)
    content = replace(manifest, card_sha256=sha256(card).hexdigest()).to_parquet()
    stays = problems.get(CARD_PATH) is Problem.EDITED or (
        CARD_PATH not in problems and problems.get(MANIFEST_PATH) in (Problem.MISSING, Problem.UNREADABLE)
    )  # without a manifest it is not known who wrote the card
    if stays:
        return {MANIFEST_PATH: content}
    return {MANIFEST_PATH: content, CARD_PATH: card} | ({PICTURE_PATH: picture} if picture else {})


def _card(manifest: Manifest, *, has_picture: bool) -> bytes:
    """Write the card, with the metadata of the source's card unless the Hub refuses it."""
    spec, receipts = manifest.spec, manifest.receipts
    facts = CardFacts(
        run_ids=manifest.run_ids,
        command=manifest.command,
        cards=read_hub_cards(spec),
        left_out=len(manifest.left_out),
        has_picture=has_picture,
        evidence=evidence_in(manifest.evidence),
    )
    card = dataset_card(spec, receipts, facts)
    if facts.cards.source and is_on_hub(spec.output_uri) and not is_card_accepted(card):
        logger.warning(
            "The Hub refuses the metadata of the source's card, so the card of %s lacks them.", spec.output_uri
        )
        return dataset_card(spec, receipts, replace(facts, cards=NO_CARDS))
    return card


def _repairable(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that publishing repairs. Includes a manifest of another run, which this run may replace."""
    return [finding for finding in findings if finding.is_mendable or finding.path == MANIFEST_PATH]


def _duplicates_removed(ledger: Ledger, spec: RunSpec, output: Output, receipts: Receipts) -> bool:
    """Call `remove_duplicates` with the shards of the dataset's other runs. Returns whether a receipt has changed."""
    there = output.manifest()
    if there is None or not (spec.run_id in there.run_ids or there.grows_by(spec)):
        return remove_duplicates(ledger, spec, output, receipts)
    own = Receipts(there.current(spec.run_id, receipts))
    shards = {receipt.shard for receipt in own}
    others = Receipts(one for one in there.receipts if one.run_id != spec.run_id and one.shard not in shards)
    is_extended = spec.run_id in there.run_ids[:-1]
    return remove_duplicates(ledger, spec, output, own, others, is_extended=is_extended)


def _tidy(output: Output, receipts: Sequence[Receipt]) -> None:
    """Remove checkpoints, staged files and the run's branch. Logs the output's errors instead of raising them.

    Call this before recording the publication, so that it is repeated after a crash.
    """
    try:
        with_retries(output.tidy)(receipts)
    except (ShardError, TransientError) as error:
        logger.warning("%s The data are published; remove it by hand.", error)
