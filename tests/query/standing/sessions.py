"""A session with two streams, and the short ways to fill them, create standing queries and read their views."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from promising.query import Session

SECOND = 1_000_000
START = 10**15


@contextmanager
def opened(keep: str = "ALL") -> Iterator[Session]:
    """Streams `a` and `b`, with a summary each."""
    with Session(seed=1, clock=lambda: 1 << 60) as made:
        for name in "ab":
            made.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts KEEP {keep}")
            made.execute(f"CREATE SUMMARY by_{name} ON {name} (item) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 1)")
        yield made


def put(session: Session, stream: str, *rows: tuple[float, int, float]) -> None:
    """Tuples (seconds, item, price)."""
    columns = list(zip(*rows, strict=True))
    times = START + np.array([int(t * SECOND) for t in columns[0]])
    session.ingest(stream, {"ts": times, "item": np.array(columns[1]), "price": np.array(columns[2], float)})


def fill(session: Session, stream: str, seconds: ArrayLike, items: ArrayLike | None = None, price: float = 1.0) -> None:
    """Tuples at these seconds, numbered unless their items are given."""
    times = START + (np.atleast_1d(seconds) * SECOND).astype(np.int64)
    items = np.arange(len(times)) if items is None else np.atleast_1d(items)
    session.ingest(stream, {"ts": times, "item": items, "price": np.full(len(times), price)})


def create(session: Session, name: str, query: str) -> Any:
    """A subscription to a new standing query."""
    session.execute(f"CREATE CONTINUOUS QUERY {name} AS {query}")
    return session.subscribe(name)


def shown(subscription: Any) -> list[dict[str, Any]]:
    """The rows of a view, once nothing new arrives."""
    while subscription.poll() is not None:
        pass
    return list(subscription.snapshot().to_pylist())


def rows(subscription: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in shown(subscription))


def items(subscription: Any) -> list[Any]:
    """The first column of a view."""
    return sorted(next(iter(row.values())) for row in shown(subscription))
