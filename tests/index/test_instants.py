"""Sentinels of time: what can be added to them in 64 bits, and what files and clients know them by."""

import numpy as np

from promising.index.admission import Retention
from promising.index.geometry import Geometry
from promising.index.instants import BEGINNING, END, EVER, FARTHEST, NEVER

INT64 = np.iinfo(np.int64)


def test_what_is_on_disk_and_on_the_wire_stays():
    assert (FARTHEST, EVER, NEVER) == (1 << 61, (-(1 << 62), 1 << 62), (1 << 62) - 1)


def test_a_time_and_a_span_lie_between_the_ends():
    assert BEGINNING <= -FARTHEST - FARTHEST < FARTHEST < NEVER < FARTHEST + FARTHEST <= END


def test_there_is_room_beyond_the_ends():
    assert INT64.min <= BEGINNING - 2 * FARTHEST
    assert INT64.max >= END + FARTHEST
    keep = Geometry(granularity=FARTHEST // 8, rate=2, depth=1, keep=FARTHEST)
    held = Retention(FARTHEST, frozenset({keep}), None)
    assert held.oldest_at(np.array([BEGINNING])).tolist() == [keep.oldest(BEGINNING)] == [held.oldest(BEGINNING)]
    for granularity in (1, 60_000_000, (1 << 60) - 1):
        borders = Geometry(granularity, 2, 1).horizons(-FARTHEST)
        assert np.array(borders, np.int64).tolist() == list(borders)
