"""A zero-shot study of Reddit: collect posts, choose a label for each, and count the labels in each subreddit.

    export praw_client_id=… praw_client_secret=…
    python examples/reddit_zero_shot.py technology,climate ./study
    python examples/reddit_zero_shot.py technology,climate ./study ./my-nli-model

The credentials are those of your app on Reddit: docs/inputs.md. Stop it whenever you like: the same command resumes the
collection or the run.
"""

import subprocess
import sys
from pathlib import Path

import pandas as pd

import shardsift

LABELS = ["climate change", "technology", "health", "politics"]

if len(sys.argv) < 3:
    sys.exit(f"Usage: python {sys.argv[0]} SUBREDDITS FOLDER [MODEL]")
subreddits, folder = sys.argv[1], Path(sys.argv[2])
model = sys.argv[3] if len(sys.argv) > 3 else "facebook/bart-large-mnli"

folder.mkdir(exist_ok=True)
posts, labelled = folder / "posts.parquet", folder / "labelled"
collect = [sys.executable, "-m", "producer", "collect", "reddit", "--subreddits", subreddits, "--output", str(posts)]
if code := subprocess.run(collect).returncode:
    sys.exit(code)

ended = shardsift.run(
    input=posts,
    output=labelled,
    model=model,
    task="zero-shot",
    labels=LABELS,
    text_column="title,selftext",
    score_column="topic_score",  # because `score` is that of Reddit
    keep_all=True,
)
print(ended)

found = pd.read_parquet(labelled / "data")
print(found.pivot_table(index="subreddit", columns="topic_label", values="id", aggfunc="count", fill_value=0))
sys.exit(ended.exit_code)
