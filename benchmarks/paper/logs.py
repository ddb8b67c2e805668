"""The logs that the paper's figures are drawn on: two streams of retail transactions, played back.

The paper played back logs of a retail chain, which nobody has but its authors. Complete Journey stands in for them; the
package that it comes with calls its data simulated, after real shopping patterns. Generated logs, with drift and
without, stand beside it. As in the paper a log keeps its order, and the time between two consecutive tuples of a stream
is drawn from an exponential distribution, of mean 0.1 s unless told otherwise.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.demo import journey
from promising.testing.streams import zipf_law

Columns = dict[str, NDArray[Any]]
"""store_id, transaction_id, ts (microseconds), item_id (all whole numbers of 64 bits), price; in order of ts."""

START = 1_500_000_000_000_000
GAP_US = 100_000.0
"""The paper's 0.1 s between two tuples of a stream."""
ITEMS, EXPONENT = 1_500, 1.2
"""Two streams drawn by Zipf's law over these have one pair in 15 equal: the paper's join selectivity of 6.7 %."""
SPELL = 4_096
"""Tuples of a stream, on average, before what is popular changes, in a log with drift."""
BASKET, STORES = 8, 40
SIMULATED = "Complete Journey, whose package calls its data simulated"
SIDES = ("a", "b")


@dataclass(frozen=True)
class Log:
    """Two streams of equally many tuples, which begin at the same time."""

    name: str
    a: Columns
    b: Columns

    @property
    def rows(self) -> int:
        """Tuples of each stream."""
        return len(self.a["ts"])

    def sides(self) -> dict[str, Columns]:
        return {"a": self.a, "b": self.b}


def complete_journey(rows: int | None, seed: int, *, gap_us: float = GAP_US) -> Log:
    """`rows` consecutive tuples of the even stores, and as many of the odd ones; None takes as many as there are.

    The seed draws where in the year they begin, and the time between them.
    """
    even, odd = _halves()
    most = min(len(even["item_id"]), len(odd["item_id"]))
    rows = most if rows is None else min(rows, most)
    rng = np.random.default_rng(seed)
    at = rng.random()  # one place in the year for both
    sides = []
    for half in (even, odd):
        first = int(at * (len(half["item_id"]) - rows))
        sides.append({name: values[first : first + rows].copy() for name, values in half.items()})
    return Log("Complete Journey", *(_played(side, rng, gap_us) for side in sides))


def generated(
    rows: int,
    seed: int,
    *,
    drift: bool,
    gap_us: float = GAP_US,
    items: int = ITEMS,
    spell: int = SPELL,
    exponent: float = EXPONENT,
) -> Log:
    """`rows` tuples a stream, items by Zipf's law over an assortment of `items`.

    With drift, what is popular rotates among the items: after a spell, of `spell` tuples on average, the law is that of
    before but other items hold its first ranks. Both streams change at the same tuple. Without drift the law stays.
    """
    rng = np.random.default_rng(seed)
    edges = np.cumsum(zipf_law(items, exponent))[:-1]
    names = rng.permutation(items).astype(np.int64) + 1
    prices = np.round(np.exp(rng.normal(1.0, 0.8, items + 1)), 2)
    turn = np.zeros(rows, np.int64)
    if drift:
        lengths = rng.exponential(spell, 4 * rows // spell + 16).astype(np.int64) + 1
        turn = np.searchsorted(np.cumsum(lengths), np.arange(rows), side="right")
    shift = turn * max(items * 7 // 19, 1)  # far enough that the favourites of a spell are rare in the next
    sides = []
    for _ in SIDES:
        rank = np.searchsorted(edges, rng.random(rows), side="right")
        item = names[(rank + shift) % items]
        basket = np.cumsum(rng.random(rows) < 1 / BASKET, dtype=np.int64)
        stores = rng.integers(0, STORES, rows + 1)
        side: Columns = {
            "store_id": stores[basket],
            "transaction_id": basket,
            "ts": np.zeros(rows, np.int64),
            "item_id": item,
            "price": prices[item],
        }
        sides.append(_played(side, rng, gap_us))
    return Log("generated, with drift" if drift else "generated, no drift", *sides)


@cache
def _halves() -> tuple[Columns, Columns]:
    """The log of the even stores and that of the odd ones, in order of time."""
    table = journey.transactions()
    columns = [table[name].to_numpy() for name in ("StoreID", "TransactionID", "TimeStamp", "ItemID", "Price")]
    order = np.argsort(columns[2], kind="stable")
    out = []
    for rest in (0, 1):
        keep = order[columns[0][order] % 2 == rest]
        store, basket, ts, item, price = (column[keep] for column in columns)
        half: Columns = {"store_id": store.astype(np.int64), "transaction_id": basket.astype(np.int64)}
        half |= {"ts": ts.view(np.int64), "item_id": item.astype(np.int64), "price": price.astype(np.float64)}
        out.append(half)
    return out[0], out[1]


def _played(columns: Columns, rng: np.random.Generator, gap_us: float) -> Columns:
    """The same tuples in the same order, with exponential gaps between their times."""
    gaps = rng.exponential(gap_us, len(columns["ts"]))
    return {**columns, "ts": START + np.cumsum(gaps).astype(np.int64)}


def arrivals(log: Log) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Both streams merged by time: of which side each arrival is (0 or 1), and its row there; at one time `a` first."""
    ts = np.concatenate((log.a["ts"], log.b["ts"]))
    order = np.argsort(ts, kind="stable")
    of_b = order >= len(log.a["ts"])
    row = np.where(of_b, order - len(log.a["ts"]), order).astype(np.int32)
    return of_b.astype(np.int8), row


def batches(columns: Columns, size: int) -> list[Columns]:
    """The columns in batches, as views."""
    return [{name: c[i : i + size] for name, c in columns.items()} for i in range(0, len(columns["ts"]), size)]
