"""A zero-shot study of Reddit: collect posts, choose a label for each, and count the labels in each subreddit.

    pip install '.[worker,local]' pandas praw
    export praw_client_id=… praw_client_secret=…
    python examples/reddit/study.py technology,climate ./study
    python examples/reddit/study.py technology,climate ./study ./my-nli-model

Create an app of the type "script" at https://www.reddit.com/prefs/apps for the credentials; PRAW sends them to Reddit alone.
Its listings end at about 1,000 posts. After a stop, the same command resumes the run; posts.jsonl is collected once.
"""

import json
import sys
from pathlib import Path

import pandas as pd
import praw
from prawcore.exceptions import Forbidden, NotFound, Redirect

import shardsift

LABELS = ["climate change", "technology", "health", "politics"]
POSTS = 250  # of each subreddit, the newest


def collect(subreddits: list[str], file: Path) -> None:
    """Write the newest posts as JSON Lines. PRAW respects Reddit's rate limit, and repeats failed requests."""
    reddit = praw.Reddit(user_agent=f"{sys.platform}:shardsift-example", check_for_updates=False, ratelimit_seconds=600)
    partial = file.with_suffix(".partial")
    with partial.open("w") as lines:
        for name in subreddits:
            try:
                for post in reddit.subreddit(name).new(limit=POSTS):
                    lines.write(json.dumps(row(post)) + "\n")
            except (Forbidden, NotFound, Redirect) as error:  # private, banned, or no such subreddit
                print(f"r/{name} is left out: {error}", file=sys.stderr)
    partial.rename(file)


def row(post: praw.models.Submission) -> dict[str, str | int]:
    """Make a row from a post.

    Half of a surrogate pair, which JSON can hold but a text file cannot, becomes a question mark.
    """
    texts = {name: getattr(post, name).encode("utf-8", "replace").decode() for name in ("title", "selftext", "url")}
    return {"id": post.id, **texts, "subreddit": post.subreddit.display_name, "votes": post.score}


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"Usage: python {sys.argv[0]} SUBREDDITS FOLDER [MODEL]")
    folder = Path(sys.argv[2])
    posts, labelled = folder / "posts.jsonl", folder / "labelled"
    folder.mkdir(exist_ok=True)
    if not posts.exists():
        collect(sys.argv[1].split(","), posts)

    ended = shardsift.run(
        input=posts,
        output=labelled,
        model=sys.argv[3] if len(sys.argv) > 3 else "facebook/bart-large-mnli",
        labels=LABELS,
        text_column="title,selftext",
        keep_all=True,
    )
    print(ended)

    found = pd.read_parquet(labelled / "data")
    print(found.pivot_table(index="subreddit", columns="label", values="id", aggfunc="count", fill_value=0))
    sys.exit(ended.exit_code)
