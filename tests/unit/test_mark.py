"""The mark of a publication depends on the run and on the content of its files, and on nothing else."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.storage.output import Mark
from support.records import a_receipt, a_shard, a_spec

SPEC = a_spec()
RUN = SPEC.run_id
A, B = a_shard("crawl/a"), a_shard("crawl/b")


class TestMark:
    RECEIPTS = (a_receipt(RUN, A), a_receipt(RUN, B))

    def test_a_mark_comes_back_from_a_file(self, tmp_path: Path) -> None:
        mark = Mark.of(RUN, self.RECEIPTS)
        table = pa.table({"a": [1]}).replace_schema_metadata(mark.as_metadata())
        pq.write_table(table, tmp_path / "m.parquet")

        assert Mark.read_from(tmp_path / "m.parquet") == mark

    def test_a_file_of_somebody_else_has_none(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [1]}), tmp_path / "m.parquet")

        assert Mark.read_from(tmp_path / "m.parquet") is None

    def test_it_does_not_depend_on_the_order_or_on_who_made_the_files(self) -> None:
        a, b = self.RECEIPTS
        later = replace(b, provenance=replace(b.provenance, worker="w2", attempt=2, finished_at=2e9))

        assert Mark.of(RUN, [later, a]) == Mark.of(RUN, [a, b])

    @pytest.mark.parametrize("change", [{"sha256": "cd" * 32}, {"path": "data/c.parquet"}])
    @pytest.mark.parametrize("which", ["data", "scores"])
    def test_other_content_or_another_place_makes_another(self, which: str, change: dict[str, str]) -> None:
        a, b = self.RECEIPTS
        other = replace(b, **{which: replace(getattr(b, which), **change)})

        assert Mark.of(RUN, [a, other]) != Mark.of(RUN, [a, b])

    def test_fewer_files_or_another_run_make_another(self) -> None:
        marks = {Mark.of(RUN, self.RECEIPTS), Mark.of(RUN, self.RECEIPTS[:1]), Mark.of("other", self.RECEIPTS)}

        assert len(marks) == 3
