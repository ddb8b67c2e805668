"""ORDER BY in steps, against numpy's sort of all rows at once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.query import order
from promising.query.kernels.merging import merge
from promising.query.order import Term, sorted_places, sorting
from tests.tiers import examples


@pytest.fixture(params=[1, 2, 7, 64], autouse=True)
def run(request, monkeypatch):
    monkeypatch.setattr(order, "RUN", request.param)


@settings(max_examples=examples(40))
@given(
    st.integers(0, 200),
    st.integers(1, 3),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1 << 30),
)
def test_steps_sort_as_at_once(rows, columns, values, descending, nulls_first, seed):
    rng = np.random.default_rng(seed)
    made = [rng.integers(0, values, rows) for _ in range(columns)]
    keys = [pa.array(column, mask=column == 0) for column in made]
    places = sorted_places(keys, [Term(descending, nulls_first)] * columns)

    def words(column):
        missing = column == 0
        ranked = np.where(missing, 0, -column if descending else column)
        return [missing != nulls_first, ranked]

    parts = [word for column in made for word in words(column)]
    assert places.tolist() == np.lexsort(parts[::-1]).tolist()


def test_read_only_keys_are_sorted():
    keys = pa.array(np.arange(200)[::-1].copy()).slice(3)
    assert sorted_places([keys], [Term()]).tolist() == list(range(197))[::-1]


def test_no_step_sorts_more_than_a_run(run, monkeypatch):
    sizes, argsort = [], np.argsort

    def sort(some, **how):
        sizes.append(len(some))
        return argsort(some, **how)

    def merged(*given):
        sizes.append(given[-1] // 4)
        merge(*given)

    monkeypatch.setattr(np, "argsort", sort)
    monkeypatch.setattr(order, "merge", merged)
    steps = sum(1 for _ in sorting([pa.array(np.arange(200) % 7)], [Term()]))
    assert max(sizes) <= order.RUN
    assert steps >= 200 // order.RUN - 1
