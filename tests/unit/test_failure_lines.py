"""Failed attempts are told by cause, in a few lines."""

from shardsift.fleet.ledger import Failure
from shardsift.producer.status.advice import causes_of, failure_lines, retry_lines

NO_COLUMN = 'Shard {shard} has no column "text"; it has: url, content. Name one with --text-column.'


def failure(shard: str, error: str, *, worker: str = "gpu/1", attempts: int = 1) -> Failure:
    return Failure(shard=shard, error=error, traceback="", worker=worker, attempts=attempts)


def test_one_failed_shard_is_one_line_with_the_worker_if_one_reported_it() -> None:
    lost = failure("crawl/8", "data/8.parquet is missing", worker="", attempts=0)

    assert list(failure_lines([failure("crawl/7", "It is empty.", attempts=3), lost])) == [
        "Shard crawl/7 failed on gpu/1 (attempt 3): It is empty.",
        "Shard crawl/8 failed: data/8.parquet is missing",
    ]


def test_a_hundred_shards_with_one_mistake_are_two_lines() -> None:
    failures = [failure(f"crawl/{n:03}", NO_COLUMN.format(shard=f"crawl/{n:03}")) for n in range(100)]

    assert list(failure_lines(failures)) == [
        f"100 shards failed with one error. crawl/000 on gpu/1 (attempt 1): {NO_COLUMN.format(shard='crawl/000')}",
        "  The others: crawl/001, crawl/002, crawl/003, crawl/004, crawl/005 and 94 more",
    ]


def test_paths_and_numbers_do_not_tell_causes_apart_but_http_statuses_do() -> None:
    failures = [
        failure("a", "s3://bucket/a.parquet: the service answered 403 after 1.5 s"),
        failure("b", "s3://bucket/b.parquet: the service answered 503 after 2 s"),
        failure("c", "s3://bucket/c.parquet: the service answered 503 after 12,000 s"),
    ]

    assert [[one.shard for one in cause] for cause in causes_of(failures)] == [["b", "c"], ["a"]]


def test_more_causes_than_fit_on_a_screen_are_counted() -> None:
    kinds = ("one", "two", "three", "four", "five", "six", "seven")
    failures = [failure(f"shard-{kind}", f"Kind {kind} is wrong.") for kind in kinds]

    lines = list(failure_lines(failures))

    assert lines[4] == "Shard shard-five failed on gpu/1 (attempt 1): Kind five is wrong."
    assert lines[5:] == ["And 2 other errors of 2 shards: `producer status RUN --json` lists all."]


def test_shards_that_are_tried_again_are_told_with_their_last_error() -> None:
    retries = [failure(shard, "S3 answered 503.", attempts=2) for shard in ("a", "b")] + [
        failure("c", "No space left.")
    ]

    assert list(retry_lines(retries)) == [
        "2 shards are tried again after one error. a on gpu/1 (attempt 2): S3 answered 503.",
        "  The others: b",
        "Shard c is tried again after it failed on gpu/1 (attempt 1): No space left.",
    ]
