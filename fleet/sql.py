"""DuckDB for the filter: one query on one Arrow table, with no access to anything else."""

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
# The time zone must not depend on the machine. The lock keeps a condition from changing settings.
_SETTLED = "SET TimeZone = 'UTC'; SET lock_configuration = true"


class Sql:
    """A database with one table. Not thread-safe; cheap to create."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(":memory:", config=_CLOSED)
        self.connection.execute(_SETTLED)

    def run(self, query: str, table: pa.Table) -> pa.Table:
        """Run a query on the table, which the query calls `rows`. Raises duckdb.Error."""
        self.connection.register(TABLE, table)
        try:
            return self.connection.sql(query).to_arrow_table()
        finally:
            self.connection.unregister(TABLE)
