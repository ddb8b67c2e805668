"""What each generator promises about its stream."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from promising.summaries.hashing import hash_keys
from promising.testing import streams
from promising.testing.streams import Columns

N = 20_000

MAKERS: dict[str, Callable[[int], Columns]] = {
    "uniform": lambda seed: streams.uniform(N, 50, seed=seed),
    "zipf": lambda seed: streams.zipf(N, 50, seed=seed),
    "all_distinct": lambda seed: streams.all_distinct(N, seed=seed),
    "drift": lambda seed: streams.drift(N, 50, seed=seed),
    "rotation": lambda seed: streams.rotation(N, 50, at=[N // 2], seed=seed),
    "bursts": lambda seed: streams.bursts(N, 50, key=9, share=0.5, during=[(100, 900)], seed=seed),
    "promotions": lambda seed: streams.promotions(
        N, 50, promoted=[9], during=(0, N // 2), boost=5.0, discount=0.5, seed=seed
    ),
    "adversarial": lambda seed: streams.adversarial(N, 20, bits=6, hash_seed=3, seed=seed),
    "late": lambda seed: streams.late(streams.uniform(N, 50, seed=1), 0.3, 10_000, seed=seed),
}


def same(a: Columns, b: Columns) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", MAKERS)
def test_schema_and_seed(name: str) -> None:
    columns = MAKERS[name](1)
    kinds = {column: values.dtype.str for column, values in columns.items()}
    assert kinds == {"store_id": "<i8", "transaction_id": "<i8", "ts": "<i8", "item_id": "<i8", "price": "<f8"}
    assert {len(values) for values in columns.values()} == {N}
    assert same(columns, MAKERS[name](1))
    assert not same(columns, MAKERS[name](2))


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "late"])
def test_arrivals_are_in_order_and_a_basket_is_in_one_store(name: str) -> None:
    columns = MAKERS[name](1)
    assert (np.diff(columns["ts"]) >= 0).all()
    stores: dict[int, set[int]] = {}
    for transaction, store in zip(columns["transaction_id"].tolist(), columns["store_id"].tolist(), strict=True):
        stores.setdefault(transaction, set()).add(store)
    assert {len(seen) for seen in stores.values()} == {1}
    assert 3.5 < N / len(stores) < 4.5
    assert (columns["price"] > 0).all()


def test_gaps_are_exponential() -> None:
    ts = streams.uniform(200_000, 5, seed=4, start=-5_000_000, rate=100.0)["ts"]
    gaps = np.diff(ts)
    assert -5_000_000 <= ts[0] < -4_800_000
    assert gaps.mean() == pytest.approx(10_000, rel=0.02)
    assert gaps.std() == pytest.approx(10_000, rel=0.03)
    assert (gaps > 10_000).mean() == pytest.approx(np.exp(-1), abs=0.01)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_zipf_has_its_slope(exponent: float) -> None:
    counts = np.bincount(streams.zipf(400_000, 1_000, exponent, seed=5)["item_id"], minlength=1_000)
    ranks = np.arange(1, 31)
    slope = np.polyfit(np.log(ranks), np.log(counts[:30]), 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.05)
    assert counts.size == 1_000


def test_uniform_is_flat() -> None:
    counts = np.bincount(streams.uniform(100_000, 10, seed=6)["item_id"])
    assert counts.size == 10
    assert ((counts > 9_500) & (counts < 10_500)).all()


def test_all_distinct_reaches_both_signs() -> None:
    items = streams.all_distinct(N, seed=7)["item_id"]
    assert np.unique(items).size == N
    assert 0.4 < (items < 0).mean() < 0.6


def test_drift_is_linear() -> None:
    items = streams.drift(200_000, 100, 1.2, seed=8)["item_id"]
    share = [float((part == 0).mean()) for part in np.array_split(items, 10)]
    top, bottom = streams.zipf_law(100, 1.2)[[0, 99]]
    for place, seen in enumerate(share):
        at = (place + 0.5) / 10
        assert seen == pytest.approx((1 - at) * top + at * bottom, abs=0.015)


def top_items(items: NDArray[np.int64], count: int = 5) -> set[int]:
    return {item for item, _ in Counter(items.tolist()).most_common(count)}


def test_rotation_changes_the_favourites_at_once_and_keeps_the_shape() -> None:
    items = streams.rotation(30_000, 300, 1.2, at=[20_000, 10_000], seed=9)["item_id"]
    spells = [items[:10_000], items[10_000:20_000], items[20_000:]]
    assert [min(top_items(spell, 1)) for spell in spells] == [0, 100, 200]
    assert not top_items(spells[0]) & top_items(spells[1])
    assert top_items(items[10_000:10_500], 1) == {100}
    assert top_items(items[9_500:10_000], 1) == {0}
    f2 = [sum(count * count for count in Counter(spell.tolist()).values()) for spell in spells]
    assert max(f2) < 1.1 * min(f2)


def test_rotation_changes_exactly_at_its_position() -> None:
    items = streams.rotation(100, 10, 80.0, at=[40], seed=9)["item_id"]  # so steep that only the favourite is drawn
    assert items.tolist() == [0] * 40 + [5] * 60


def test_bursts_strike_only_inside() -> None:
    during = [(2_000, 4_000), (10_000, 11_000)]
    items = streams.bursts(N, 100, key=500, share=0.3, during=during, seed=10)["item_id"]
    hits = items == 500  # no item of the base law
    for first, last in during:
        assert hits[first:last].mean() == pytest.approx(0.3, abs=0.05)
        hits[first:last] = False
    assert not hits.any()


def test_promotions_sell_more_for_less() -> None:
    during = (20_000, 60_000)
    promoted = [30, 31, 32]
    sale = streams.promotions(80_000, 100, 1.0, promoted=promoted, during=during, boost=20.0, discount=0.2, seed=11)
    inside = np.zeros(80_000, dtype=bool)
    inside[slice(*during)] = True
    law = streams.zipf_law(100, 1.0)
    weight = law[promoted].sum()
    on_sale = np.isin(sale["item_id"], promoted)
    assert on_sale[~inside].mean() == pytest.approx(weight, abs=0.005)
    assert on_sale[inside].mean() == pytest.approx(20 * weight / (1 + 19 * weight), abs=0.01)
    for item in promoted:
        mine = sale["item_id"] == item
        (usual,) = set(sale["price"][mine & ~inside].tolist())
        (cheap,) = set(sale["price"][mine & inside].tolist())
        assert cheap == pytest.approx(0.8 * usual, abs=0.006)
    plain = ~on_sale & (sale["item_id"] == 0)
    assert len(set(sale["price"][plain].tolist())) == 1


def test_late_keeps_the_tuples_and_bounds_the_delay() -> None:
    ordered = streams.zipf(N, 50, seed=12)
    delay = 20_000
    mixed = streams.late(ordered, 0.25, delay, seed=13)

    def bag(columns: Columns) -> Counter[tuple[object, ...]]:
        return Counter(zip(*(values.tolist() for values in columns.values()), strict=True))

    assert bag(mixed) == bag(ordered)
    behind = np.maximum.accumulate(mixed["ts"]) - mixed["ts"]
    assert behind.max() <= delay
    assert behind.max() > delay // 2
    assert 0.15 < (behind > 0).mean() < 0.27
    assert same(streams.late(ordered, 0.0, delay, seed=13), ordered)


def test_adversarial_keys_share_their_bucket() -> None:
    items = streams.adversarial(N, 40, bits=8, prefix=200, hash_seed=77, seed=14)["item_id"]
    assert set((hash_keys(items, 77) >> np.uint64(56)).tolist()) == {200}
    assert np.unique(items).size == 40
    assert set((hash_keys(items, 78) >> np.uint64(56)).tolist()) != {200}


def test_colliding_keys_are_the_smallest() -> None:
    keys = streams.colliding_keys(2_000, bits=7, prefix=3, hash_seed=5)
    span = np.arange(keys[-1] + 1)
    assert keys.tolist() == span[hash_keys(span, 5) >> np.uint64(57) == 3].tolist()
    assert streams.colliding_keys(0, bits=7, hash_seed=5).tolist() == []
    with pytest.raises(ValueError, match="bits of 8"):
        streams.colliding_keys(1, bits=3, prefix=8, hash_seed=5)
