"""A user's folder with modules named like our packages and folders, and a script there that calls each public
function.
"""

from pathlib import Path

from support.crawls import copy_shards
from support.labelled import write_topics

_NAMES = ("worker", "producer", "fleet", "tests", "chaos", "benchmarks", "docs")
_SCRIPT = """
import inspect, sys
import shardsift

def functions():
    return {name for name in shardsift.__all__ if inspect.isfunction(getattr(shardsift, name))}

if __name__ == "__main__":
    model = sys.argv[1]
    run = dict(input="shards", model=model, where="score > -100")
    scorer = shardsift.load_scorer(model, parity_rows=0)
    sent = shardsift.enqueue(output="sent", **run)
    results = dict(
        load_scorer=scorer,
        enqueue=sent,
        score=shardsift.score(["a text"], scorer).shape,
        pause=shardsift.pause(sent.run_id).word,
        resume=shardsift.resume(sent.run_id).word,
        cancel=shardsift.cancel(sent.run_id).word,
        retry=shardsift.retry(sent.run_id).word,
        run=shardsift.run(output="kept", progress=False, workers=1, **run).word,
        status=shardsift.status(sent.run_id).word,
        scores=len(shardsift.scores("./kept").near(0.5)),
        sample=shardsift.sample("./kept", rows=4, at=3, input="shards").num_rows,
        evaluate=shardsift.evaluate("./kept", "./kept").labels.good,
        verify=shardsift.verify("./kept", input="shards").is_sound,
        refilter=shardsift.refilter("./kept", output="again", input="shards", min_score=0, progress=False, workers=1).word,
        train=shardsift.train(base_model=model, data="topics.parquet", label_column="topic", output="own", progress=False),
    )
    assert set(results) == functions(), functions() ^ set(results)
    print(*(results[name] for name in ("score", "pause", "resume", "cancel", "retry", "run", "verify", "refilter")))
"""
SAYS = "(1,) paused queued cancelled queued published True published\n"


def folder_of_a_user(folder: Path, shards: Path) -> Path:
    """Write `script.py`, which takes a model, and modules of the user. Each module leaves a file `imported` and fails."""
    for name in _NAMES:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'a').write('{name}\\n')\n1 / 0\n")
    clone = folder / "shardsift"
    (clone / "shardsift").mkdir(parents=True)
    (clone / "shardsift/__init__.py").write_text("1 / 0\n")
    (clone / "pyproject.toml").touch()
    copy_shards(shards, folder / "shards", count=2)
    write_topics(folder / "topics.parquet", rows=30)
    (folder / "script.py").write_text(_SCRIPT)
    return folder
