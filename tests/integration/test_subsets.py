"""Several crawls in one dataset, and files of several folders below names of the user: each is a subset of its own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stand_in import StandInScorer

from hubserver import HubServer
from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.settings import Settings
from shardsift.producer.planning.estimate import estimate_run, plan_report
from shardsift.producer.planning.inputs import named_as_scored
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.scores.scored_run import rows_of_run_near, scored_run
from shardsift.producer.verify.verify import verify
from support.crawls import DATASET
from support.outputs import data_digests, manifest_lines, published_rows
from support.records import a_receipt, a_shard, a_spec
from support.small_run import Runs

CRAWLS = ("CC-MAIN-2024-10", "CC-MAIN-2024-18", "CC-MAIN-2024-22")
FILES, ROWS = 2, 6


@pytest.fixture
def runs(runs: Runs, tmp_path: Path) -> Runs:
    return replace(runs, scorer=StandInScorer("cpu", tmp_path / "work.log", rows_a_batch=4, seconds_a_batch=0))


def write_files(folder: Path, words: str) -> Path:
    """Files of the same names in each folder, with these words in their texts."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        texts = [f"{words} {number} {row}" + " more" * row for row in range(ROWS)]
        pq.write_table(pa.table({"text": texts}), folder / f"000_{number:05}.parquet")
    return folder


def loaded(output: Path, subset: str | None, folder: Path) -> list[dict[str, Any]]:
    """All rows that `datasets` finds by the card of the output."""
    cache = str(folder / "cache")
    return [*datasets.load_dataset(str(output), subset, split="train", cache_dir=cache)]


@pytest.fixture(scope="module")
def running_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    folder = tmp_path_factory.mktemp("fineweb")
    for crawl in CRAWLS:
        write_files(folder / "data" / crawl, f"of {crawl}")
    with HubServer() as hub:
        hub.create_repo(DATASET)
        hub.add_folder(DATASET, folder, message="crawls")
        yield hub


class TestCrawls:
    @pytest.mark.parametrize("size", ["none", "1GB"])
    def test_a_run_of_several_crawls_publishes_the_files_of_a_run_of_each_and_a_subset_for_each(
        self, runs: Runs, hub: HubServer, tmp_path: Path, size: str
    ) -> None:
        crawls = CRAWLS[:2]
        how: dict[str, Any] = {"source": Path(), "input_uris": (), "target_file_size": size, "where": "score > 0"}
        alone = {crawl: runs.publish(output=crawl, crawls=(crawl,), **how) for crawl in crawls}

        both = runs.publish(output="both", crawls=crawls[::-1], **how)

        expected = {path: digest for output in alone.values() for path, digest in data_digests(output).items()}
        assert data_digests(both) == expected
        assert {path.rpartition("/")[0] for path in expected} == {
            f"{kind}/{crawl}" for kind in ("data", "scores") for crawl in crawls
        }
        for crawl, output in alone.items():
            rows = published_rows(output).to_pylist()
            assert loaded(both, crawl, tmp_path) == loaded(output, crawl, tmp_path) == rows != []
        assert loaded(both, None, tmp_path) == published_rows(both).to_pylist()
        assert len(loaded(both, "scores", tmp_path)) == 2 * FILES * ROWS
        card = (both / "README.md").read_text()
        assert "\n# fineweb CC-MAIN-2024-10 and 1 more, filtered with" in card
        assert "is a subset, too: `CC-MAIN-2024-10`, `CC-MAIN-2024-18`." in card
        inputs = [f"hf://datasets/{DATASET}/data/{crawl}/*.parquet" for crawl in crawls]
        assert verify(str(both), source=tuple(inputs)).faults == ()
        assert verify(str(both), source=(inputs[1],)).not_compared == tuple(
            f"{crawls[0]}/000_{number:05}" for number in range(FILES)
        )
        assert data_digests(runs.refilter(both, where="score > 0", buckets=2)).keys() == expected.keys()

    def test_crawls_are_one_run_in_any_order_and_a_limit_of_rows_is_that_of_all_of_them(
        self, runs: Runs, hub: HubServer
    ) -> None:
        def plan(*crawls: str, **options: Any) -> Any:
            return plan_run(runs.options(Path(), input_uris=(), crawls=crawls, **options))

        limited = plan(*CRAWLS, limit_rows=FILES * ROWS + 1)
        whole = plan(*CRAWLS)

        assert whole.spec.run_id == plan(*CRAWLS[::-1]).spec.run_id
        assert whole.spec.run_id.startswith("cc-main-2024-10-and-2-more.")
        assert (whole.spec.crawl, whole.spec.subsets) == (None, CRAWLS)
        assert (plan(CRAWLS[0]).spec.crawl, plan(CRAWLS[0]).spec.subsets) == (CRAWLS[0], ())
        assert [(shard.name, shard.row_limit) for shard in limited.shards] == [
            *((f"{CRAWLS[0]}/000_{number:05}", None) for number in range(FILES)),
            (f"{CRAWLS[1]}/000_00000", 1),
        ]
        assert plan_report(whole)["rows"] == len(CRAWLS) * FILES * ROWS
        assert estimate_run(whole, counted_rows=None, ledger=None).rows == len(CRAWLS) * FILES * ROWS
        with pytest.raises(UsageError, match=r"^A crawl cannot be read\. The crawls are listed at .*CC-MAIN-1999-01"):
            plan(CRAWLS[0], "CC-MAIN-1999-01")


