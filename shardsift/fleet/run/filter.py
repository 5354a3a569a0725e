"""The filter: one SQL condition over a row's columns and scores, run by DuckDB on Arrow.

The producer checks a condition before it enqueues a run, and workers apply it. Which rows are kept must depend on the
run and the shard alone. So a condition sees one row and nothing else: no files, network, other rows, clock or random
numbers.
"""

import json
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardsift.fleet.errors import UsageError

# Functions that read the clock or DuckDB's version, although DuckDB calls them consistent or lists them as macros.
_UNMARKED = frozenset({"age", "ago", "current_localtime", "current_localtimestamp", "version"})

# DuckDB runs one query on one Arrow table, without access to anything else, and with limits of time and memory.
#
# The limits are not exact: DuckDB stops a query only between two vectors of rows, and does not count strings as memory.
# If a query does not fit in the machine's memory, the process is killed, which the ledger counts as a crash.

_TABLE = "rows"
_SECONDS = 10  # plus one per MiB of the table; heavy conditions on 8,192 texts of 5 kB took 2.4 s
_MEMORY_MIB = 1536
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "1",
    "temp_directory": "",  # spill nothing to disk
}
# The time zone must not depend on the machine. The lock prevents a condition from changing settings.
_SETTLED = "SET TimeZone = 'UTC'; SET lock_configuration = true"
_HAS_PROGRESS_BAR = "SELECT current_setting('enable_progress_bar')"


