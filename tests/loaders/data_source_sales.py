"""Sales for tests of the data source: a stream `s`, and rows for it that all differ."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from promising.query.session import Session

CREATE = "CREATE STREAM s (ts TIMESTAMP, item INT, price DOUBLE, name VARCHAR) TIMESTAMP BY ts"
SUMMARISE = "CREATE SUMMARY items ON s (item) WITH GRANULARITY 1 HOUR AND COLLAPSE (4, 5)"
START = 1_704_067_200  # 2024-01-01, in seconds
NOW = (START + 400_000) * 1_000_000
ROWS = 3_000


@contextmanager
def stocked() -> Iterator[Session]:
    """A session with an empty stream."""
    with Session(clock=lambda: NOW, seed=7) as made:
        made.execute(CREATE)
        made.execute(SUMMARISE)
        yield made


def sales(spark: Any, rows: int = ROWS, partitions: int = 2) -> Any:
    """Rows a second apart, with names that number them."""
    return spark.range(0, rows, 1, partitions).selectExpr(*SALES)


SALES = (f"timestamp_seconds({START} + id) AS ts", "id % 7 AS item", "id / 4 AS price", "concat('n', id) AS name")
"""Of a number `id`."""


def numbers(session: Session) -> list[int]:
    """What is in the stream."""
    names = session.query("SELECT name FROM s").to_arrow()["name"].to_pylist()
    return sorted(int(name[1:]) for name in names)
