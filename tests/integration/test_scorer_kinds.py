"""Kinds of scorers are found by entry points: our own, and those of packages that a user has installed."""

from pathlib import Path

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model
from shardsift.fleet.scorers.kinds import ScorerKind, check_requirements, resolve_model, scorer_kind

PACKAGE = """
from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import Model
from shardsift.fleet.scorers.kinds import ScorerKind

def resolve(name, revision):
    if name != "words":
        raise UsageError(f"There is no {name}.")
    return Model(name=name, revision=revision or "1", labels=("words",))

def load(model, settings):
    return f"{model.name} on {settings}"

KIND = ScorerKind(resolve=resolve, loader="word_count:load")
"""


@pytest.fixture
def word_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as pip installs it, with three entry points, of which one is valid."""
    (tmp_path / "word_count.py").write_text(PACKAGE)
    info = tmp_path / "word_count-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: word-count\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[shardsift.scorers]\nword-count = word_count:KIND\nno-kind = word_count:resolve\nbroken = word_count.nope:KIND\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("word_count")
def test_a_package_adds_a_kind_of_its_own() -> None:
    model = resolve_model("word-count", "words", None)

    assert model == Model(name="words", revision="1", labels=("words",), scorer="word-count")
    assert model.queue("auto") == "score.word-count.words.1.auto"
    assert scorer_kind("word-count").load(model, "its settings") == "words on its settings"


@pytest.mark.usefixtures("word_count")
def test_a_file_is_no_classifier_and_added_kinds_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.bin").touch()
    monkeypatch.chdir(tmp_path)

    for model in ("model.bin", str(tmp_path / "model.bin")):
        with pytest.raises(UsageError) as refused:
            resolve_model(SEQUENCE_CLASSIFIER, model, None)

        assert f"The model {model} is a file. --model takes a name on the Hub or a folder." in str(refused.value)
        assert "--scorer KIND. Installed: broken, no-kind" in str(refused.value)
        assert "sequence-classifier" not in str(refused.value)


@pytest.mark.usefixtures("word_count")
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("letters", r"no scorer 'letters' here\. Installed: .*sequence-classifier.*word-count"),
        ("broken", "cannot be imported: ModuleNotFoundError"),
        ("no-kind", "is not a ScorerKind"),
    ],
)
def test_a_kind_that_is_unknown_or_does_not_load_is_one_line(kind: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        resolve_model(kind, "m", None)


@pytest.mark.parametrize(
    ("install", "told"), [("", "pip install no_such_module"), ("words[gpu]", "pip install 'words[gpu]'")]
)
def test_a_kind_whose_modules_are_missing_says_what_to_install(install: str, told: str) -> None:
    kind = ScorerKind(
        resolve=lambda name, revision: Model(name=name, revision=revision or "1"),
        loader="word_count:load",
        requires=("json", "no_such_module"),
        install=install,
    )

    with pytest.raises(UsageError) as refused:
        check_requirements([kind])

    assert str(refused.value) == f"The scorer needs no_such_module, which this machine lacks: {told}"
