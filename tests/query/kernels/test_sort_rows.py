"""Rows in the order of their keys: of any keys, of some of the rows, and equal ones as they came."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.query.kernels.selections import sort_rows

pytestmark = pytest.mark.kernel

LEAST, MOST = -(1 << 63), (1 << 63) - 1
KEYS = st.one_of(st.integers(LEAST, MOST), st.sampled_from([LEAST, MOST, -1, 0, 1]), st.integers(0, 300))


def in_order(keys: np.ndarray, rows: np.ndarray) -> list[int]:
    count = len(rows) or len(keys)
    words, places = np.empty((2, count), np.uint64), np.empty((2, count), np.int32)
    line = sort_rows(keys, rows, words, places, np.empty((8, 256), np.int64))
    found: list[int] = places[line].tolist()
    return found


@given(st.lists(KEYS, max_size=60))
def test_all_rows(keys):
    made = np.array(keys, np.int64)
    assert in_order(made, np.empty(0, np.int64)) == np.argsort(made, kind="stable").tolist()


@given(st.lists(st.tuples(KEYS, st.booleans()), min_size=1, max_size=60))
def test_some_rows(pairs):
    keys = np.array([key for key, _ in pairs], np.int64)
    rows = np.flatnonzero([there for _, there in pairs])
    if len(rows):
        assert in_order(keys, rows) == rows[np.argsort(keys[rows], kind="stable")].tolist()


def test_prices_as_words():
    keys = np.random.default_rng(3).gamma(2.0, 2.5, 2_000).view(np.int64)
    assert in_order(keys, np.empty(0, np.int64)) == np.argsort(keys, kind="stable").tolist()
