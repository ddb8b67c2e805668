"""Seeded retail streams: each returns columns `store_id, transaction_id, ts, item_id, price` in arrival order.

The same arguments give the same columns. Tuples arrive `rate` a second from `start` on (microseconds), with
exponential gaps; `ts` never decreases until `late` reorders. Items are `0..items-1` unless stated otherwise, and an
item has one price outside promotions. Positions are tuple numbers in `[0, n)`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.summaries.hashing import hash_keys

Columns = dict[str, NDArray[Any]]

STORES = 8
BASKET = 4
RATE = 1000.0


def uniform(n: int, items: int, *, seed: int, start: int = 0, rate: float = RATE) -> Columns:
    """Every item equally likely.

    >>> columns = uniform(1_000, 10, seed=1)
    >>> list(columns), len(columns["ts"])
    (['store_id', 'transaction_id', 'ts', 'item_id', 'price'], 1000)
    """
    rng = np.random.default_rng(seed)
    return _retail(rng.integers(0, items, n), rng, start, rate)


def zipf(n: int, items: int, exponent: float = 1.0, *, seed: int, start: int = 0, rate: float = RATE) -> Columns:
    """Item `i` has probability proportional to `(i + 1) ** -exponent`, at all times: a stationary stream.

    >>> counts = np.bincount(zipf(100_000, 100, 1.0, seed=1)["item_id"])
    >>> bool(counts[0] > 1.8 * counts[1] > 3.4 * counts[3])
    True
    """
    rng = np.random.default_rng(seed)
    return _retail(_draw(zipf_law(items, exponent), n, rng), rng, start, rate)


def all_distinct(n: int, *, seed: int, start: int = 0, rate: float = RATE) -> Columns:
    """No item twice; items are spread over all of int64, including negative ones.

    >>> len(set(all_distinct(5_000, seed=1)["item_id"].tolist()))
    5000
    """
    rng = np.random.default_rng(seed)
    offset = rng.integers(0, 1 << 63, dtype=np.uint64)
    # Multiplication by an odd number is a bijection of the 64-bit words.
    items = (np.arange(n, dtype=np.uint64) + offset) * np.uint64(0x9E3779B97F4A7C15)
    return _retail(items.view(np.int64), rng, start, rate)


def drift(n: int, items: int, exponent: float = 1.0, *, seed: int, start: int = 0, rate: float = RATE) -> Columns:
    """Popularity drifts smoothly from Zipf to its mirror image.

    At position p, item `i` has probability `(1 - p/n) * z[i] + (p/n) * z[items - 1 - i]` with z the law of `zipf`:
    linear in p, without a jump anywhere.

    >>> items = drift(100_000, 100, 1.2, seed=1)["item_id"]
    >>> int(np.bincount(items[:5_000]).argmax()), int(np.bincount(items[-5_000:]).argmax())
    (0, 99)
    """
    rng = np.random.default_rng(seed)
    drawn = _draw(zipf_law(items, exponent), n, rng)
    mirrored = rng.random(n) * n < np.arange(n)
    return _retail(np.where(mirrored, items - 1 - drawn, drawn), rng, start, rate)


def rotation(
    n: int, items: int, exponent: float = 1.0, *, at: Sequence[int], seed: int, start: int = 0, rate: float = RATE
) -> Columns:
    """The popular items change at each position of `at`, at once; the shape of the law, hence its F2, stays.

    After k changes item `(i + k * stride) % items` has the probability that `zipf` gives item `i`, where
    `stride = items // (len(at) + 1)`: no two spells have the same favourite as long as `items > len(at)`.

    >>> items = rotation(10_000, 100, 1.2, at=[5_000], seed=1)["item_id"]
    >>> int(np.bincount(items[:5_000]).argmax()), int(np.bincount(items[5_000:]).argmax())
    (0, 50)
    """
    rng = np.random.default_rng(seed)
    changes = np.searchsorted(np.sort(np.asarray(at, dtype=np.int64)), np.arange(n), side="right")
    stride = items // (len(at) + 1)
    return _retail((_draw(zipf_law(items, exponent), n, rng) + changes * stride) % items, rng, start, rate)


def bursts(
    n: int,
    items: int,
    exponent: float = 1.0,
    *,
    key: int,
    share: float,
    during: Sequence[tuple[int, int]],
    seed: int,
    start: int = 0,
    rate: float = RATE,
) -> Columns:
    """`zipf`, but inside the position intervals `during` a tuple is `key` with probability `share` before all else.

    >>> items = bursts(10_000, 100, key=77, share=0.5, during=[(4_000, 5_000)], seed=1)["item_id"]
    >>> bool(450 < (items[4_000:5_000] == 77).sum() < 550), bool((items[:4_000] == 77).mean() < 0.01)
    (True, True)
    """
    rng = np.random.default_rng(seed)
    drawn = _draw(zipf_law(items, exponent), n, rng)
    struck = _inside(during, n) & (rng.random(n) < share)
    return _retail(np.where(struck, key, drawn), rng, start, rate)


def promotions(
    n: int,
    items: int,
    exponent: float = 1.0,
    *,
    promoted: Sequence[int],
    during: tuple[int, int],
    boost: float,
    discount: float,
    seed: int,
    start: int = 0,
    rate: float = RATE,
) -> Columns:
    """`zipf`, but inside the position interval `during` the promoted items weigh `boost` times as much and cost
    `1 - discount` of their price, rounded to cents.

    >>> sale = promotions(10_000, 100, promoted=[40], during=(5_000, 10_000), boost=50.0, discount=0.25, seed=1)
    >>> np.unique(sale["price"][sale["item_id"] == 40]).tolist()
    [6.07, 8.1]
    """
    rng = np.random.default_rng(seed)
    law = zipf_law(items, exponent)
    boosted = law.copy()
    boosted[np.asarray(promoted, dtype=np.int64)] *= boost
    on = _inside([during], n)
    drawn = np.where(on, _draw(boosted / boosted.sum(), n, rng), _draw(law, n, rng))
    columns = _retail(drawn, rng, start, rate)
    cheaper = on & np.isin(drawn, np.asarray(promoted, dtype=np.int64))
    columns["price"] = np.where(cheaper, np.round(columns["price"] * (1.0 - discount), 2), columns["price"])
    return columns


def adversarial(
    n: int, keys: int, *, bits: int, prefix: int = 0, hash_seed: int, seed: int, start: int = 0, rate: float = RATE
) -> Columns:
    """`keys` equally likely items whose hashes under `hash_seed` all begin with the same `bits` bits, `prefix`.

    With `2**bits` buckets all of them are in bucket `prefix`: the worst stream of an attacker who knows the secret
    seed.

    >>> items = adversarial(1_000, 20, bits=6, prefix=5, hash_seed=42, seed=1)["item_id"]
    >>> set((hash_keys(items, 42) >> np.uint64(58)).tolist())
    {5}
    """
    rng = np.random.default_rng(seed)
    chosen = colliding_keys(keys, bits=bits, prefix=prefix, hash_seed=hash_seed)
    return _retail(chosen[rng.integers(0, keys, n)], rng, start, rate)


def colliding_keys(count: int, *, bits: int, prefix: int = 0, hash_seed: int) -> NDArray[np.int64]:
    """The `count` smallest integers from 0 on whose hash begins with `prefix`; costs about `count * 2**bits` hashes.

    >>> keys = colliding_keys(3, bits=8, prefix=7, hash_seed=42)
    >>> (hash_keys(keys, 42) >> np.uint64(56)).tolist()
    [7, 7, 7]
    """
    if not 1 <= bits <= 64 or not 0 <= prefix < 1 << bits:
        raise ValueError(f"no hash begins with the {bits} bits of {prefix}")
    chunk = 1 << 16
    found: list[NDArray[np.int64]] = []
    have = 0
    first = 0
    while have < count:
        tried = np.arange(first, first + chunk, dtype=np.int64)
        hits = tried[hash_keys(tried, hash_seed) >> np.uint64(64 - bits) == np.uint64(prefix)]
        found.append(hits)
        have += len(hits)
        first += chunk
    return np.concatenate(found)[:count] if found else np.empty(0, np.int64)


def late(columns: Columns, share: float, delay: int, *, seed: int, time: str = "ts") -> Columns:
    """The same tuples in another order: a `share` of them arrives up to `delay` late, the others on time.

    No tuple arrives after one that is more than `delay` younger, so with a lateness of `delay` no tuple is behind the
    watermark. Timestamps are unchanged.

    >>> ordered = uniform(1_000, 10, seed=1)
    >>> mixed = late(ordered, 0.2, 50_000, seed=2)
    >>> bool((np.diff(mixed["ts"]) < 0).any()), sorted(mixed["ts"].tolist()) == ordered["ts"].tolist()
    (True, True)
    """
    rng = np.random.default_rng(seed)
    ts = columns[time]
    delays = np.where(rng.random(len(ts)) < share, rng.integers(0, delay, len(ts), endpoint=True), 0)
    order = np.argsort(ts + delays, kind="stable")
    return {name: values[order] for name, values in columns.items()}


def zipf_law(items: int, exponent: float) -> NDArray[np.float64]:
    """Probabilities of items `0..items-1`, falling, summing to 1; exponent 0 is uniform.

    >>> zipf_law(3, 1.0).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    weights = np.arange(1, items + 1, dtype=np.float64) ** -exponent
    law: NDArray[np.float64] = weights / weights.sum()
    return law


def _draw(law: NDArray[np.float64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`n` independent draws. The last edge is omitted, so that a sum short of 1 by rounding draws the last item."""
    return np.searchsorted(np.cumsum(law)[:-1], rng.random(n), side="right").astype(np.int64)


def _inside(intervals: Sequence[tuple[int, int]], n: int) -> NDArray[np.bool_]:
    """Which positions lie in one of the half-open intervals."""
    inside = np.zeros(n, dtype=np.bool_)
    for first, last in intervals:
        inside[first:last] = True
    return inside


def _retail(items: NDArray[np.int64], rng: np.random.Generator, start: int, rate: float) -> Columns:
    """The other columns around the items: baskets of `BASKET` tuples on average, each in one of `STORES` stores."""
    n = len(items)
    transactions = np.cumsum(rng.random(n) < 1.0 / BASKET, dtype=np.int64)
    stores = rng.integers(0, STORES, n + 1)  # transaction numbers reach n at most
    gaps = rng.exponential(1e6 / rate, n)
    return {
        "store_id": stores[transactions],
        "transaction_id": transactions,
        "ts": start + np.cumsum(gaps).astype(np.int64),
        "item_id": items,
        "price": (50 + items * 7919 % 2000) / 100.0,
    }
