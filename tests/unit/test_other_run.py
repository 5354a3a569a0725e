"""The error about another run's output says in which fields of the spec the two runs differ."""

from dataclasses import replace

from shardsift.fleet.run.spec import BestRows, RunSpec, disclosed_spec
from shardsift.fleet.storage.output import other_run
from support.records import a_spec

SPEC = a_spec(input_uris=("/data/web",), crawl=None)


def told(here: RunSpec, there: RunSpec = SPEC) -> str:
    return str(other_run("out", there.run_id, disclosed_spec(there), here)).partition("It differs in: ")[2]


def test_fields_of_the_run_and_of_its_scorings_are_reported() -> None:
    scoring = SPEC.scorings[0]
    other = replace(SPEC, where=None, limit_rows=7, scorings=(replace(scoring, dtype="auto", int_score=False),))

    assert told(SPEC).startswith("the location of the input or the model. Choose")
    assert told(other).startswith("the filter, limit rows, dtype, int score. Choose")
    assert told(replace(SPEC, scorings=())).startswith("scorings. Choose")


def test_other_rows_of_the_same_scores_are_those_of_a_refilter() -> None:
    for other, options in (
        (replace(SPEC, where="score > 4"), "--where 'score > 4' --output URI --input /data/web"),
        (replace(SPEC, where=None, target_file_bytes=512_000_000), "--keep-all --target-file-size 512MB --output URI"),
        (replace(SPEC, best=BestRows(columns=(), share="10%", by="n")), "--keep-top 10% --by n --output URI"),
    ):
        assert f" when it is published: producer refilter out {options}" in told(other)
    assert "refilter" not in told(replace(SPEC, where="score > 4", limit_rows=7))
    assert "refilter" not in told(SPEC)
