"""Writes rows of a DataFrame to a reference table."""

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from promising.errors import TableFull

if TYPE_CHECKING:
    from promising.index.table import Changed, Mode

MOST_ROWS = 1 << 20  # the default capacity of a table


class Tables(Protocol):
    def load_table(self, name: str, rows: pa.Table, mode: "Mode" = ...) -> "Changed": ...


def load_table(frame: Any, session: Tables, name: str, *, mode: "Mode" = "upsert", most: int = MOST_ROWS) -> "Changed":
    """Write the rows of a DataFrame to a table, all or none; see `Session.load_table`. Columns match by name.

    The rows pass through the driver in one piece, so a frame of more than `most` rows is rejected first.
    """
    rows = frame.limit(most + 1).toArrow()
    if len(rows) > most:
        raise TableFull(f"table {name!r}: the frame has more than {most:,} rows; nothing was sent")
    return session.load_table(name, rows, mode)
