"""Calls of the public API that a type checker accepts, and some that it must refuse. Never run; `make check` reads it.

mypy reports an `ignore` that is not needed, so each of these is an error.
"""

from pathlib import Path

import shardsift


def accepted() -> None:
    kept = shardsift.run(input=["a.parquet", Path("b.parquet")], text_column=["title", "body"], output=Path("kept"))
    shardsift.enqueue(crawl=["CC-MAIN-2024-10", "CC-MAIN-2024-18"], keep_all=True, redis_url="redis://h")
    shardsift.enqueue(crawl="CC-MAIN-2024-10", model={"edu": "a/b"}, columns=["id", "text"], redis_url="redis://h")
    shardsift.refilter(kept.output_uri, keep_top="10%", score_column="score", output="best")
    shardsift.scores("kept").edges(20, by="token_count")
    sheet = shardsift.sample("kept", rows=100, within="topic", columns=["url"], input=Path("shards"))
    shardsift.evaluate("kept", sheet.to_pandas(), at=2.5, judge="a model").chosen("precision=0.8")
    shardsift.evaluate("kept", Path("labels.csv"), at=[2, 2.5])
    shardsift.score(["text"], labels=["sport", "politics"], device="cpu", max_tokens=128)
    shardsift.load_scorer("a/b", dtype="float32").table(["text"], passages="head+tail")
    shardsift.train(base_model="a/b", output="classifier", data=Path("labelled.parquet")).as_json()


def refused() -> None:
    shardsift.run(text_colum="body")  # type: ignore[call-arg]
    shardsift.run(dtype="bf16")  # type: ignore[arg-type]
    shardsift.enqueue(min_score="high")  # type: ignore[arg-type]
    shardsift.refilter("kept", input_uris="a")  # type: ignore[call-arg]
    shardsift.scores("kept").edges(20, weight="token_count")  # type: ignore[call-arg]
    shardsift.evaluate("kept", 3)  # type: ignore[arg-type]
    shardsift.sample("kept", more=["row"])  # type: ignore[arg-type]
    shardsift.score(["text"], label=["sport"])  # type: ignore[call-overload]
    shardsift.load_scorer("a/b", gpu=0)  # type: ignore[call-overload]
    shardsift.train(output="classifier")  # type: ignore[call-arg]
    shardsift.pause(run="a")  # type: ignore[call-arg]
