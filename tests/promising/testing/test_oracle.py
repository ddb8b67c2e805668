"""The oracle against cases worked out by hand, and against the prose of the ageing rule."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.errors import (
    BadCollapse,
    BadGranularity,
    BadWindow,
    EmptyBatch,
    MissingColumn,
    NullKey,
    NullTime,
    UnequalLengths,
)
from promising.testing import ManualClock, Oracle


def make(collapse: tuple[int, int], *, granularity: int = 10, now: int = 10**9, **settings: int | None) -> Oracle:
    return Oracle("ts", "k", granularity=granularity, collapse=collapse, clock=ManualClock(now), **settings)  # type: ignore[arg-type]  # only keep may be None


def offer(oracle: Oracle, *times: int, key: int | str = 1) -> tuple[int, dict[str, int]]:
    return oracle.append({"ts": list(times), "k": [key] * len(times)})


# --- geometry ----------------------------------------------------------------------------------------------------


def test_two_granularities_by_hand() -> None:
    oracle = make((2, 1), keep=80)  # zones of 20 would be more than an eighth
    oracle.advance(109)  # floor((109 - 10) / 10) * 10, floor((109 - 80) / 10) * 10
    assert (oracle.levels, oracle.horizon(1), oracle.horizon(2)) == (2, 90, 20)
    assert [oracle.granularity_of(ts) for ts in (19, 20, 89, 90, 1000)] == [None, 2, 2, 1, 1]
    oracle.advance(110)  # the block [90, 100) ended exactly T_1 before the watermark
    assert (oracle.horizon(1), oracle.horizon(2)) == (100, 30)
    assert [oracle.granularity_of(ts) for ts in (29, 30, 99, 100)] == [None, 2, 2, 1]


def test_three_granularities_by_hand() -> None:
    oracle = make((2, 3), keep=160)  # T = 10, 20; S = 10, 30
    oracle.advance(200)
    assert [oracle.span(i) for i in (1, 2, 3)] == [10, 20, 40]
    assert [oracle.horizon(i) for i in (1, 2, 3)] == [190, 160, 40]
    places = {ts: oracle.zone_of(ts) for ts in (200, 190, 189, 160, 159, 140, 139, 40, 39)}
    assert places == {
        200: (1, 20),
        190: (1, 19),
        189: (2, 18),
        160: (2, 16),
        159: (3, 7),
        140: (3, 7),
        139: (3, 6),
        40: (3, 2),
        39: None,
    }
    oracle.advance(209)  # nothing moves before a block is whole
    assert [oracle.horizon(i) for i in (1, 2, 3)] == [190, 160, 40]
    oracle.advance(210)  # floor(200/10)*10, floor(180/20)*20, floor(50/20)*20
    assert [oracle.horizon(i) for i in (1, 2, 3)] == [200, 180, 40]
    oracle.advance(220)
    assert [oracle.horizon(i) for i in (1, 2, 3)] == [210, 180, 60]


def test_without_keep_granularities_follow_and_nothing_expires() -> None:
    oracle = make((2, 1))
    oracle.advance(100)  # horizons 90, 60, 0, -80
    assert [oracle.zone_of(ts) for ts in (90, 89, 59, 0, -1, -80)] == [(1, 9), (2, 8), (3, 2), (3, 0), (4, -1), (4, -2)]
    assert oracle.granularity_of(-(10**15)) is not None
    assert offer(oracle, -(10**15)) == (1, {})
    assert (oracle.live(), oracle.expired) == ([0], 0)


def test_negative_times_round_down() -> None:
    oracle = make((2, 2), keep=80)  # T_1 = 10
    oracle.advance(-5)
    assert (oracle.horizon(1), oracle.horizon(2)) == (-20, -90)
    assert [oracle.zone_of(ts) for ts in (-1, -20, -21, -30, -31, -90, -91)] == [
        (1, -1),
        (1, -2),
        (2, -3),
        (2, -3),
        (2, -4),
        (2, -9),
        None,
    ]


def test_without_a_watermark_nothing_is_old() -> None:
    oracle = make((2, 2))
    assert oracle.watermark is None
    assert oracle.horizon(2) is None
    assert oracle.zone_of(-(10**15)) == (1, -(10**14))


# --- judging tuples ----------------------------------------------------------------------------------------------


def test_the_horizon_itself_is_accepted() -> None:
    oracle = make((2, 1), keep=80)
    assert offer(oracle, 100) == (1, {})
    assert offer(oracle, 20, 19, 100) == (2, {"too_old": 1})
    assert oracle.live() == [0, 1, 3]
    assert oracle.watermark == 100


def test_a_tuple_is_judged_by_those_before_it_in_its_batch() -> None:
    oracle = make((2, 1), keep=80)
    assert offer(oracle, 5, 110, 5, 100) == (3, {"too_old": 1})
    assert oracle.live() == [1, 3]  # the first 5 was accepted and has expired, the second was refused
    assert (oracle.offered, oracle.expired, dict(oracle.refused)) == (4, 1, {"too_old": 1})


def test_a_tuple_that_jumps_ahead_is_not_judged_by_its_own_watermark() -> None:
    oracle = make((2, 1), keep=80)
    assert offer(oracle, 0, 1000, 919) == (2, {"too_old": 1})  # floor((1000 - 80) / 10) * 10 = 920
    assert oracle.horizon(2) == 920


def test_the_allowed_future_is_inclusive_and_moves_nothing_beyond() -> None:
    oracle = make((2, 1), now=100, max_future=50)
    assert offer(oracle, 151) == (0, {"too_far_ahead": 1})
    assert oracle.watermark is None
    assert offer(oracle, 150) == (1, {})
    assert oracle.watermark == 100, "the clock"


def test_too_far_ahead_is_asked_before_too_old() -> None:
    oracle = make((2, 1), keep=80, now=0, max_future=50)
    oracle.advance(1000)
    assert offer(oracle, 51, 50) == (0, {"too_far_ahead": 1, "too_old": 1})


def test_the_clock_is_read_at_each_batch() -> None:
    clock = ManualClock(0)
    oracle = Oracle("ts", "k", granularity=10, collapse=(2, 1), clock=clock, max_future=0)
    assert offer(oracle, 1) == (0, {"too_far_ahead": 1})
    clock.tick(1)
    assert offer(oracle, 1) == (1, {})


def test_lateness_holds_the_watermark_back() -> None:
    oracle = make((2, 1), keep=80, lateness=15)
    offer(oracle, 115)
    assert oracle.watermark == 100
    assert offer(oracle, 20, 19) == (1, {"too_old": 1})


def test_the_watermark_never_goes_back() -> None:
    oracle = make((2, 1), lateness=15)
    oracle.advance(40)
    oracle.advance(39)
    assert oracle.watermark == 40
    offer(oracle, 54)  # 54 - 15 = 39
    assert oracle.watermark == 40
    offer(oracle, 56)
    assert oracle.watermark == 41


def test_punctuation_before_any_tuple_makes_old() -> None:
    oracle = make((2, 1), keep=80)
    oracle.advance(100)
    assert offer(oracle, 19, 20) == (1, {"too_old": 1})
    assert oracle.watermark == 100


# --- answers -----------------------------------------------------------------------------------------------------


def retail(keep: int | None = None) -> Oracle:
    oracle = make((2, 3), keep=keep)  # at watermark 100: G_1 from 90, G_2 from 60, G_3 from 0
    columns: dict[str, list[Any]] = {
        "ts": [0, 20, 39, 60, 65, 70, 90, 100],
        "k": ["tea", "jam", "tea", "tea", "tea", "jam", "tea", "jam"],
        "price": [1.0, None, 3.0, 4.0, 5.0, None, 7.0, 8.0],
    }
    assert oracle.append(columns) == (8, {})
    return oracle


def test_windows_are_half_open() -> None:
    oracle = retail()
    assert oracle.tuples("tea") == [0, 2, 3, 4, 6]
    assert oracle.tuples("tea", (39, 65)) == [2, 3]
    assert oracle.tuples("tea", (39, 66)) == [2, 3, 4]
    assert oracle.tuples("tea", (65, 65)) == []
    assert oracle.count("jam", (20, 101)) == 3
    assert oracle.count("salt") == 0


def test_join_answers_each_probe_in_order() -> None:
    oracle = retail()
    assert oracle.join(["jam", "salt", "tea", "jam"], (60, 100)) == [(0, 5), (2, 3), (2, 4), (2, 6), (3, 5)]
    assert oracle.join([]) == []


def test_zone_counts_by_hand() -> None:
    oracle = retail()
    assert oracle.zone_counts(1) == {9: Counter(tea=1), 10: Counter(jam=1)}
    assert oracle.zone_counts(2) == {6: Counter(tea=2), 7: Counter(jam=1)}
    assert oracle.zone_counts(3) == {0: Counter(tea=1), 1: Counter(jam=1, tea=1)}


def test_expired_tuples_answer_nothing_but_can_be_read() -> None:
    oracle = retail(keep=80)
    oracle.advance(120)  # G_2 from 40
    assert oracle.live() == [3, 4, 5, 6, 7]
    assert oracle.expired == 3
    assert oracle.tuples("tea", (0, 1000)) == [3, 4, 6]
    assert oracle.rows([1]) == [{"ts": 20, "k": "jam", "price": None}]


def test_numpy_columns_become_plain_values() -> None:
    oracle = make((2, 2))
    oracle.append({"ts": np.array([1, 2, 3]), "k": np.array([7, 8, 7], dtype=np.int64)})
    assert oracle.rows(oracle.tuples(7)) == [{"ts": 1, "k": 7}, {"ts": 3, "k": 7}]
    assert oracle.join(np.array([8, 7])) == [(0, 1), (1, 0), (1, 2)]
    assert {type(key) for counter in oracle.zone_counts(1).values() for key in counter} == {int}


def test_rows_are_copies() -> None:
    oracle = retail()
    oracle.rows([0])[0]["k"] = "jam"
    assert oracle.count("tea") == 5


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"ts": [1]}, MissingColumn),
        ({"k": [1]}, MissingColumn),
        ({"ts": [], "k": []}, EmptyBatch),
        ({"ts": [1, 2], "k": [1]}, UnequalLengths),
        ({"ts": [1, None], "k": [1, 2]}, NullTime),
        ({"ts": [1, 2], "k": [1, None]}, NullKey),
        ({"ts": [1, 2.5], "k": [1, 1]}, TypeError),
    ],
)
def test_a_bad_batch_changes_nothing(columns: dict[str, list[Any]], error: type[Exception]) -> None:
    oracle = make((2, 2))
    with pytest.raises(error):
        oracle.append(columns)
    assert (oracle.offered, oracle.watermark, oracle.live()) == (0, None, [])


def test_bad_definitions_and_questions() -> None:
    for collapse in ((1, 2), (2, 0)):
        with pytest.raises(BadCollapse):
            make(collapse)
    with pytest.raises(BadGranularity):
        make((2, 2), granularity=0)
    with pytest.raises(BadGranularity):
        make((2, 2), keep=79)
    oracle = make((2, 2), keep=80)
    with pytest.raises(BadWindow):
        oracle.count(1, (2, 1))
    with pytest.raises(ValueError, match=r"1\.\.2"):
        oracle.zone_counts(3)


# --- laws --------------------------------------------------------------------------------------------------------

shapes = st.tuples(st.integers(1, 12), st.integers(2, 4), st.none() | st.integers(0, 400))
"""Granularity, rate, and how much more than eight granularities is kept; None: all."""
times = st.integers(-300, 300)


@given(shape=shapes, watermark=times, ts=times)
def test_ageing_as_the_specification_words_it(shape: tuple[int, int, int | None], watermark: int, ts: int) -> None:
    """A tuple leaves G_i when its aligned block of length T_i ended at least T_1 + .. + T_i before the watermark, and
    the last granularity when its zone ended at least KEEP before the watermark."""
    granularity, rate, more = shape
    keep = None if more is None else 8 * granularity + more
    oracle = make((rate, 1), granularity=granularity, keep=keep)
    oracle.advance(watermark)
    expected: int | None = 1
    span, reach, zone = granularity, granularity, 0
    while keep is None or 8 * span <= keep:
        block_end = (ts // span + 1) * span
        if block_end > watermark - reach:
            break
        span, zone = span * rate, span
        reach += span
        assert expected is not None
        expected += 1
    else:
        expected = expected if (ts // zone + 1) * zone > watermark - keep else None
    assert oracle.granularity_of(ts) == expected


@given(
    shape=shapes,
    batches=st.lists(st.lists(st.tuples(times, st.integers(0, 3)), min_size=1, max_size=12), max_size=8),
    marks=st.lists(st.none() | times, min_size=8, max_size=8),
    lateness=st.integers(0, 40),
)
def test_totals_and_splits(
    shape: tuple[int, int, int | None], batches: list[list[tuple[int, int]]], marks: list[int | None], lateness: int
) -> None:
    """Totals are conserved, what is gone stays gone, and cutting batches otherwise changes nothing."""
    granularity, rate, more = shape
    keep = None if more is None else 8 * granularity + more
    whole, single = (
        make((rate, 2), granularity=granularity, keep=keep, now=200, max_future=50, lateness=lateness) for _ in range(2)
    )
    deepest = min(whole.levels, 10)  # further ones begin before all times
    gone: set[int] = set()
    for batch, mark in zip(batches, marks, strict=False):
        whole.append({"ts": [ts for ts, _ in batch], "k": [key for _, key in batch]})
        for ts, key in batch:
            offer(single, ts, key=key)
        if mark is not None:
            whole.advance(mark)
            single.advance(mark)
        live = set(whole.live())
        assert whole.offered == len(live) + whole.expired + sum(whole.refused.values())
        assert not gone & live
        gone = set(range(whole.offered)) - live
        assert sum(whole.count(key) for key in range(4)) == len(live)
        in_zones = [counter for i in range(1, deepest + 1) for counter in whole.zone_counts(i).values()]
        assert sum(counter.total() for counter in in_zones) == len(live)
        assert (single.live(), single.refused, single.watermark) == (whole.live(), whole.refused, whole.watermark)
