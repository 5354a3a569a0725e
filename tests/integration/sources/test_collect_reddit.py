"""`producer collect reddit`: the real PRAW against a local server. What is collected, left out, waited for and refused."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.filter import Filter
from producer.sources.inputs import list_input
from support.reddit_server import PASSWORD, SECRETS, USER, Collect, RedditServer, Reply, refusal, to_search


def posts(folder: Path) -> pa.Table:
    return pq.read_table(folder / "posts.parquet")


def by_subreddit(folder: Path) -> dict[str, int]:
    names = posts(folder)["subreddit"].to_pylist()
    return {name: names.count(name) for name in dict.fromkeys(names)}


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


class TestFile:
    def test_it_has_the_newest_posts_of_each_subreddit_in_order(self, collect: Collect, folder: Path) -> None:
        done = collect("technology,climate", "--limit", "120")

        assert (done.returncode, done.stdout) == (0, "posts.parquet\n")
        ids = [f"technology{number}" for number in range(250, 130, -1)] + [
            f"climate{number}" for number in range(30, 0, -1)
        ]
        assert posts(folder)["id"].to_pylist() == ids
        assert files(folder) == ["posts.parquet"]
        assert done.stderr.splitlines() == [
            "r/technology: 120 posts.",
            "r/climate: 30 posts, all that its listing has.",
            "150 posts in posts.parquet.",
        ]

    def test_a_post_is_a_row_with_types(self, collect: Collect, folder: Path) -> None:
        collect("climate", "--limit", "1")

        (row,) = posts(folder).to_pylist()
        date = row.pop("date")
        assert row == {
            "id": "climate30",
            "title": "Post 30 of climate",
            "selftext": "",
            "subreddit": "climate",
            "score": 300,
            "url": "https://example.org/30",
            "permalink": "https://www.reddit.com/r/climate/comments/climate30/post_30/",
        }
        assert date.isoformat() == "2026-01-02T06:00:00+00:00"
        types = {field.name: str(field.type) for field in posts(folder).schema}
        assert set(types.values()) == {"string", "int64", "timestamp[ms, tz=UTC]"}
        assert (types["score"], types["date"]) == ("int64", "timestamp[ms, tz=UTC]")

    def test_it_is_one_shard_of_a_run_whose_filter_knows_its_dates(self, collect: Collect, folder: Path) -> None:
        collect("climate")

        assert [shard.name for shard in list_input(str(folder)).shards] == ["posts"]
        kept = Filter("score > 100 and date >= '2026-01-02'", posts(folder).schema).keep(posts(folder))
        assert len(kept) == 7

    def test_text_that_no_file_can_hold_is_mended(self, reddit: RedditServer, collect: Collect, folder: Path) -> None:
        reddit.add("odd", 1, title="half a \ud83d pair", selftext=None)

        assert collect("odd").returncode == 0
        assert posts(folder)["title"].to_pylist() == ["half a ? pair"]
        assert posts(folder)["selftext"].to_pylist() == [""]

    def test_posts_that_move_while_pages_are_fetched_are_there_once(
        self, reddit: RedditServer, collect: Collect, folder: Path
    ) -> None:
        listing = reddit.subreddits["technology"]
        assert isinstance(listing, list)
        listing[120:123] = listing[10:13]

        collect("technology", "--limit", "240")

        found = posts(folder)["id"].to_pylist()
        assert len(set(found)) == len(found) == 240

    def test_a_listing_ends_where_reddit_ends_it(self, reddit: RedditServer, collect: Collect, folder: Path) -> None:
        reddit.add("large", 1200)

        done = collect("large", "--limit", "5000")

        assert "r/large: 1,000 posts, all that its listing has." in done.stderr
        assert len(reddit.asked) == 10
        assert by_subreddit(folder) == {"large": 1000}


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "path", "filtered"),
        [
            ((), "/r/climate/new", None),
            (("--sort", "hot"), "/r/climate/hot", None),
            (("--sort", "top"), "/r/climate/top", "all"),
            (("--sort", "top", "--time-filter", "week"), "/r/climate/top", "week"),
        ],
    )
    def test_they_choose_the_listing(
        self, options: tuple[str, ...], path: str, filtered: str | None, reddit: RedditServer, collect: Collect
    ) -> None:
        collect("climate", "--limit", "5", *options)

        assert [(asked.path, asked.query.get("t"), asked.query["limit"]) for asked in reddit.asked] == [
            (path, filtered, "5")
        ]

    def test_a_subreddit_that_is_named_twice_is_asked_once(self, reddit: RedditServer, collect: Collect) -> None:
        collect("climate, r/Climate,/r/CLIMATE")

        assert reddit.pages_asked() == [("/r/climate/new", None)]

    @pytest.mark.parametrize(
        ("subreddits", "options", "refusal"),
        [
            ("", (), "--subreddits is empty."),
            ("not a name", (), "'not a name' is not the name of a subreddit"),
            ("climate+technology", (), "'climate+technology' is not the name of a subreddit"),
            (
                "climate",
                ("--time-filter", "week"),
                "--time-filter is for --sort top, not for --sort new. Leave it out.",
            ),
            ("climate", ("--output", "posts.csv"), "--output posts.csv must end in .parquet"),
            ("climate", ("--output", "none/posts.parquet"), "cannot be written. Name a file in a folder that exists"),
            ("climate", ("--output", "s3://bucket/posts.parquet"), "is not a file on this machine."),
        ],
    )
    def test_wrong_ones_are_refused_in_one_line_before_reddit_is_asked(
        self,
        subreddits: str,
        options: tuple[str, ...],
        refusal: str,
        reddit: RedditServer,
        collect: Collect,
        folder: Path,
    ) -> None:
        done = collect(subreddits, *options)

        assert done.returncode == 2
        assert done.stderr.startswith("producer: ")
        assert refusal in done.stderr
        assert done.stderr.count("\n") == 1
        assert reddit.tokens == 0
        assert files(folder) == []

    def test_json_says_what_was_left_out(self, collect: Collect) -> None:
        done = collect("climate,nowhere", "--json")

        assert json.loads(done.stdout) == {
            "output": "posts.parquet",
            "posts": 30,
            "left_out": {"nowhere": "there is no such subreddit"},
        }


class TestUnavailable:
    @pytest.mark.parametrize(
        ("reply", "reason"),
        [
            (to_search("hidden"), "there is no such subreddit"),
            (refusal(404), "there is no such subreddit"),
            (refusal(404, "banned"), "it is banned"),
            (refusal(403, "private"), "it is private"),
            (refusal(403, "quarantined"), "it is quarantined"),
            (refusal(403, "gated"), "it is gated: Reddit shows it only to users who have agreed to see it"),
            (refusal(403, "gold_only"), "Reddit refuses it (403, gold_only)"),
            (Reply(status=403, body="<html>blocked</html>"), "Reddit refuses it (403)"),
            (refusal(451), "Reddit refuses it (451)"),
            (
                Reply(status=302, headers={"location": "https://www.reddit.com/login/"}),
                "Reddit leads to /login/ instead",
            ),
        ],
    )
    def test_one_is_left_out_with_a_warning_and_the_others_are_collected(
        self, reply: Reply, reason: str, reddit: RedditServer, collect: Collect, folder: Path
    ) -> None:
        reddit.subreddits["hidden"] = reply

        done = collect("hidden,climate")

        assert done.returncode == 0
        assert f"Warning: r/hidden is left out: {reason}.\n" in done.stderr
        assert by_subreddit(folder) == {"climate": 30}

    def test_one_that_closes_in_the_middle_keeps_what_it_gave(
        self, reddit: RedditServer, collect: Collect, folder: Path
    ) -> None:
        first = reddit.listing("/r/technology/new", {"limit": "100"})
        reddit.replies.extend([first, refusal(403, "private")])

        done = collect("technology,climate", "--limit", "200")

        assert "Warning: r/technology ends after 100 posts: it is private." in done.stderr
        assert by_subreddit(folder) == {"Technology": 100, "climate": 30}

    @pytest.mark.parametrize("subreddits", ["nowhere,hidden", "empty"])
    def test_without_any_post_there_is_no_file_and_the_exit_code_says_so(
        self, subreddits: str, reddit: RedditServer, collect: Collect, folder: Path
    ) -> None:
        reddit.subreddits["hidden"] = refusal(403, "private")
        reddit.add("empty", 0)

        done = collect(subreddits)

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith("No post was collected, so there is no file.\n")
        assert files(folder) == []


class TestRateLimits:
    def test_too_many_requests_are_repeated_after_the_time_that_reddit_names(
        self, reddit: RedditServer, collect: Collect, folder: Path
    ) -> None:
        reddit.replies.append(refusal(429, **{"retry-after": "2"}))

        done = collect("climate")

        assert done.returncode == 0
        assert "Reddit answers: too many requests (429). Trying again in 2 s.\n" in done.stderr
        first, second = (asked.at for asked in reddit.asked)
        assert second - first >= 2
        assert by_subreddit(folder) == {"climate": 30}

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_token_that_is_refused_for_now_is_asked_for_again(
        self, status: int, reddit: RedditServer, collect: Collect, folder: Path
    ) -> None:
        reddit.token_replies.append(refusal(status))

        done = collect("climate")

        assert (done.returncode, reddit.tokens) == (0, 1)
        assert f"({status}). Trying again in 1 s.\n" in done.stderr
        assert by_subreddit(folder) == {"climate": 30}

    def test_a_limit_that_is_used_up_is_waited_for(self, reddit: RedditServer, collect: Collect) -> None:
        reddit.limits.update({"x-ratelimit-remaining": "0", "x-ratelimit-used": "100", "x-ratelimit-reset": "1"})

        done = collect("technology", "--limit", "200")

        assert "Reddit's rate limit is used up." in done.stderr
        first, second = (asked.at for asked in reddit.asked)
        assert second - first >= 1

    def test_waits_grow_and_end_with_the_patience(self, reddit: RedditServer, collect: Collect, folder: Path) -> None:
        reddit.replies.extend([refusal(429)] * 9)

        done = collect("climate", "--retry-seconds", "2")

        assert re.findall(r"Trying again in (\d+) s", done.stderr) == ["1"]
        assert len(reddit.asked) == 2
        assert done.returncode == 3
        assert done.stderr.endswith("What was collected is kept. Run the same command again to go on.\n")
        assert files(folder) == []

    def test_a_reset_of_the_window_is_waited_for_too(self, reddit: RedditServer, collect: Collect) -> None:
        reddit.replies.append(refusal(429, **{"x-ratelimit-reset": "500"}))

        done = collect("climate", "--retry-seconds", "400")

        assert (done.returncode, len(reddit.asked)) == (3, 1)


class TestAccess:
    def test_the_user_agent_names_shardsift_its_version_and_the_user(
        self, reddit: RedditServer, collect: Collect, environment: dict[str, str]
    ) -> None:
        environment.update(praw_username=USER, praw_password=PASSWORD)

        collect("climate")

        ours = f"{sys.platform}:shardsift:{version('shardsift')} (by /u/{USER}) PRAW/"
        assert reddit.asked[0].user_agent.startswith(ours)

    def test_a_user_agent_of_ones_own_is_followed_by_ours(
        self, reddit: RedditServer, collect: Collect, environment: dict[str, str]
    ) -> None:
        environment["praw_user_agent"] = "a study of a university"

        collect("climate")

        assert reddit.asked[0].user_agent.startswith(f"a study of a university shardsift:{version('shardsift')} ")

    @pytest.mark.parametrize("missing", [("client_id",), ("client_secret",), ("client_id", "client_secret")])
    def test_missing_credentials_are_named_with_what_to_do(
        self, missing: tuple[str, ...], collect: Collect, environment: dict[str, str], folder: Path
    ) -> None:
        for name in missing:
            del environment[f"praw_{name}"]

        done = collect("climate")

        assert done.returncode == 2
        assert f"there is no {' and no '.join(missing)}. Create an app" in done.stderr
        assert "https://www.reddit.com/prefs/apps" in done.stderr
        assert done.stderr.count("\n") == 1
        assert files(folder) == []

    def test_they_may_come_from_praw_ini_or_from_variables_in_capitals(
        self, collect: Collect, environment: dict[str, str], tmp_path: Path
    ) -> None:
        with (tmp_path / "config/praw.ini").open("a") as file:
            file.write(f"client_id = {environment.pop('praw_client_id')}\n")
        environment["PRAW_CLIENT_SECRET"] = environment.pop("praw_client_secret")

        assert collect("climate").returncode == 0

    @pytest.mark.parametrize(
        ("wrong", "refusal"),
        [
            ({"praw_client_secret": "wrong"}, "Reddit refuses the credentials (401). Check praw_client_id"),
            (
                {"praw_username": USER, "praw_password": "wrong"},
                "Reddit refuses the user name, password or refresh token",
            ),
            ({"praw_site": "study"}, "praw.ini cannot be used: NoSectionError."),
        ],
    )
    def test_wrong_ones_are_told_in_one_line(
        self, wrong: dict[str, str], refusal: str, collect: Collect, environment: dict[str, str], folder: Path
    ) -> None:
        environment.update(wrong)

        done = collect("climate")

        assert done.returncode == 2
        assert refusal in done.stderr
        assert done.stderr.count("\n") == 1
        assert files(folder) == []

    def test_a_line_of_praw_ini_that_cannot_be_read_is_not_shown(self, collect: Collect, tmp_path: Path) -> None:
        (tmp_path / "config/praw.ini").write_text(f"[DEFAULT]\n{PASSWORD}\n")

        done = collect("climate")

        assert (done.returncode, done.stderr) == (
            2,
            "producer: praw.ini cannot be used: ParsingError. Correct it, or praw_site.\n",
        )

    def test_no_secret_is_stored_or_shown(
        self, reddit: RedditServer, collect: Collect, environment: dict[str, str], folder: Path
    ) -> None:
        environment.update(praw_username=USER, praw_password=PASSWORD)
        first = reddit.listing("/r/technology/new", {"limit": "100"})
        reddit.replies.extend([first, refusal(500), refusal(500), refusal(500)])

        stopped = collect("technology,nowhere", "--limit", "200", "--retry-seconds", "0")
        journal = (folder / ".posts.parquet.collecting").read_text()
        done = collect("technology,nowhere", "--limit", "200")

        assert (stopped.returncode, done.returncode) == (3, 0)
        shown = [
            journal,
            stopped.stderr,
            done.stdout,
            done.stderr,
            (folder / "posts.parquet").read_bytes().decode("latin1"),
        ]
        assert [secret for secret in SECRETS if secret in "".join(shown)] == []


def test_without_praw_the_command_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['praw'] = None; sys.argv = ['producer', *sys.argv[1:]]; "
        "from producer.cli import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, "collect", "reddit", "--subreddits", "climate", "--output", "posts.parquet"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (
        2,
        "producer: Collecting from Reddit needs PRAW. Install it with: pip install 'shardsift[reddit]'.\n",
    )
