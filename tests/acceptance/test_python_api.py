"""The Python API as a notebook uses it: five lines in a fresh process, a run in a thread, a fleet, docs/python.md, examples/."""

import re
import signal
import textwrap
import threading
from collections.abc import Iterator
from contextlib import chdir
from itertools import count
from pathlib import Path
from typing import Any

import celery
import numpy as np
import pandas as pd
import pytest
from celery import Celery
from redis.connection import parse_url

import shardsift
from support.crawls import copy_shards
from support.fleet import Fleet, new_fleet
from support.labelled import write_topics
from support.models import tiny_classifier
from support.nli import nli_classifier
from support.outputs import published_rows
from support.packages import installed
from support.pages import texts_of
from support.processes import call_script, run_command
from support.proxy import Network

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MODEL = "HuggingFaceFW/fineweb-edu-classifier"  # in docs/python.md; the tests have a small one


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory, shards: Path) -> Iterator[Path]:
    """A folder with two shards in it, which is the current folder, on a machine without a Redis of its own."""
    folder = tmp_path_factory.mktemp("notebook")
    copy_shards(shards, folder / "shards", count=2)
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setenv("SHARDSIFT_STATE_DIR", str(folder / "state"))
        patch.setenv("SHARDSIFT_PARITY_ROWS", "0")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.delenv("REDIS_URL", raising=False)
        yield folder


@pytest.fixture(scope="module")
def kept(notebook: Path, tiny_model: Path) -> shardsift.RunStatus:
    """How the run into ./kept ended. Another call for it resumes it, which takes a moment."""
    return run_into_kept(tiny_model)


@pytest.fixture(scope="module")
def working_fleet(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Fleet]:
    """A fleet with a finalizer and a worker."""
    with new_fleet(tmp_path_factory.mktemp("fleet")) as fleet, fleet.finalizer(), fleet.worker(tiny_model):
        yield fleet


def run_into_kept(model: Path) -> shardsift.RunStatus:
    options: dict[str, Any] = {"min_score": 3, "workers": 1, "progress": False}
    return shardsift.run(input="./shards/*.parquet", output="./kept", model=model, **options)


def test_every_public_name_is_found_without_torch_and_a_users_own_celery_stays_current() -> None:
    code = """
        import pydoc, sys, celery, shardsift
        own = celery.Celery("a user's own")
        names = [name for name in dir(shardsift) if not name.startswith("_")]
        assert names == sorted(shardsift.__all__), names
        assert all(getattr(shardsift, name).__doc__ for name in names)
        assert "Score texts with a sequence classifier" in pydoc.render_doc(shardsift)
        assert shardsift.__version__
        import shardsift.scorers
        assert celery.current_app.main == own.main, celery.current_app
        assert not {"torch", "transformers"} & set(sys.modules)
    """

    done = run_command("python", "-c", textwrap.dedent(code), environment={})

    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(AttributeError, match="module 'shardsift' has no attribute 'scored'"):
        shardsift.scored  # noqa: B018  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.usefixtures("notebook")
def test_a_run_in_a_thread_is_silent_and_takes_no_signal(tiny_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    ended: list[shardsift.RunStatus] = []

    thread = threading.Thread(target=lambda: ended.append(run_into_kept(tiny_model)))
    thread.start()
    during = signal.getsignal(signal.SIGTERM)
    thread.join()

    assert [status.word for status in ended] == ["published"]
    assert during is before
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("kept")
def test_a_run_in_the_main_thread_gives_signals_back(tiny_model: Path) -> None:
    def own_handler(*_: object) -> None: ...

    before = signal.signal(signal.SIGTERM, own_handler)
    try:
        ended = run_into_kept(tiny_model)
        after = signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert ended.is_published
    assert after is own_handler


def test_status_and_verify_say_what_the_run_said(kept: shardsift.RunStatus) -> None:
    rows = len(published_rows(Path("kept")))

    assert repr(kept) == (
        f"<RunStatus published: 2 of 2 shards done, 24 rows in, {rows} kept; shards.tiny-bert.{kept.run_id[-12:]}>"
    )
    assert repr(shardsift.status(kept.run_id)) == repr(kept)
    assert str(kept).startswith(f"published\n\nrun      {kept.run_id}\n")
    for target in ("./kept", Path("kept"), kept.run_id):
        checked = shardsift.verify(target, input="./shards/*.parquet")
        assert checked.is_sound
        assert repr(checked).startswith(f"<Verification sound: 2 shards, 4 files, 24 rows in, {rows} kept; ")
        assert str(checked).endswith("\nsound")


@pytest.mark.usefixtures("notebook")
def test_a_redis_that_goes_away_is_a_transient_error(tmp_path: Path, tiny_model: Path) -> None:
    raised: list[shardsift.ShardsiftError] = []

    with new_fleet(tmp_path) as fleet, Network() as network:
        sent = shardsift.enqueue(input="shards", output=tmp_path / "out", model=tiny_model, redis_url=fleet.redis_url)
        socket = parse_url(fleet.redis_url)["path"]
        for requests in count():
            proxy = network.proxy_to(Path(socket))
            with proxy.going_away(after=requests):
                try:
                    shardsift.status(sent.run_id, redis_url=f"redis://127.0.0.1:{proxy.port}/0")
                    break
                except shardsift.ShardsiftError as error:
                    raised.append(error)

    lost = [error for error in raised if isinstance(error, shardsift.TransientError)]
    assert lost
    for error in lost:
        assert re.match(r"Redis does not answer \(.*\)\.$", str(error))


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: shardsift.run(output="o"), "either crawl CC-MAIN-2024-10 or input PATH"),
        (lambda: shardsift.enqueue(input="shards", output="o"), "No Redis is named. Set REDIS_URL"),
        (lambda: shardsift.status(redis_url="redis://localhost:1/0"), "No Redis answers at localhost:1"),
        (lambda: shardsift.status("./shards"), "is a folder. To check it, run: producer verify"),
        (lambda: shardsift.verify("./shards"), "There is no shardsift output at"),
    ],
)
def test_a_mistake_is_a_usage_error_in_the_words_of_python(call: Any, says: str) -> None:
    with pytest.raises(shardsift.UsageError, match=says) as raised:
        call()

    assert "--" not in str(raised.value)


