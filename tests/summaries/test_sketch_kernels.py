"""The kernels against a plain reading of the contract, bit by bit."""

import numpy as np
import numpy.typing as npt
import pytest

from promising.summaries.kernels.hashing import remix, row_word
from promising.summaries.kernels.sketch import (
    count_min_estimate,
    count_min_update,
    count_sketch_estimate,
    count_sketch_update,
    row_bits,
)

pytestmark = pytest.mark.kernel

Hashes = npt.NDArray[np.uint64]


def slots(h: int, depth: int, width: int) -> list[tuple[int, int]]:
    """(column, sign) of a key in each row, with Python's integers."""
    bits = width.bit_length() - 1 + 1
    full = int(row_word(np.uint64(h)))
    word, left, result = full, 64, []
    for _ in range(depth):
        if left < bits:
            full = int(remix(np.uint64(full)))
            word, left = full, 64
        result.append(((word >> 1) % width, 1 - 2 * (word & 1)))
        word, left = word >> bits, left - bits
    return result


def some(seed: int) -> tuple[Hashes, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 1 << 64, 12, dtype=np.uint64)
    return rng.choice(pool, 40), rng.integers(0, 9, 40)


SIZES = [(1, 2), (3, 4), (5, 64), (7, 1024), (9, 1 << 12), (5, 1 << 20)]


@pytest.mark.parametrize("width", [2, 4, 64, 1 << 20, 1 << 24])
def test_row_bits(width: int):
    assert int(row_bits(width)) == width.bit_length()


@pytest.mark.parametrize(("depth", "width"), SIZES)
def test_count_sketch_puts_keys_where_the_bits_say(depth: int, width: int):
    hashes, counts = some(depth)
    counters, squares = np.zeros((depth, width), np.int64), np.zeros(depth)
    count_sketch_update(hashes, counts, counters, squares)
    expected = np.zeros_like(counters)
    for h, count in zip(hashes.tolist(), counts.tolist(), strict=True):
        for row, (column, sign) in enumerate(slots(h, depth, width)):
            expected[row, column] += sign * count
    assert (counters == expected).all()
    assert (squares == (expected**2).sum(axis=1)).all(), "the running sum of squares is exact"


@pytest.mark.parametrize(("depth", "width"), SIZES)
def test_count_sketch_estimate_is_the_median_of_the_rows(depth: int, width: int):
    hashes, counts = some(depth)
    counters, squares = np.zeros((depth, width), np.int64), np.zeros(depth)
    count_sketch_update(hashes, counts, counters, squares)
    value, rest = np.empty(hashes.size, np.int64), np.empty(hashes.size)
    count_sketch_estimate(hashes, counters, squares, value, rest)
    for at, h in enumerate(hashes.tolist()):
        rows = [sign * int(counters[row, column]) for row, (column, sign) in enumerate(slots(h, depth, width))]
        assert value[at] == sorted(rows)[depth // 2]
        assert rest[at] == max(squares[row] - rows[row] ** 2 for row in range(depth))


@pytest.mark.parametrize(("depth", "width"), SIZES)
def test_count_min_shares_the_columns(depth: int, width: int):
    hashes, counts = some(depth)
    counters, value = np.zeros((depth, width), np.int64), np.empty(hashes.size, np.int64)
    count_min_update(hashes, counts, counters)
    count_min_estimate(hashes, counters, value)
    expected = np.zeros_like(counters)
    for h, count in zip(hashes.tolist(), counts.tolist(), strict=True):
        for row, (column, _) in enumerate(slots(h, depth, width)):
            expected[row, column] += count
    assert (counters == expected).all()
    for at, h in enumerate(hashes.tolist()):
        assert value[at] == min(expected[row, column] for row, (column, _) in enumerate(slots(h, depth, width)))
