"""Damage of a published output is reported, and the same command repairs what was lost and nothing else.

All kinds of damage of a folder and some of a Hub's dataset, with or without a loss of the ledger.
"""

import hashlib
import io
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import Plan, plan_run
from support.output_runs import PublishedOnHub
from support.outputs import Published
from support.small_fleet import Outcome, enqueue_and_wait

SHARDS, ROWS = 3, 12
B = "000_00001"
DATA_B, SCORES_B = f"data/{B}.parquet", f"scores/{B}.parquet"
FOREIGN = "data/theirs.parquet"
_numbers = count()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of damage to a published output, and what the same command then reports and does."""

    happens: tuple[tuple[str, str], ...]  # what to do to which path
    said: tuple[str, ...]
    said_without_ledger: tuple[str, ...] | None = None  # if it is not the same
    shards: tuple[str, ...] = ()  # shards that are done again
    rows: int = 0  # rows that are scored for that
    verify: bool = False
    exit_code: int = 0


ALL = tuple(f"000_{number:05}" for number in range(SHARDS))
CASES = {
    "nothing": Case(happens=(), said=()),
    "a data file is deleted": Case(
        happens=(("delete", DATA_B),), said=(f"{DATA_B} is missing",), shards=(B,), rows=ROWS
    ),
    "a data file is flipped": Case(
        happens=(("flip", DATA_B),),
        said=(f"{DATA_B} has changed since it was written (its sha256 differs)",),
        shards=(B,),
        rows=ROWS,
        verify=True,
    ),
    "a scores file is deleted": Case(
        happens=(("delete", SCORES_B),), said=(f"{SCORES_B} is missing",), shards=(B,), rows=ROWS
    ),
    "the manifest is cut": Case(
        happens=(("truncate", MANIFEST_PATH),), said=(f"{MANIFEST_PATH} cannot be read",), said_without_ledger=()
    ),
    "the card is zeroed": Case(happens=(("zero", CARD_PATH),), said=(f"{CARD_PATH} cannot be read (it is not text)",)),
    "everything is deleted": Case(
        happens=(("delete_all", ""),),
        said=(
            *(f"{kind}/{name}.parquet is missing" for name in ALL for kind in ("data", "scores")),
            f"{MANIFEST_PATH} is missing",
            f"{CARD_PATH} is missing",
        ),
        said_without_ledger=(),
        shards=ALL,
        rows=SHARDS * ROWS,
    ),
    "a data file is deleted and a foreign one is there": Case(
        happens=(("delete", DATA_B), ("write_theirs", FOREIGN)),
        said=(f"{DATA_B} is missing", f"{FOREIGN} is not a file of this run"),
        shards=(B,),
        rows=ROWS,
        exit_code=1,
    ),
}


ON_THE_HUB = (
    "nothing",
    "a data file is deleted",
    "the manifest is cut",
    "everything is deleted",
    "a data file is deleted and a foreign one is there",
)


@pytest.fixture(scope="module")
def a_plan(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("in") / "shards"
    write_shards(folder, shards=SHARDS, rows=ROWS, seed=1)
    options = RunOptions(
        input_uris=(str(folder),), models=(str(tiny_model),), dtype="float32", output_uri=str(folder.parent / "out")
    )
    plan = plan_run(options)
    return replace(plan, spec=replace(plan.spec, window_rows=5))


def check(case: Case, outcome: Outcome, *, is_lost: bool, shards: tuple[str, ...], rows: int) -> None:
    said = case.said_without_ledger if is_lost and case.said_without_ledger is not None else case.said
    assert (tuple(outcome.said), tuple(outcome.shards)) == (said, shards)
    assert (outcome.rows_scored, outcome.exit_code) == (rows, case.exit_code)
    assert outcome.state == ("damaged" if case.exit_code else "published")


def check_documents(files: dict[str, bytes]) -> None:
    """Check that card and manifest can be read, and that the manifest describes each file correctly."""
    lines = pq.read_table(io.BytesIO(files[MANIFEST_PATH])).to_pylist()
    listed = {line[kind]["path"]: line[kind]["sha256"] for line in lines for kind in ("data", "scores")}
    assert len(lines) == SHARDS
    assert listed == {path: hashlib.sha256(files[path]).hexdigest() for path in listed}
    assert files[CARD_PATH].decode().startswith("---\n")


@pytest.mark.parametrize("is_lost", [False, True], ids=["ledger", "ledger-lost"])
@pytest.mark.parametrize(
    ("files", "name"),
    [*(("folder", name) for name in CASES), *(("hub", name) for name in ON_THE_HUB)],
    indirect=["files"],
)
def test_the_same_command_names_what_happened_and_puts_it_right(
    files: Published, name: str, is_lost: bool, a_plan: Plan, redis_url: str, ledger: Ledger, tmp_path: Path
) -> None:
    case, plan = CASES[name], replace(a_plan, spec=replace(a_plan.spec, output_uri=files.uri))
    first = enqueue_and_wait(redis_url, plan, tmp_path)
    whole = files.visible()
    for happening, path in case.happens:
        getattr(files, happening)(*([path] if path else []))
    if is_lost:
        ledger.redis.flushall()

    outcome = enqueue_and_wait(redis_url, plan, tmp_path, case.verify)

    assert (first.state, first.said, first.shards) == ("published", [], list(ALL))
    # A blob that an earlier commit of the Hub names is still there: it is committed again, and nothing is scored. Only a run
    # that the ledger has lost is taken over by what main shows.
    is_done_again = not isinstance(files, PublishedOnHub) or is_lost or case.shards == ALL
    shards, rows = (case.shards, case.rows) if is_done_again else ((), 0)
    has_history = isinstance(files, PublishedOnHub) and case.shards != ALL  # in which the last manifest is
    check(case, outcome, is_lost=is_lost and not has_history, shards=shards, rows=rows)
    now = files.visible()
    data = [path for path in whole if path.startswith(("data/", "scores/"))]
    assert {path: now[path] for path in data} == {path: whole[path] for path in data}
    assert now.keys() == whole.keys() | ({FOREIGN} if case.exit_code else set())
    check_documents(now)
    assert files.leftovers() == set()
