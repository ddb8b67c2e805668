"""Rows of a DataFrame into a reference table."""

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from promising.errors import TableFull

if TYPE_CHECKING:
    from promising.index.table import Changed, Mode

MOST_ROWS = 1 << 20  # as many as a table takes unless it was made with more


class Tables(Protocol):
    """What takes rows: a session in this process, or one over the network."""

    def load_table(self, name: str, rows: pa.Table, mode: "Mode" = ...) -> "Changed": ...


def load_table(frame: Any, session: Tables, name: str, *, mode: "Mode" = "upsert", most: int = MOST_ROWS) -> "Changed":
    """Put the rows of a DataFrame into a table, all of them or none.

    They pass through the driver at once: a frame of more than `most` rows is refused before they do. Columns go by
    name; what holds is said at `Session.load_table`.
    """
    rows = frame.limit(most + 1).toArrow()
    if len(rows) > most:
        raise TableFull(f"table {name!r}: the frame has more than {most:,} rows; nothing was sent")
    return session.load_table(name, rows, mode)