class TestSubset:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        return write_files(tmp_path / "secret/a", "of a")

    @pytest.mark.parametrize("options", [{}, {"rows_per_task": 2}, {"target_file_size": "1GB"}])
    def test_files_lie_below_the_name_that_the_user_gives_them(
        self, runs: Runs, source: Path, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        plain = runs.publish(source, "plain", **options)

        out = runs.publish(source, subset="2023", **options)

        assert {path.replace("/2023/", "/") for path in data_digests(out)} == data_digests(plain).keys()
        assert loaded(out, "2023", tmp_path) == loaded(out, None, tmp_path) == published_rows(out).to_pylist()
        texts = published_rows(out)["text"]
        assert texts == published_rows(plain)["text"]
        assert set(published_rows(out)["shard"].to_pylist()) == {
            f"2023/{name}" for name in published_rows(plain)["shard"].to_pylist()
        }
        ours, theirs = ([line["source_uri"] for line in manifest_lines(one)] for one in (out, plain))
        assert ours == theirs
        readable = (out / "README.md").read_bytes() + (out / "manifest.parquet").read_bytes()
        assert b"secret" not in readable
        assert "--subset 2023 " in (out / "README.md").read_text()
        assert plan_run(runs.options(source, "plain", **options)).spec.run_id == runs.specs[plain].run_id

    def test_equal_names_of_two_folders_are_refused_with_the_way_to_keep_both(
        self, runs: Runs, source: Path, tmp_path: Path
    ) -> None:
        other = write_files(tmp_path / "secret/b", "of b")

        with pytest.raises(
            UsageError, match=r"Two files would become shard 000_00000: .*a --subset of its own: .*--extend"
        ):
            plan_run(runs.options(source, input_uris=(str(source), str(other))))


def test_a_file_of_several_subsets_is_known_by_its_bytes() -> None:
    a, b, only = (a_shard("x", identity=f"sha256:{kind * 64}") for kind in "abc")
    of_a, of_b = (replace(shard, name=f"{year}/x") for shard, year in ((a, "2023"), (b, "2024")))
    other = a_shard("2024/y.part-00000", identity=only.identity)
    receipts = [a_receipt("r", shard) for shard in (of_a, of_b, other)]

    def names(*files: Any) -> list[str]:
        return [
            shard.name for shard in named_as_scored(files, a_spec(subsets=("2023", "2024")), receipts, ["2023/failed"])
        ]

    assert names(b, a) == ["2024/x", "2023/x"]
    assert names(of_b, replace(only, name="y"), a_shard("failed")) == ["2024/x", "2024/y", "2023/failed"]
    assert names(replace(only, name="x"), a_shard("new")) == ["2023/x", "new"]
    assert names(a, replace(only, name="x")) == ["2023/x", "2024/x"]


def test_a_dataset_grows_by_a_subset_and_both_are_found_in_their_folders(runs: Runs, tmp_path: Path) -> None:
    a, b = (write_files(tmp_path / f"secret/{name}", f"of {name}") for name in "ab")
    runs.publish(a, subset="2023", target_file_size="1GB", where="score < 1000")

    out = runs.publish(b, subset="2024", extends=True, target_file_size="1GB", where="score < 1000")

    sources = (str(a), str(b))
    assert {path.split("/")[1] for path in data_digests(out)} == {"2023", "2024"}
    for subset, words in (("2023", "of a"), ("2024", "of b")):
        assert {row["text"][:4] for row in loaded(out, subset, tmp_path)} == {words}
    assert len(loaded(out, None, tmp_path)) == 2 * FILES * ROWS
    assert verify(str(out), source=sources).faults == verify(str(out), source=sources[1:]).faults == ()
    assert verify(str(out), source=sources).not_compared == ()
    near = rows_of_run_near(scored_run(str(out), Settings()), None, near=0, count=24, source=sources)
    assert {(row.shard[:4], str(row.text)[:4]) for row in near} == {("2023", "of a"), ("2024", "of b")}
    again = runs.refilter(out, keep_all=True, input_uris=sources)
    assert published_rows(again)["text"] == published_rows(out)["text"]
    assert {subset: len(loaded(again, subset, tmp_path)) for subset in ("2023", "2024")} == {
        "2023": FILES * ROWS,
        "2024": FILES * ROWS,
    }
    assert {str(line["source_uri"]) for line in manifest_lines(again)} == {
        f"000_{number:05}.parquet" for number in range(FILES)
    }