class Filter:
    """A checked SQL condition on a row. Raises UsageError if it cannot be a condition on rows of this schema.

    Not thread-safe. Making one takes 35 ms, mostly to start DuckDB; `filter_of_thread` reuses one.
    """

    def __init__(
        self, where: str, schema: pa.Schema, *, seconds: int = _SECONDS, memory_mib: int = _MEMORY_MIB
    ) -> None:
        self.where = where
        self._seconds, self._memory_mib = seconds, memory_mib
        self._database = duckdb.connect(":memory:", config=_CLOSED | {"memory_limit": f"{memory_mib}MiB"})
        if self._database.execute(_HAS_PROGRESS_BAR).fetchone() == (True,):  # which is printed to stdout
            self._database.execute("SET enable_progress_bar = false")  # raises in a notebook that cannot show one
        self._database.execute(_SETTLED)
        nodes = self._checked()
        self._columns = self._named_columns(nodes, schema)
        self._try_on(schema)

    def keep(self, table: pa.Table) -> npt.NDArray[np.int64]:
        """Return the indices of the rows for which the condition is true, ascending."""
        (is_kept,) = self._run(self._answers, table).columns
        return np.flatnonzero(is_kept.fill_null(False))

    def _try_on(self, schema: pa.Schema) -> None:
        """Run the condition on one row of nulls, to find errors that only show at run time.

        With zero rows, constants would not be evaluated.
        """
        row = pa.table([pa.nulls(1, field.type) for field in schema], names=schema.names)
        described = self._run(f"DESCRIBE {self._answers} WHERE ({self.where}\n)", row)  # WHERE refuses aggregates
        result_type = described["column_type"][0].as_py()
        if result_type != "BOOLEAN":
            raise self._refused(f"it is {result_type}, not true or false")
        self.keep(row)

    def _run(self, query: str, table: pa.Table) -> pa.Table:
        named = table.select(self._columns)
        seconds = self._seconds + (named.nbytes >> 20)
        self._database.register(_TABLE, named)
        try:
            with self._interrupted_after(seconds):
                return self._database.sql(query).to_arrow_table()
        except duckdb.InterruptException as error:
            raise self._refused(f"it took longer than {seconds} s for {_rows(table)}; make it simpler") from error
        except duckdb.OutOfMemoryException as error:
            why = f"it needs more than {self._memory_mib:,} MiB of memory for {_rows(table)}; make it simpler"
            raise self._refused(why) from error
        except duckdb.Error as error:
            raise self._refused(_first_line(error)) from error
        finally:
            self._database.unregister(_TABLE)

    @contextmanager
    def _interrupted_after(self, seconds: int) -> Iterator[None]:
        """Interrupt the block's query after this time. Time in which the machine is suspended does not count."""
        done = threading.Event()

        def watch() -> None:
            waited = 0
            while not done.wait(1.0):
                waited += 1
                if waited >= seconds:
                    self._database.interrupt()  # repeated, because DuckDB forgets it between planning and execution

        thread = threading.Thread(target=watch, name="limit of the filter", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()  # a late interrupt would end the next query

    @property
    def _answers(self) -> str:
        # The newline ends a trailing comment, which would hide the closing bracket.
        return f"SELECT ({self.where}\n) FROM {_TABLE}"

    def _checked(self) -> list[dict[str, Any]]:
        try:
            duckdb.SQLExpression(self.where)  # refuses anything but a single expression
        except duckdb.Error as error:
            raise self._refused(_first_line(error)) from error
        parsed = _parsed(self._database, self.where)
        if parsed["error"]:
            raise self._refused(parsed["error_message"])
        nodes = list(_nodes(parsed["statements"][0]["node"]["where_clause"]))
        if any(node.get("class") in ("SUBQUERY", "WINDOW") for node in nodes):
            raise self._refused("it looks at other rows (a subquery or window function)")
        if any(node.get("class") == "STAR" for node in nodes):
            raise self._refused("it names all columns by a star; name each")
        if functions := _functions(nodes):
            self._refuse_unsteady(functions)
        return nodes

    def _refuse_unsteady(self, functions: set[str]) -> None:
        if used := sorted(functions & _unsteady_functions()):
            raise self._refused(f"{used[0]}() does not give the same answer each time")

    def _named_columns(self, nodes: list[dict[str, Any]], schema: pa.Schema) -> list[str]:
        by_lower_name = {name.lower(): name for name in schema.names}
        lower_names = [name.lower() for name in schema.names]
        columns = []
        for node in nodes:
            if node.get("class") != "COLUMN_REF":
                continue
            name = _column_of(node, by_lower_name)
            if name not in by_lower_name:
                line = f'there is no column "{name}"; there are: {", ".join(schema.names)}'
                if f'"{name}"' in self.where.lower():
                    line += f", and a text is written '{name}'"
                raise self._refused(line, example=_example_of(schema))
            if lower_names.count(name) > 1:
                raise self._refused(f'"{name}" names several columns, since SQL sees no difference of case')
            columns.append(by_lower_name[name])
        return sorted(set(columns)) or schema.names[-1:]  # a table without columns has no rows

    def _refused(self, why: str, *, example: str = "score >= 3") -> UsageError:
        line = f'The filter "{self.where}" cannot be used: {why}. Write a condition on one row, like "{example}".'
        return UsageError(" ".join(line.split()))


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.made = lru_cache(maxsize=8)(Filter)


_OF_THREAD = _OfThread()


def filter_of_thread(where: str, schema: pa.Schema) -> Filter:
    """Return this thread's filter for a condition and a schema. It is cached, because making one is slow."""
    return _OF_THREAD.made(where, schema)


def columns_in(where: str | None) -> set[str]:
    """Return the names of the columns in a condition, in lower case, because SQL ignores the case. Empty for None."""
    return {_column_of(node) for node in _nodes_of(where) if node.get("class") == "COLUMN_REF"}


_EQUALS = {"COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"}


def compared_with(where: str, column: str) -> set[str]:
    """Return the constants that a condition compares with a column for equality, by =, IN, CASE and so on."""
    found: set[str] = set()
    for node in _nodes_of(where):
        sides = [side["child"] if side["class"] == "CAST" else side for side in _equal_sides(node)]
        if any(side["class"] == "COLUMN_REF" and _column_of(side) == column.lower() for side in sides):
            literals = (side["literal"] for side in sides if side["class"] == "CONSTANT")
            found |= {literal["text"] for literal in literals if literal["kind"] != "NULL_LITERAL"}
    return found


def _equal_sides(node: dict[str, Any]) -> list[dict[str, Any]]:
    if node.get("type") in _EQUALS:
        return [node["left"], node["right"]]
    if node.get("type") == "COMPARE_IN":
        return [*node["children"]]
    if node.get("function_name") == "contains":  # label IN ['a', 'b']
        items, value = (argument["expression"] for argument in node["arguments"])
        if items.get("function_name") == "list_value":
            return [value, *(argument["expression"] for argument in items["arguments"])]
    return []


@cache
def _unsteady_functions() -> frozenset[str]:
    query = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability != 'CONSISTENT'"
    with duckdb.connect(":memory:", config=_CLOSED) as database:
        return _UNMARKED.union(name for (name,) in database.execute(query).fetchall())


@lru_cache(maxsize=8)
def _nodes_of(where: str | None) -> list[dict[str, Any]]:
    if where is None:
        return []
    with duckdb.connect(":memory:", config=_CLOSED) as database:
        return list(_nodes(_parsed(database, where)))


def _parsed(database: duckdb.DuckDBPyConnection, where: str) -> Any:
    query = f"SELECT 1 WHERE ({where}\n)"
    ((text,),) = database.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    return json.loads(text)


def _column_of(reference: dict[str, Any], names: Collection[str] = ()) -> str:
    """Return the name of a referenced column in lower case, without its table and struct fields.

    `rows.x` refers to the column `x` of the table `rows`. If `names`, the names of the columns, has `rows` but not `x`,
    it refers to the field `x` of the column `rows`.
    """
    first, *rest = (str(name).lower() for name in reference["column_names"])
    is_table = rest and first == _TABLE and (rest[0] in names or first not in names)
    return rest[0] if is_table else first


def _example_of(schema: pa.Schema) -> str:
    return f"{next((name for name in schema.names if name.endswith('score')), schema.names[-1])} >= 3"


def _functions(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["function_name"].lower() for node in nodes if node.get("class") == "FUNCTION"}


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def _first_line(error: Exception) -> str:
    return re.sub(r"^\w+ Error: ", "", str(error).splitlines()[0]).rstrip(".!")


def _rows(table: pa.Table) -> str:
    return "one row" if len(table) == 1 else f"{len(table):,} rows"
