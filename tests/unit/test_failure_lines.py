"""Failed attempts are told by cause, in a few lines."""

import pytest

from shardsift.fleet.ledger import Failure
from shardsift.producer.status.failure_causes import causes_of, failure_lines, retry_lines

NO_COLUMN = 'Shard {shard} has no column "text"; it has: url, content. Name one with --text-column.'
REMEDY = "Leave the field out with --columns, or convert the files to Parquet."


def failure(shard: str, error: str, *, worker: str = "gpu/1", attempts: int = 1) -> Failure:
    return Failure(shard=shard, error=error, traceback="", worker=worker, attempts=attempts)


@pytest.mark.parametrize(
    ("failures", "lines"),
    [
        (
            [failure("crawl/7", "It is empty.", attempts=3), failure("crawl/8", "8.parquet is missing", worker="")],
            ["Shard crawl/7 failed on gpu/1: It is empty.", "Shard crawl/8 failed: 8.parquet is missing"],
        ),
        ([failure("crawl/7", " ", worker="")], ["Shard crawl/7 failed: the reason is not known."]),
        (
            [failure(f"crawl/{n:03}", NO_COLUMN.format(shard=f"crawl/{n:03}")) for n in range(100)],
            [f"100 shards failed on gpu/1, such as crawl/000: {NO_COLUMN.format(shard='crawl/000')}"],
        ),
    ],
    ids=["one with its worker, one without", "without a reason", "a hundred with one mistake"],
)
def test_each_cause_of_failed_shards_is_one_line(failures: list[Failure], lines: list[str]) -> None:
    assert list(failure_lines(failures)) == lines


@pytest.mark.parametrize(
    ("first", "second", "causes"),
    [
        ("s3://bucket/a.parquet: answered 503 after 1.5 s", "s3://bucket/b.parquet: answered 503 after 12,000 s", 1),
        ('line 27: meta.rating is "N/A", not int64', 'line 3: meta.rating is "none, so far", not int64', 1),
        ("part-00012.jsonl.gz is cut off at byte 812.", "part-00013.jsonl.gz is cut off at byte 4.", 1),
        ("The process died on box/17: killed by signal 9.", "The process died on bax/4: killed by signal 9.", 1),
        ("The Hub answered 503 (busy).", "The Hub answered 403 (busy).", 2),
        ('line 1: "meta" is null', 'line 1: "rating" is null', 2),
        ("meta.verified_by is unknown", "meta.verified_at is unknown", 2),
    ],
)
def test_causes_differ_by_a_status_or_a_column_and_not_by_a_number_or_name(
    first: str, second: str, causes: int
) -> None:
    assert len(causes_of([failure("crawl/a", first), failure("crawl/b", second)])) == causes


def test_shards_with_bad_rows_of_several_causes_are_reported_by_the_first_and_never_without_one() -> None:
    json, meta = "line {}: not valid JSON", 'line {}: "meta" has another field'
    errors = [[meta, json], [meta], [json, meta], [json]]
    failures = [
        failure(
            f"part-{n}",
            f"Shard part-{n}: {len(of)} rows of 75 cannot be read. {'; '.join(of).format(n, n + 7)}. {REMEDY}",
            worker=f"w/{n}",
        )
        for n, of in enumerate(errors)
    ]

    lines = list(failure_lines(failures))

    assert lines == [
        f'2 shards failed with 3 rows that cannot be read, such as part-1: 1 rows of 75 cannot be read. line 1: "meta" has '
        f"another field. {REMEDY}",
        "2 shards failed with 3 rows that cannot be read, such as part-3: 1 rows of 75 cannot be read. line 3: not valid JSON.",
    ]


def test_more_causes_than_fit_on_a_screen_are_counted() -> None:
    kinds = ("one", "two", "three", "four", "five", "six", "seven")
    failures = [failure(f"shard-{kind}", f"Kind {kind} is wrong.") for kind in kinds]

    lines = list(failure_lines(failures))

    assert lines[4] == "Shard shard-five failed on gpu/1: Kind five is wrong."
    assert lines[5:] == ["And 2 other errors of 2 shards: `producer status RUN --json` lists all."]


def test_shards_that_are_tried_again_are_reported_with_their_last_error() -> None:
    retries = [failure(shard, "S3 answered 503.", attempts=2) for shard in ("a", "b")] + [
        failure("c", "No space left.")
    ]

    assert list(retry_lines(retries)) == [
        "2 shards are tried again after failed attempts on gpu/1, such as a: S3 answered 503.",
        "Shard c is tried again after a failed attempt on gpu/1: No space left.",
    ]
