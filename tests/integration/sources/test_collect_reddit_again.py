"""`producer collect reddit` again, after a kill, a crash, an outage or its end: nothing is lost, doubled or fetched twice."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from producer.sources.reddit.collection import collection_of
from producer.sources.reddit.journal import opened_journal
from support.processes import started
from support.reddit_server import Collect, RedditServer, Reply, refusal, serving_reddit
from support.waiting import wait_until

OPTIONS = ("--limit", "220")
PAGES = [
    ("/r/technology/new", None),
    ("/r/technology/new", "t3_technology151"),
    ("/r/technology/new", "t3_technology51"),
    ("/r/climate/new", None),
]


@pytest.fixture
def output(folder: Path) -> Path:
    return folder / "posts.parquet"


@pytest.fixture
def journal(folder: Path) -> Path:
    return folder / ".posts.parquet.collecting"


@pytest.fixture
def undisturbed(collect: Collect, reddit: RedditServer, output: Path) -> bytes:
    """The file that a collection without accidents writes."""
    assert collect("technology,climate", *OPTIONS).returncode == 0
    assert reddit.pages_asked() == PAGES
    reddit.asked.clear()
    found = output.read_bytes()
    output.unlink()
    return found


def stop_after(pages: int, collect: Collect, reddit: RedditServer) -> None:
    """Let a command fetch this many pages and then give up."""
    reddit.replies.extend([*([None] * pages), refusal(429)])
    assert collect("technology,climate", *OPTIONS, "--retry-seconds", "0").returncode == 3
    reddit.asked.clear()


@pytest.mark.parametrize("page", [1, 2, 3, 4])
def test_a_killed_collection_goes_on_with_the_next_page(
    page: int, undisturbed: bytes, collect: Collect, reddit: RedditServer, environment: dict[str, str], output: Path
) -> None:
    """It is killed while it waits for this page."""
    reddit.hold_at = page
    command = ("producer", "collect", "reddit", "--subreddits", "technology,climate", "--output", output, *OPTIONS)
    with started(*command, environment=environment, log=output.parent.parent / "log") as child:
        wait_until(lambda: len(reddit.asked) == page, description="the page is asked for")
        child.kill()
    reddit.go_on.set()
    before = sorted(output.parent.iterdir())

    done = collect("technology,climate", *OPTIONS)

    assert output not in before
    assert done.returncode == 0
    assert reddit.pages_asked() == [*PAGES[:page], *PAGES[page - 1 :]]
    assert output.read_bytes() == undisturbed
    assert sorted(output.parent.iterdir()) == [output]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT, and so do the processes that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_keeps_the_pages_and_says_how_to_go_on(
    undisturbed: bytes, collect: Collect, reddit: RedditServer, environment: dict[str, str], output: Path
) -> None:
    reddit.hold_at = 3
    log = output.parent.parent / "log"
    command = ("producer", "collect", "reddit", "--subreddits", "technology,climate", "--output", output, *OPTIONS)
    with started(*command, environment=environment, log=log) as child:
        wait_until(lambda: len(reddit.asked) == 3, description="the third page is asked for")
        child.send_signal(signal.SIGINT)
        code = child.wait(20)
    reddit.go_on.set()

    collect("technology,climate", *OPTIONS)

    assert (code, log.read_text()) == (130, "Stopped. Run the same command again to go on.\n")
    assert output.read_bytes() == undisturbed


@pytest.mark.parametrize("pages", [1, 3])
def test_a_collection_that_gave_up_says_what_it_has_and_goes_on(
    pages: int, undisturbed: bytes, collect: Collect, reddit: RedditServer, output: Path
) -> None:
    stop_after(pages, collect, reddit)

    done = collect("Technology,climate", *OPTIONS)

    assert f"Resuming: {min(220, 100 * pages)} posts of an earlier command are kept.\n" in done.stderr
    assert reddit.pages_asked() == PAGES[pages:]
    assert output.read_bytes() == undisturbed


@pytest.mark.parametrize("cut", [0, 1, 30, 200, -1])
def test_a_page_that_a_crash_has_half_written_is_fetched_again(
    cut: int, undisturbed: bytes, collect: Collect, reddit: RedditServer, output: Path, journal: Path
) -> None:
    stop_after(2, collect, reddit)
    written = journal.read_bytes()
    last = written.rindex(b"\n", 0, -1) + 1
    journal.write_bytes(written[:cut] if cut < 0 else written[: last + cut])

    collect("technology,climate", *OPTIONS)

    assert reddit.pages_asked() == PAGES[1:]
    assert output.read_bytes() == undisturbed


def test_a_first_line_that_a_crash_has_half_written_is_written_again(
    undisturbed: bytes, collect: Collect, output: Path, journal: Path
) -> None:
    journal.write_bytes(b'{"limit": 22')

    assert collect("technology,climate", *OPTIONS).returncode == 0
    assert output.read_bytes() == undisturbed


def test_a_crash_between_the_file_and_the_end_changes_nothing(
    undisturbed: bytes, collect: Collect, reddit: RedditServer, output: Path, journal: Path
) -> None:
    stop_after(3, collect, reddit)
    shutil.copy(journal, journal.with_name("copy"))
    collect("technology,climate", *OPTIONS)
    journal.with_name("copy").rename(journal)
    reddit.asked.clear()

    done = collect("technology,climate", *OPTIONS)

    assert done.stderr == "posts.parquet is complete: 250 posts. Delete it to collect again.\n"
    assert (done.returncode, done.stdout) == (0, "posts.parquet\n")
    assert reddit.asked == []
    assert output.read_bytes() == undisturbed
    assert not journal.exists()


def test_an_answer_that_breaks_off_is_asked_for_again(
    undisturbed: bytes, collect: Collect, reddit: RedditServer, output: Path
) -> None:
    whole = reddit.listing("/r/technology/new", {"limit": "100"})
    reddit.replies.append(Reply(body=whole.body, headers=whole.headers, is_cut=True))

    done = collect("technology,climate", *OPTIONS)

    assert done.returncode == 0
    assert reddit.pages_asked() == [PAGES[0], *PAGES]
    assert output.read_bytes() == undisturbed


def test_an_outage_between_two_pages_costs_no_page(
    undisturbed: bytes, collect: Collect, reddit: RedditServer, output: Path
) -> None:
    """The server is gone while the command asks for its third page, and comes back for the next command."""
    reddit.dies_at = 3
    stopped = collect("technology,climate", *OPTIONS, "--retry-seconds", "0")

    with serving_reddit(reddit.server_port) as again:
        again.subreddits = reddit.subreddits
        done = collect("technology,climate", *OPTIONS)

    assert stopped.returncode == 3
    assert "Reddit does not answer (ConnectionError)." in stopped.stderr
    assert done.returncode == 0
    assert again.pages_asked() == PAGES[2:]
    assert output.read_bytes() == undisturbed


def test_two_commands_do_not_collect_into_the_same_file(collect: Collect, reddit: RedditServer, output: Path) -> None:
    collection = collection_of("technology,climate", sort="new", time_filter=None, limit=220)
    with opened_journal(output, collection):
        done = collect("technology,climate", *OPTIONS)

    assert (done.returncode, reddit.asked) == (2, [])
    assert "Another command is collecting into posts.parquet. Wait for it to end." in done.stderr


@pytest.mark.parametrize(
    ("subreddits", "options"),
    [
        ("climate", OPTIONS),
        ("technology,climate", ("--limit", "5")),
        ("technology,climate", (*OPTIONS, "--sort", "hot")),
    ],
)
@pytest.mark.parametrize("is_done", [False, True])
def test_another_collection_is_never_mixed_in(
    is_done: bool, subreddits: str, options: tuple[str, ...], collect: Collect, reddit: RedditServer, folder: Path
) -> None:
    stop_after(2, collect, reddit)
    if is_done:
        collect("technology,climate", *OPTIONS)
        reddit.asked.clear()
    before = {file: file.read_bytes() for file in folder.iterdir()}

    done = collect(subreddits, *options)

    said = (
        "posts.parquet is there already, and not by this command."
        if is_done
        else "holds the beginning of another collection: technology,climate; new; limit 220. Repeat that command"
    )
    assert (done.returncode, reddit.asked) == (2, [])
    assert said in done.stderr
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize("is_parquet", [False, True])
def test_a_file_of_someone_else_is_left_alone(is_parquet: bool, collect: Collect, output: Path) -> None:
    output.write_bytes(b"mine")
    if is_parquet:
        pq.write_table(pa.table({"id": ["mine"]}), output)
    before = output.read_bytes()

    done = collect("climate")

    assert done.returncode == 2
    assert "Choose another --output, or delete it." in done.stderr
    assert output.read_bytes() == before


def test_a_damaged_journal_is_not_guessed_at(collect: Collect, reddit: RedditServer, journal: Path) -> None:
    stop_after(2, collect, reddit)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"{}\n", lines[2]]))

    done = collect("technology,climate", *OPTIONS)

    assert (done.returncode, reddit.asked) == (2, [])
    assert done.stderr.endswith("is damaged. Delete it to begin again.\n")
