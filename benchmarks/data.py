"""The streams that the benchmarks run on: a key, a time, a price and a payload, eight bytes each."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index import Options, Stream
from promising.index.summary_index import SummaryIndex
from promising.testing import streams

Columns = dict[str, NDArray[Any]]

SCHEMA = {"key": "int", "ts": "timestamp", "price": "float", "payload": "int"}
WIDTH = 32  # bytes of a tuple
KEYS = 40_000
EXPONENT = 1.1
RATE = 10_000  # tuples per second of event time
SECOND = 1_000_000
SPREAD = 3  # keys are 1, 4, 7, ...: between any two there are keys that no tuple has


def zipf(n: int, seed: int) -> Columns:
    """Keys drawn by `zipf_law(KEYS, EXPONENT)`; which key has which rank is shuffled, and told by `ranked`."""
    rng = np.random.default_rng(seed)
    law = np.cumsum(streams.zipf_law(KEYS, EXPONENT))[:-1]
    return _around(ranked()[np.searchsorted(law, rng.random(n), side="right")], rng)


def distinct(n: int, seed: int) -> Columns:
    """No key twice."""
    return _around(streams.all_distinct(n, seed=seed)["item_id"], np.random.default_rng(seed))


def ranked() -> NDArray[np.int64]:
    """All keys, the most frequent first."""
    return np.random.default_rng(0).permutation(KEYS).astype(np.int64) * SPREAD + 1


def _around(keys: NDArray[np.int64], rng: np.random.Generator) -> Columns:
    n = len(keys)
    return {
        "key": keys,
        "ts": times(n, 0),
        "price": rng.random(n) * 100.0,
        "payload": rng.integers(0, 1 << 40, n),
    }


def times(n: int, first: int) -> NDArray[np.int64]:
    """Times of tuples `first`, `first + 1`, ... of a stream."""
    return np.arange(first, first + n, dtype=np.int64) * (SECOND // RATE)


def batches(columns: Columns, size: int) -> list[Columns]:
    """The columns in batches, as views."""
    n = len(columns["ts"])
    return [{name: c[i : i + size] for name, c in columns.items()} for i in range(0, n, size)]


def endless(columns: Columns, size: int, first: int) -> Iterator[Columns]:
    """Batches of the same columns over and over, with times that go on from tuple `first`."""
    while True:
        for batch in batches(columns, size):
            count = len(batch["ts"])
            yield {**batch, "ts": times(count, first)}
            first += count


def stream(
    max_tuples: int,
    structure: str = "adaptive",
    *,
    granularity: int = 60 * SECOND,
    collapse: tuple[int, int] = (4, 5),
    keep: int | None = None,
    options: Options | None = None,
    measures: Sequence[str] = (),
) -> tuple[Stream, SummaryIndex]:
    """A stream with one summary, whose clock is ahead of all that the benchmarks send."""
    made = Stream("bench", SCHEMA, time="ts", clock=lambda: 1 << 60, max_tuples=max_tuples, keep=keep)
    summary = made.create_summary(
        "by_key",
        key="key",
        granularity=granularity,
        collapse=collapse,
        structure=structure,
        options=options,
        measures=measures,
    )
    return made, summary


def fill(made: Stream, columns: Columns, batch: int = 1 << 16) -> None:
    for part in batches(columns, batch):
        made.append(part)
