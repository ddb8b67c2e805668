"""The logs are what they are said to be, and played back as the paper does."""

import numpy as np
import pytest

from benchmarks.paper.logs import GAP_US, ITEMS, Log, arrivals, batches, complete_journey, generated

LOGS = {
    "journey": lambda seed: complete_journey(3_000, seed),
    "drift": lambda seed: generated(3_000, seed, drift=True),
    "steady": lambda seed: generated(3_000, seed, drift=False),
}


def same(one: Log, other: Log) -> bool:
    sides = zip(one.sides().values(), other.sides().values(), strict=True)
    return all(np.array_equal(a[name], b[name]) for a, b in sides for name in a)


@pytest.mark.parametrize("name", LOGS)
def test_columns_are_in_order_of_time_and_the_seed_decides(name):
    log = LOGS[name](1)
    for side in log.sides().values():
        assert list(side) == ["store_id", "transaction_id", "ts", "item_id", "price"]
        assert {len(column) for column in side.values()} == {3_000}
        assert {side[c].dtype for c in ("store_id", "transaction_id", "ts", "item_id")} == {np.dtype(np.int64)}
        assert side["price"].dtype == np.float64
        assert (np.diff(side["ts"]) >= 0).all()
    assert same(log, LOGS[name](1)) and not same(log, LOGS[name](2))


@pytest.mark.parametrize("gap", [GAP_US, 500.0])
def test_gaps_are_exponential_with_the_mean_asked_for(gap):
    gaps = np.diff(generated(40_000, 1, drift=False, gap_us=gap).a["ts"])
    assert gaps.mean() == pytest.approx(gap, rel=0.03)
    assert gaps.std() == pytest.approx(gap, rel=0.05)


def test_journey_keeps_the_order_of_its_log_and_parts_its_stores():
    log = complete_journey(5_000, 3)
    assert (log.a["store_id"] % 2 == 0).all() and (log.b["store_id"] % 2 == 1).all()
    whole = complete_journey(None, 3)
    assert whole.rows > 600_000
    first = np.flatnonzero(whole.a["transaction_id"] == log.a["transaction_id"][0])
    assert any(np.array_equal(whole.a["item_id"][i : i + 50], log.a["item_id"][:50]) for i in first.tolist())


def test_the_selectivity_is_the_papers():
    log = generated(40_000, 1, drift=False)
    a, b = (np.bincount(side["item_id"], minlength=ITEMS + 1) / log.rows for side in log.sides().values())
    assert 0.05 < a @ b < 0.09


def test_with_drift_what_is_popular_changes_and_without_it_stays():
    for drift in (True, False):
        log = generated(40_000, 1, drift=drift, spell=4_000)
        parts = np.array_split(log.a["item_id"], 20)
        favourites = {int(np.bincount(part).argmax()) for part in parts}
        assert len(favourites) > 3 if drift else len(favourites) == 1


def test_with_drift_both_streams_change_together():
    log = generated(40_000, 2, drift=True)
    for first in range(0, 40_000, 10_000):
        a, b = (np.bincount(side["item_id"][first : first + 1_000]) for side in (log.a, log.b))
        assert a.argmax() in np.argsort(-b)[:3]


def test_arrivals_merge_both_sides_by_time():
    log = generated(300, 1, drift=False)
    side, row = arrivals(log)
    ts = [(log.a, log.b)[s]["ts"][r] for s, r in zip(side.tolist(), row.tolist(), strict=True)]
    assert ts == sorted(ts)
    assert sorted(zip(side.tolist(), row.tolist(), strict=True)) == [(s, r) for s in (0, 1) for r in range(300)]


def test_batches_are_all_of_it_in_order():
    log = generated(1_000, 1, drift=False)
    assert np.array_equal(np.concatenate([part["ts"] for part in batches(log.a, 300)]), log.a["ts"])
