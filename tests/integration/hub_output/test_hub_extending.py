"""A run adds shards to a published dataset by one commit that names nothing of what is there."""

import hashlib
from dataclasses import replace

import pytest

from shardsift.fleet.errors import OutputTaken, UsageError
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.manifest import Manifest, read_manifest
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from shardsift.producer.publishing.publish import inspect_and_repair
from support.hub_runs import SHARDS, HubRun, data_of
from support.records import a_manifest, a_receipt, a_shard

NEW = a_shard("crawl-2/a"), a_shard("crawl-2/b")


@pytest.fixture
def base(run: HubRun, enqueued: None) -> HubRun:
    run.score(*SHARDS, data_bytes=30_000)
    run.look(100)
    return run


@pytest.fixture
def extension(base: HubRun) -> HubRun:
    return begun(base, NEW)


def begun(base: HubRun, shards: tuple[Shard, ...], **changes: str) -> HubRun:
    """An extension that has reserved the repository and whose shards are queued."""
    spec = replace(base.spec, extends=base.run_id, input_revision="", **changes)
    found = replace(base, spec=spec, content={})
    found.reserve()
    found.ledger.create_run(spec, shards, now=1.0)
    return found


def manifest(run: HubRun) -> Manifest:
    found = read_manifest(run.hub.read(run.repo, MANIFEST_PATH))
    assert found is not None
    return found


def test_one_commit_adds_the_new_files_and_nothing_published_is_sent_or_named_again(
    base: HubRun, extension: HubRun
) -> None:
    before = len(base.hub.requests)
    extension.score(*NEW, data_bytes=300_000)
    extension.look(100)
    later = base.hub.requests[before:]
    published = [hashlib.sha256(content).hexdigest() for content in base.content.values()]

    commit = base.hub.commits(base.repo)[0]

    assert extension.titles() == [f"Publish run {extension.run_id}", f"Publish run {base.run_id}", "initial commit"]
    assert {operation.path for operation in commit.operations} == {*extension.content, MANIFEST_PATH, CARD_PATH}
    assert base.has(base.content | extension.content)
    assert not [request for request in later if any(sha256 in request.path for sha256 in published)]
    assert (
        sum(request.bytes_in for request in later if request.token_name == "worker") < 850_000
    )  # of 800,000 and, for the base, 160,000
    assert base.branches() == {"main"}
    assert [receipt.shard for receipt in manifest(base).receipts] == sorted(shard.name for shard in (*SHARDS, *NEW))
    assert manifest(base).run_ids == (base.run_id, extension.run_id)
    assert extension.publication.commit == commit.oid


def test_after_a_loss_of_redis_the_same_command_goes_on_with_what_the_waves_have_saved(extension: HubRun) -> None:
    extension.score(NEW[0])
    extension.look(1)
    extension.ledger.redis.flushall()

    extension.reserve()
    recovered = extension.saved()

    assert [receipt.shard for receipt in recovered] == [NEW[0].name]
    extension.ledger.create_run(extension.spec, NEW, now=1.0)
    extension.ledger.restore(extension.run_id, recovered)
    extension.score(NEW[1])
    extension.look(100)
    assert manifest(extension).run_ids[-1] == extension.run_id
    extension.ledger.redis.flushall()
    assert [receipt.shard for receipt in extension.saved()] == [shard.name for shard in NEW]


def test_a_second_extension_waits_for_the_first_and_then_adds_to_both(base: HubRun, extension: HubRun) -> None:
    third = a_shard("crawl-3/a")
    with pytest.raises(OutputTaken, match=f"reserved by another run, {extension.run_id}"):
        begun(base, (third,), crawl="CC-MAIN-2024-18")
    extension.score(*NEW)
    extension.look(100)

    second = begun(base, (third,), crawl="CC-MAIN-2024-18")
    second.score(third)
    second.look(100)

    assert manifest(base).run_ids == (base.run_id, extension.run_id, second.run_id)
    assert len(manifest(base).receipts) == 7
    assert base.has(base.content | extension.content | second.content)


def test_the_base_repairs_its_own_files_while_it_is_extended_and_neither_loses_the_others_lines(
    base: HubRun, extension: HubRun
) -> None:
    extension.score(*NEW)
    lost = SHARDS[1]
    base.hub.write(base.repo, lost.data_path, None)

    inspect_and_repair(base.ledger, base.run_id, hashes=False)
    extension.look(100)
    base.hub.write(base.repo, lost.data_path, None)
    inspect_and_repair(base.ledger, base.run_id, hashes=False)

    assert base.has(base.content | extension.content)
    assert manifest(base).run_ids == (base.run_id, extension.run_id)
    assert len(manifest(base).receipts) == len((*SHARDS, *NEW))
    assert data_of(base.outputs()) == {*base.content, *extension.content}


def test_an_extension_of_a_dataset_that_was_replaced_meanwhile_fails_and_keeps_what_it_scored(
    base: HubRun, extension: HubRun
) -> None:
    extension.score(*NEW)
    other = replace(base.spec, where='"score" >= 4.0')
    receipts = [a_receipt(other.run_id, shard) for shard in SHARDS]
    base.hub.write(base.repo, MANIFEST_PATH, a_manifest(other.run_id, receipts, spec=other))

    with pytest.raises(UsageError, match=f"now holds the data of another run, {other.run_id}"):
        extension.look(100)

    assert extension.publication is None
    assert extension.ledger.counts(extension.run_id).done == len(NEW)
