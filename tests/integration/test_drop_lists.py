"""A run with drop lists publishes no row that they have, says so, and can be checked and changed afterwards."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubserver import HubServer
from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.drop_lists import loaded_lists
from shardsift.fleet.storage.manifest import read_manifest
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.verify.verify import verify
from support.outputs import data_digests, manifest_lines, published_rows
from support.processes import call_command
from support.published_dataset import Dataset
from support.small_run import Runs, score

SHARDS, ROWS = 2, 30


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Rows of ten domains, each below another subdomain; every third has no URL, and row 7 of each file no text."""
    folder = tmp_path / "private" / "shards"
    folder.mkdir(parents=True)
    for shard in range(SHARDS):
        rows = [
            {
                "id": shard * ROWS + row,
                "text": None if row == 7 else f"text {row} of {shard}",
                "url": None if row % 3 == 2 else f"https://S{row}.Site{row % 10}.org:8080/{row}",
            }
            for row in range(ROWS)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{shard}.parquet")
    return folder


@pytest.fixture
def domains(tmp_path: Path) -> Path:
    file = tmp_path / "private" / "optout.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("site1.org\nsite4.org\nsite99.org\n")
    return file


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    file = tmp_path / "private" / "ids.csv"
    file.parent.mkdir(exist_ok=True)
    file.write_text("name,id\nx,0\ny,3\nz,33\nw,1000\n")
    return file


def is_listed(row: dict[str, Any]) -> bool:
    """As the lists `domains` and `ids` say, for the rows of `source`."""
    of_domain = row["url"] is not None and any(f".Site{site}.org" in row["url"] for site in (1, 4))
    return of_domain or row["id"] in (0, 3, 33)


def expected_ids(source: Path, output: Path, *, least: float | None = None) -> list[int]:
    """The rows to keep, by the scores that were published and a look at each row."""
    rows = [row for file in sorted(source.iterdir()) for row in pq.read_table(file).to_pylist()]
    scores = published_rows(output, "scores")["score"].to_pylist()
    return [
        row["id"]
        for row, found in zip(rows, scores, strict=True)
        if found is not None and (least is None or found >= least) and not is_listed(row)
    ]


def lists(domains: Path, ids: Path) -> tuple[str, str]:
    return f"{domains}=url", f"{ids}:id=id"


class TestWhatIsPublished:
    @pytest.mark.parametrize("size", [None, "1MB"])
    def test_no_row_of_a_list_is_kept_and_card_and_manifest_say_of_which_list_without_its_path(
        self, runs: Runs, source: Path, domains: Path, ids: Path, size: str | None
    ) -> None:
        output = runs.publish(source, drop_lists=lists(domains, ids), target_file_size=size)

        kept = published_rows(output)["id"].to_pylist()
        assert kept == expected_ids(source, output)
        assert 0 < len(kept) < SHARDS * ROWS
        assert published_rows(output, "scores").num_rows == SHARDS * ROWS  # listed rows keep their scores
        assert [line["rows_listed"] for line in manifest_lines(output)] == [[4, 2], [4, 1]]
        assert [line["rows_dropped"] for line in manifest_lines(output)] == [6, 5]
        card = (output / "README.md").read_text()
        assert "| Filter | none: every scored row is kept, but for those of the drop lists |" in card
        assert "| 8 rows whose `url`, or the host in it, is one of the 3 values of `optout.txt`, sha256 `" in card
        assert "| 3 rows whose `id`, or the host in it, is one of the 4 values of `ids.csv:id`, sha256 `" in card
        assert "--drop-list optout.txt=url" in card
        assert "--drop-list ids.csv:id=id" in card
        assert "nothing else was removed for privacy" in card
        assert "fill in yours" in card
        manifest = read_manifest((output / "manifest.parquet").read_bytes())
        assert manifest
        assert [(one.uri, one.field, one.column, one.values) for one in manifest.spec.drop_lists] == [
            ("optout.txt", None, "url", 3),
            ("ids.csv", "id", "id", 4),
        ]
        assert "private" not in card + str(manifest.spec)


class TestALongList:
    def test_a_million_lines_find_what_they_have(self, runs: Runs, source: Path, domains: Path) -> None:
        domains.write_text("".join(f"d{number}.example\n" for number in range(999_998)) + "site1.org\nsite4.org\n")

        output = runs.publish(source, drop_lists=(f"{domains}=url",))

        assert [line["rows_listed"] for line in manifest_lines(output)] == [[4], [4]]
        assert "one of the 1,000,000 values of `optout.txt`" in (output / "README.md").read_text()


class TestAListThatChanges:
    def test_a_changed_list_fails_its_shards_until_it_is_restored(
        self, runs: Runs, source: Path, domains: Path, tmp_path: Path
    ) -> None:
        plan = plan_run(runs.options(source, drop_lists=(f"{domains}=url",)))
        before = domains.read_text()
        domains.write_text("site1.org\n")

        with pytest.raises(ShardError, match=r"optout\.txt changed since the run was planned: .*`producer retry`"):
            runs.publish_plan(plan)

        domains.write_text(before)
        found = score(runs.ledger, runs.scorer, plan.spec, plan.shards[1:], scratch=tmp_path / "scratch")
        assert [receipt.rows_listed for receipt in found] == [(4,)]

    def test_another_list_is_another_run_and_the_message_names_the_refilter_that_needs_no_scoring(
        self, runs: Runs, source: Path, domains: Path
    ) -> None:
        runs.publish(source)
        plan = plan_run(runs.options(source, drop_lists=(f"{domains}=url",)))

        with pytest.raises(
            UsageError,
            match=r"differs in: --drop-list\. .*producer refilter .*--keep-all --drop-list .*optout\.txt=url",
        ):
            runs.publish_plan(plan)


class TestRefilter:
    def test_a_refilter_by_a_list_alone_keeps_the_filter_and_gives_the_bytes_of_a_fresh_run(
        self, runs: Runs, source: Path, domains: Path, ids: Path
    ) -> None:
        everything = runs.publish(source, "all", where="id % 4 < 2")
        fresh = runs.publish(source, "fresh", where="id % 4 < 2", drop_lists=lists(domains, ids))

        again = runs.refilter(everything, drop_lists=lists(domains, ids))

        assert data_digests(again) == data_digests(fresh) != data_digests(everything)
        assert published_rows(fresh)["id"].to_pylist() == [id for id in expected_ids(source, fresh) if id % 4 < 2]
        assert [line["rows_listed"] for line in manifest_lines(fresh)] == [[4, 2], [4, 1]]
        _, refilter = (again / "README.md").read_text().split("producer refilter ./again")
        assert "--where 'id % 4 < 2' \\\n  --drop-list optout.txt=url \\\n  --drop-list ids.csv:id=id" in refilter

    def test_a_refilter_has_the_lists_that_it_names_or_none_and_asks_for_those_that_it_does_not_find(
        self, runs: Runs, source: Path, domains: Path, ids: Path
    ) -> None:
        by_list = runs.publish(source, "by-list", drop_lists=lists(domains, ids))

        none = runs.refilter(by_list, "none", keep_all=True, drop_lists=("none",))
        one = runs.refilter(by_list, "one", drop_lists=(f"{domains}=url",))

        assert data_digests(none) == data_digests(runs.publish(source, "fresh"))
        assert data_digests(one) == data_digests(runs.publish(source, "fresh-one", drop_lists=(f"{domains}=url",)))
        assert "--drop-list none" in (none / "README.md").read_text()
        with pytest.raises(UsageError, match=r"rows of optout\.txt, ids\.csv\. Name the lists .* say --drop-list none"):
            runs.refilter_plan(by_list, keep_all=True)

    def test_the_best_rows_are_the_best_of_those_that_no_list_has(
        self, runs: Runs, source: Path, domains: Path, ids: Path
    ) -> None:
        everything = runs.publish(source, "all")

        best = runs.refilter(everything, "best", keep_top="25%", drop_lists=lists(domains, ids))

        scores = dict(enumerate(published_rows(best, "scores")["score"].to_pylist()))
        left = sorted((scores[row] for row in expected_ids(source, best)), reverse=True)
        edge = left[-(-len(left) // 4) - 1]
        assert published_rows(best)["id"].to_pylist() == expected_ids(source, best, least=edge)


class TestVerify:
    @pytest.fixture
    def dataset(self, runs: Runs, source: Path, domains: Path, ids: Path, tmp_path: Path) -> Dataset:
        output = runs.publish(source, "verified", drop_lists=lists(domains, ids), where="id % 4 < 3")
        return Dataset(source=source, output=output)

    def test_with_the_input_each_kept_row_is_checked_against_the_lists_which_may_have_moved(
        self, dataset: Dataset, domains: Path, ids: Path, tmp_path: Path
    ) -> None:
        moved = Path(shutil.copy(domains, tmp_path / "other-name"))

        found = verify(str(dataset.output), source=(str(dataset.source),), drop_lists=(str(moved), str(ids)))

        assert (found.faults, found.unread_lists) == ((), ())

    def test_with_the_input_it_asks_for_a_list_that_it_lacks_and_without_it_says_that_it_did_not_look(
        self, dataset: Dataset, ids: Path
    ) -> None:
        output = str(dataset.output)

        with pytest.raises(UsageError, match=r"Name their files: --drop-list optout\.txt$"):
            verify(output, source=(str(dataset.source),), drop_lists=(str(ids),))
        found = verify(output, drop_lists=(str(ids),))

        assert (found.faults, found.unread_lists) == ((), ("optout.txt",))
        assert any("in the drop list optout.txt: add --drop-list optout.txt" in line for line in found.lines())

    def test_a_file_that_is_no_list_of_the_run_is_refused(self, dataset: Dataset, domains: Path) -> None:
        domains.write_text("other.org\n")

        with pytest.raises(
            UsageError, match=r"optout\.txt is no drop list of the run at .*Its lists: optout\.txt, sha256 "
        ):
            verify(str(dataset.output), drop_lists=(str(domains),))

    def test_published_rows_that_a_list_has_are_a_fault(
        self, runs: Runs, source: Path, domains: Path, ids: Path, dataset: Dataset
    ) -> None:
        whole = runs.publish(source, "whole", where="id % 4 < 3")
        dataset.rewrite("data/0.parquet", lambda _: pq.read_table(whole / "data/0.parquet"))

        faults = [str(fault) for fault in verify(str(dataset.output), drop_lists=(str(domains), str(ids))).faults]

        assert f"data/0.parquet: 4 of its rows are in the drop list {domains}=url" in faults
        assert f"data/0.parquet: 1 of its rows are in the drop list {ids}:id=id" in faults

    def test_the_command_takes_the_lists(self, dataset: Dataset, domains: Path, ids: Path) -> None:
        answer = call_command(
            *("producer", "verify", str(dataset.output), "--input", str(dataset.source)),
            *("--drop-list", str(domains), "--drop-list", str(ids)),
            environment={},
        )

        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.splitlines()[-1] == "sound"


def test_a_list_on_the_hub_is_pinned_to_its_commit_and_found_again_by_verify_and_refilter(
    runs: Runs, source: Path, hub: HubServer
) -> None:
    repo = "ada/optouts"
    hub.create_repo(repo)
    hub.write(repo, "lists/optout.txt", b"site1.org\nsite4.org\n")
    commit = hub.branches(repo)["main"]

    output = runs.publish(source, drop_lists=(f"hf://datasets/{repo}/lists/optout.txt=url",))

    hub.write(repo, "lists/optout.txt", b"other.org\n")
    loaded_lists.cache_clear()
    assert f"--drop-list hf://datasets/{repo}@{commit}/lists/optout.txt=url" in (output / "README.md").read_text()
    assert verify(str(output), source=(str(source),)).faults == ()
    runs.specs.clear()
    again = runs.refilter(output, keep_all=True, input_uris=(str(source),))
    assert data_digests(again) == data_digests(output)
