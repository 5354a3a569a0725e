"""Failed attempts are told by cause, in a few lines."""

from fleet.ledger import Failure
from producer.status.advice import causes_of, failure_lines, retry_lines

NO_COLUMN = 'Shard {shard} has no column "text"; it has: url, content. Name one with --text-column.'
UNFORESEEN = """Traceback (most recent call last):
  File "score_shard.py", line 60, in score_shard
    rows = read(shard)
ValueError: 17 is odd
"""
FORESEEN = """Traceback (most recent call last):
  File "attempt.py", line 90, in run
    raise ShardError("no column")
fleet.errors.ShardError: no column
"""


def failure(shard: str, error: str, *, traceback: str = "", worker: str = "gpu/1", attempts: int = 1) -> Failure:
    return Failure(shard=shard, error=error, traceback=traceback, worker=worker, attempts=attempts)


def test_one_failed_shard_is_one_line() -> None:
    assert list(failure_lines([failure("crawl/7", "It is empty.", attempts=3)])) == [
        "Shard crawl/7 failed on gpu/1 (attempt 3): It is empty."
    ]


def test_a_hundred_shards_with_one_mistake_are_two_lines() -> None:
    failures = [
        failure(f"crawl/{n:03}", NO_COLUMN.format(shard=f"crawl/{n:03}"), traceback=FORESEEN) for n in range(100)
    ]

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

    assert [[one.shard for one in cause.failures] for cause in causes_of(failures)] == [["b", "c"], ["a"]]


def test_an_unexpected_error_comes_with_the_end_of_one_traceback() -> None:
    failures = [
        failure("a", "no column", traceback=FORESEEN),
        failure("b", "ValueError: 17 is odd", traceback=UNFORESEEN),
        failure("c", "ValueError: 19 is odd", traceback=UNFORESEEN.replace("17", "19")),
    ]

    lines = list(failure_lines(failures))

    assert lines[0] == "2 shards failed with one error. b on gpu/1 (attempt 1): ValueError: 17 is odd"
    assert lines[2] == "Shard a failed on gpu/1 (attempt 1): no column"
    assert lines[3] == "  The traceback of b ends with these lines; --json has it whole:"
    assert lines[4:] == [f"    {line}" for line in UNFORESEEN.splitlines()]


def test_more_causes_than_fit_on_a_screen_are_counted() -> None:
    kinds = ("one", "two", "three", "four", "five", "six", "seven")
    failures = [failure(f"shard-{kind}", f"Kind {kind} is wrong.") for kind in kinds]

    lines = list(failure_lines(failures))

    assert lines[4] == "Shard shard-five failed on gpu/1 (attempt 1): Kind five is wrong."
    assert lines[5:] == ["And 2 other errors of 2 shards: see --json."]


def test_shards_that_are_tried_again_are_told_with_their_last_error() -> None:
    retries = [failure(shard, "S3 answered 503.", attempts=2) for shard in ("a", "b")] + [
        failure("c", "No space left.")
    ]

    assert list(retry_lines(retries)) == [
        "3 shards wait for another attempt. Shard a on gpu/1, attempt 2: S3 answered 503. (2 shards)",
        "  Shard c on gpu/1, attempt 1: No space left.",
    ]


def test_a_failure_that_no_worker_reported_names_none() -> None:
    lost = failure("crawl/7", "data/7.parquet is missing", worker="", attempts=0)

    assert list(failure_lines([lost])) == ["Shard crawl/7 failed: data/7.parquet is missing"]
