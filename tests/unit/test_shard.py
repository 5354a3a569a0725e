"""A shard's name is a path in the output. It must not lead out of the output, or be mistaken for another file."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardsift.fleet.run.spec import is_safe_name
from support.records import a_shard

ODD = ["..", ".", "/", "//", "a", "\x00", "\n", "\r", "\x7f", "\u2028", "%2e", "\\", " ", "*", "é"]


@pytest.mark.parametrize(
    "name",
    [
        *("a", "CC-MAIN-2024-10/000_00000", "a/b/c", "crawl=x/lang=en,de/part-0.snappy", "a..b", "..."),
        "ü/数据",
        "my files/part  (1)",
        "می\u200cخواهم/👩\u200d👧",
        "a" * 247,
        "/".join(["a" * 101] * 5) + "/aa",
        "lang=zh%2DHans/day=__HIVE_DEFAULT_PARTITION__/it's & more",
        *(unicodedata.normalize(form, "é/한국어/हिन्दी/Việt") for form in ("NFC", "NFD", "NFKD")),
    ],
)
def test_names_of_real_datasets_are_accepted(name: str) -> None:
    assert is_safe_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "/a", "a/", "a//b", "..", "a/../b", " a", "a /b", "a\\b", "~/a:b", "hf://a"),
        *("a\n", "a\tb", "a\u200b", "\ud800"),
        *("a" * 248, "ü" * 124, "/".join(["a" * 101] * 5) + "/aaa"),
    ],
)
def test_names_that_lead_out_of_the_output_or_no_disk_takes_are_refused(name: str) -> None:
    assert not is_safe_name(name)
    with pytest.raises(ValueError, match="Rename it: no control .* and 512 characters in all"):
        a_shard(name)


@given(st.text(max_size=40) | st.lists(st.sampled_from(ODD), max_size=8).map("".join))
@example("a/..")
@example("a\n")
def test_no_accepted_name_leaves_its_folder(name: str) -> None:
    if is_safe_name(name):
        assert not {"", ".", ".."} & set(name.split("/"))
        assert name.isprintable()
        assert not set(name) & set("\\:*?#")
