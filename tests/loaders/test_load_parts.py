"""Parts of one size, cells in order, and cells in SQL that are the cells of the index."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promising.index.geometry import zone_starts
from promising.index.load_plan import LoadPlan
from promising.loaders import load_parts
from promising.loaders.column_mapping import value
from promising.summaries.hashing import hash_keys
from tests.loaders.loading import START, log, store

COUNTS = st.lists(
    st.one_of(st.integers(0, 50), st.integers(0, 3_000), st.integers(10_000, 200_000)), min_size=1, max_size=60
)


def sizes(counts: Any, found: load_parts.Packed) -> Any:
    """How many tuples each part gets, if those of a cell are spread evenly over its stretch."""
    out = np.zeros(found.parts)
    for count, begin, length in zip(counts, found.begins, found.lengths, strict=True):
        if count == 0:  # such a cell may stand behind the last part
            continue
        if length == 0:
            out[int(begin)] += count
            continue
        for part in range(int(begin), found.parts):
            out[part] += count * max(0.0, min(begin + length, part + 1) - max(begin, part)) / length
    return out


@given(COUNTS, st.integers(1, 8))
@example([3_600, *[100] * 100], 1)
def test_no_part_is_much_larger_than_the_mean(counts: list[int], cores: int):
    given = np.array(counts, np.int64)
    if not given.sum():
        return
    smallest, largest, load_parts.SMALLEST, load_parts.LARGEST = load_parts.SMALLEST, load_parts.LARGEST, 1_000, 2_000
    try:
        found = load_parts.packed(given, cores)
    finally:
        load_parts.SMALLEST, load_parts.LARGEST = smallest, largest
    made = sizes(counts, found)
    assert made.sum() == pytest.approx(given.sum())
    assert (made > 0).all()
    full = made[:-1] if len(made) > 1 else made  # the last one has what is left over
    assert made.max() <= 1.5 * max(made.mean(), full.mean()) + 1
    begins = found.begins[given > 0]
    assert (np.diff(begins) >= -0.5).all(), "cells are out of order"


def test_a_small_load_is_one_part():
    found = load_parts.packed(np.array([10, 0, 5]), 2)
    assert (found.parts, found.lengths.tolist()) == (1, [0, 0, 0])


def plan() -> LoadPlan:
    with store(None) as session:
        session.ingest("sales", log(2_000))
        return session.load_plan("sales")


@pytest.mark.parametrize("most", [1 << 17, 64, 4])
def test_cells_are_numbered_by_zone_and_bucket(most: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load_parts, "MOST_CELLS", most)
    shape = plan().shaped(None)
    found = load_parts.cells(plan(), shape, START + 60 * 3_600_000_000)
    assert found.count <= most
    assert ("xxhash64" in found.sql) == (most > 64)


@pytest.mark.spark
def test_cells_in_sql_are_those_of_the_index(spark: Any):
    columns = log(5_000)
    latest = int(columns["ts"].max())
    planned = plan()
    shape = planned.shaped(latest)
    found = load_parts.cells(planned, shape, latest)
    names = list(planned.types)
    keep = columns["ts"] >= shape.oldest
    times, items = columns["ts"][keep], columns["item_id"][keep]
    rows = spark.createDataFrame(
        list(zip(times.tolist(), items.tolist(), strict=True)),
        f"{value(names.index('ts'))} BIGINT, {value(names.index('item_id'))} BIGINT",
    )
    numbers = np.array([row[0] for row in rows.selectExpr(found.sql).collect()])
    assert shape.key == "item_id"
    bucket = (hash_keys(items, planned.seed) >> np.uint64(shape.shift)).astype(np.int64)
    zone = zone_starts(times, shape.zones)
    order = np.lexsort((bucket, zone))
    assert (np.diff(numbers[order]) >= 0).all()
    pairs = set(zip(zone.tolist(), bucket.tolist(), strict=True))
    assert len(pairs) == len(set(numbers.tolist()))
    assert numbers.max() < found.count