@pytest.mark.usefixtures("notebook", "kept", "one_thread")
@pytest.mark.slow
def test_the_blocks_of_the_python_page_run(
    working_fleet: Fleet, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "\n".join(texts_of("docs/python.md", "python")).replace(MODEL, str(tiny_model))
    code = code.replace("facebook/bart-large-mnli", str(nli_classifier(tmp_path / "nli", "BART")))
    code = code.replace("Snowflake/snowflake-arctic-embed-m", str(tiny_model))
    write_topics(Path("labelled.parquet"), rows=30)
    code = code.replace("redis://10.0.0.5:6379/0", working_fleet.redis_url)
    names: dict[str, Any] = {}

    with Celery("a user's own") as own:
        exec(compile(code, "docs/python.md", "exec"), names)
        assert celery.current_app._get_current_object() is own

    shown = capsys.readouterr().out
    assert np.isnan(names["scores"]).tolist() == [False, False, False, True, True]
    assert names["probabilities"][:3].sum(axis=1) == pytest.approx(1.0)
    assert names["table"].column_names[-2:] == ["score_health", "error"]
    assert np.isnan(names["ranks"]).tolist() == [False, False, False, True, True]
    assert names["columns"].column_names[:3] == ["edu_score", "topic_score", "topic_label"]
    assert repr(names["trained"]).startswith("<TrainReport ./my-classifier: accuracy ")
    assert "held-out rows" in str(names["trained"])
    assert names["topics"].shape == (5, 3)
    assert names["ended"].word == "published"
    assert names["checked"].is_sound
    assert shown.startswith("published\n")
    assert 'has no column "body"; it has: text, id, ' in shown
    assert shown.endswith("Name one with text_column.\n")


@pytest.mark.usefixtures("notebook", "one_thread")
def test_the_example_that_scores_texts(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_script(EXAMPLES / "score_texts.py", ROOT / "README.md", tiny_model)

    scores = [float(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert len(scores) == 10
    assert scores == sorted(scores, reverse=True)


@pytest.mark.usefixtures("notebook", "one_thread")
def test_the_example_that_scores_a_frame(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_script(EXAMPLES / "score_dataframe.py", "shards/000_00000.parquet", "frame.parquet", tiny_model)

    kept = pd.read_parquet("frame.parquet")
    assert kept["score"].min() >= 3
    assert f"{len(kept)} of 12 rows are in frame.parquet" in capsys.readouterr().out


@pytest.mark.usefixtures("notebook", "one_thread")
def test_the_example_with_two_models(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toxic = tiny_classifier(tmp_path / "toxic", labels=3)

    call_script(EXAMPLES / "several_models.py", "shards/000_00000.parquet", "both.parquet", tiny_model, toxic)

    kept = pd.read_parquet("both.parquet")
    assert ((kept["edu_score"] >= 3) & (kept["tox_score"] < 0.5)).all()
    assert {"tox_label", "tox_score_LABEL_2", "error"} < set(kept.columns)
    assert f"{len(kept)} of 12 rows are in both.parquet" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("kept")
def test_the_example_of_a_local_run(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It resumes the run of `kept`."""
    assert call_script(EXAMPLES / "run_local.py", "./shards/*.parquet", "./kept", tiny_model) == 0
    assert "<Verification sound: 2 shards" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("notebook")
def test_the_example_of_a_fleet(
    working_fleet: Fleet, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", working_fleet.redis_url)

    exit_code = call_script(EXAMPLES / "enqueue_and_watch.py", "./shards", "./kept-on-a-fleet", tiny_model)

    assert exit_code == 0
    assert "published\n\nrun " in capsys.readouterr().out


@pytest.fixture
def own_scorer(tmp_path: Path) -> Iterator[None]:
    with installed(EXAMPLES / "own_scorer", tmp_path):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("notebook", "own_scorer")
def test_a_users_own_scorer_scores_texts_and_a_whole_run(capfd: pytest.CaptureFixture[str]) -> None:
    scores = shardsift.score(["one two two three", "", "One one", None], "lower-case", scorer="distinct-words")
    ended = shardsift.run(
        input="./shards/*.parquet",
        output="./distinct",
        scorer="distinct-words",
        model="lower-case",
        min_score=0.7,
        workers=1,
    )

    assert scores.tolist()[::2] == [0.75, 0.5]
    assert np.isnan(scores[1::2]).all()
    assert ended.word == "published"
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "0 of 2 shards, " in shown.err  # the progress
    rows = published_rows(Path("distinct"), "scores")
    texts = pd.concat([pd.read_parquet(shard)["text"] for shard in sorted(Path("shards").glob("*.parquet"))])
    assert np.array_equal(rows["score"].to_numpy(), shardsift.score(texts, "lower-case", scorer="distinct-words"))
