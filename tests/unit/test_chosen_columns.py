"""`--columns` as the user says it."""

import pytest

from fleet.errors import UsageError
from fleet.run.text import chosen_columns


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (None, None),
        ("text", (("text", ""),)),
        (" id , ups:int64,", (("id", ""), ("ups", "int64"))),
        ("a:b:string,c:d,:string", (("a:b", "string"), ("c:d", ""), (":string", ""))),
    ],
)
def test_names_have_types_if_they_say_so(text: str | None, columns: object) -> None:
    assert chosen_columns(text) == columns


@pytest.mark.parametrize(
    ("text", "problem"), [(" , ", "--columns is empty"), ("a,b,a:bool", '--columns names "a" twice')]
)
def test_what_names_no_columns_is_told(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        chosen_columns(text)
