"""The filter: one SQL condition over a row's columns and scores, run by DuckDB on Arrow.

Both sides hold it: the producer checks a condition before anything is sent, the worker applies it. The condition sees one
row at a time and nothing else: no file, no network, no other row, no clock and no dice, since what is kept must depend
on the run and the shard alone.
"""

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fleet.errors import UsageError

_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "1",
}
# Where a day begins must not depend on the machine; and what is set stays so.
_SETTLED = "SET TimeZone = 'UTC'; SET lock_configuration = true"
# Functions that look at the clock or the installation, though DuckDB lists them as consistent, or as macros.
_UNMARKED = {
    "age",
    "ago",
    "current_localtime",
    "current_localtimestamp",
    "pg_conf_load_time",
    "pg_postmaster_start_time",
    "pg_sleep",
    "version",
}
_TABLE = "rows"


class Filter:
    """A checked condition. Raises UsageError where it is no condition on a row of this schema.

    Not safe to share between threads; cheap to make.
    """

    def __init__(self, where: str, schema: pa.Schema) -> None:
        self.where = where
        self._connection = duckdb.connect(":memory:", config=_CLOSED)
        self._connection.execute(_SETTLED)
        self._columns = self._checked(schema)
        self._try_on(schema)

    def keep(self, table: pa.Table) -> npt.NDArray[np.int64]:
        """The indices of the rows for which the condition is true, ascending."""
        (rows,) = self._run(f'SELECT "{_row_name(self._columns)}" {self._tail}', table).values()
        return np.sort(np.asarray(rows, dtype=np.int64))

    def _try_on(self, schema: pa.Schema) -> None:
        """Refuse what only shows when it runs: on one row of nulls, since no rows would leave constants unlooked at."""
        row = pa.table([pa.nulls(1, field.type) for field in schema], names=schema.names)
        (result_type,) = self._run(f"DESCRIBE SELECT ({self._condition}) FROM {_TABLE}", row)["column_type"]
        if result_type != "BOOLEAN":
            raise self._refused(f"it is {result_type}, not true or false")
        self.keep(row)

    def _run(self, query: str, table: pa.Table) -> dict[str, npt.NDArray[Any]]:
        numbered = table.select(self._columns).append_column(_row_name(self._columns), pa.array(np.arange(len(table))))
        self._connection.register(_TABLE, numbered)
        try:
            return dict(self._connection.execute(query).fetchnumpy())
        except duckdb.Error as error:
            raise self._refused(_first_line(error)) from error
        finally:
            self._connection.unregister(_TABLE)

    @property
    def _condition(self) -> str:
        # On its own line, so that a comment at its end does not swallow the bracket.
        return f"{self.where}\n"

    @property
    def _tail(self) -> str:
        return f"FROM {_TABLE} WHERE ({self._condition})"

    def _checked(self, schema: pa.Schema) -> list[str]:
        """The schema's columns that the condition names."""
        statement = self._parsed(f"SELECT * {self._tail}")
        condition = statement["node"].pop("where_clause", None)  # a UNION has none of its own
        plain = self._parsed(f"SELECT * FROM {_TABLE}")
        plain["node"].pop("where_clause")
        if _without_places(statement) != _without_places(plain):
            raise self._refused("it is more than one condition")
        nodes = list(_nodes(condition))
        if any(node.get("class") in ("SUBQUERY", "WINDOW") for node in nodes):
            raise self._refused("it looks at other rows (a subquery or window function)")
        if any(node.get("class") == "STAR" for node in nodes):
            raise self._refused("it names all columns by a star; name each")
        functions = {node["function_name"].lower() for node in nodes if node.get("class") == "FUNCTION"}
        if functions:
            self._refuse_unsteady(functions)
        return self._named_columns(nodes, schema)

    def _parsed(self, query: str) -> dict[str, Any]:
        ((text,),) = self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
        answer = json.loads(text)
        if answer.get("error") or len(answer["statements"]) != 1:
            raise self._refused(answer.get("error_message", "it is more than one statement"))
        return dict(answer["statements"][0])

    def _refuse_unsteady(self, functions: set[str]) -> None:
        unsteady = self._connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability != 'CONSISTENT'"
        ).fetchall()
        used = sorted(functions & ({name for (name,) in unsteady} | _UNMARKED))
        if used:
            raise self._refused(f"{used[0]}() does not give the same answer each time")

    def _named_columns(self, nodes: list[dict[str, Any]], schema: pa.Schema) -> list[str]:
        by_lower_name = {name.lower(): name for name in schema.names}
        lower_names = [name.lower() for name in schema.names]
        columns = []
        for node in nodes:
            if node.get("class") != "COLUMN_REF":
                continue
            path = [name.lower() for name in node["column_names"]]
            name = path[1] if path[0] == _TABLE and len(path) > 1 else path[0]
            if name not in by_lower_name:
                raise self._refused(f'there is no column "{name}"; there are: {", ".join(schema.names)}')
            if lower_names.count(name) > 1:
                raise self._refused(f'"{name}" names several columns, since SQL sees no difference of case')
            columns.append(by_lower_name[name])
        return sorted(set(columns))

    def _refused(self, why: str) -> UsageError:
        line = f'The filter "{self.where}" cannot be used: {why}. Write a condition on one row, like "score >= 3".'
        return UsageError(" ".join(line.split()))


def _row_name(columns: list[str]) -> str:
    """A name for the row number that no named column has."""
    name = "row"
    while name in {column.lower() for column in columns}:
        name += "_"
    return name


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON tree."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def _without_places(tree: Any) -> Any:
    """The tree without the places in the text where its parts stood."""
    if isinstance(tree, dict):
        return {key: _without_places(value) for key, value in tree.items() if not key.startswith("query_location")}
    if isinstance(tree, list):
        return [_without_places(value) for value in tree]
    return tree


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
