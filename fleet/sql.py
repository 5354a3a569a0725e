"""DuckDB as the filter uses it: one query on one Arrow table, and nothing else within reach."""

import duckdb
import pyarrow as pa

TABLE = "rows"
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "1",
}
# Where a day begins must not depend on the machine; and what is set stays so.
_SETTLED = "SET TimeZone = 'UTC'; SET lock_configuration = true"


class Sql:
    """A database of one table. Not safe to share between threads; cheap to make."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(":memory:", config=_CLOSED)
        self.connection.execute(_SETTLED)

    def run(self, query: str, table: pa.Table) -> pa.Table:
        """What the query gives on the table, which it calls `rows`. Raises duckdb.Error."""
        self.connection.register(TABLE, table)
        try:
            return self.connection.sql(query).to_arrow_table()
        finally:
            self.connection.unregister(TABLE)
