"""A session with two streams whose keys are numbered from frequent to rare."""

import numpy as np

from promising.query import Session
from promising.testing import ManualClock

SECOND = 1_000_000


def filled(*, granularity: int = 1000, collapse: str = "(4, 3)", n: int = 30_000, keys: int = 3_000) -> Session:
    """Streams a and b: 900 seconds of tuples, the keys of which are numbered from frequent to rare."""
    session = Session(clock=ManualClock(1 << 60), seed=3)
    for number, name in enumerate("ab"):
        session.execute(f"CREATE STREAM {name} (id INT, k INT, ts TIMESTAMP, price DOUBLE) TIMESTAMP BY ts")
        session.execute(
            f"CREATE SUMMARY s{name} ON {name} (k) WITH GRANULARITY {granularity} SECONDS AND COLLAPSE {collapse}"
        )
        session.ingest(name, batch(n, keys, number))
    return session


def batch(n: int, keys: int, seed: int, start: int = 0) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    return {
        "id": np.arange(n),
        "k": (keys * rng.random(n) ** 3).astype(np.int64),
        "ts": start * SECOND + np.sort(rng.integers(0, 900 * SECOND, n)),
        "price": rng.random(n) * 10,
    }
