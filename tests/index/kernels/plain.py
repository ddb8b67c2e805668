"""What the kernels must do, said plainly with Python's integers."""

import numpy as np
from numpy.typing import NDArray

from promising.summaries.kernels.hashing import filter_word, remix, row_word


def some_hashes(n: int, keys: int, seed: int) -> NDArray[np.int64]:
    """`n` draws from `keys` random hashes, negative ones too."""
    rng = np.random.default_rng(seed)
    return rng.choice(rng.integers(-(1 << 63), 1 << 63, keys), n)


def bucket(h: int, buckets: int) -> int:
    """The top bits."""
    return (h % (1 << 64)) * buckets >> 64


def places(h: int, depth: int, width: int) -> list[tuple[int, int]]:
    """(column, sign) of a key in each row of a sketch: the lowest bit is the sign, the next ones the column."""
    bits = width.bit_length()
    full = int(row_word(np.uint64(h % (1 << 64))))
    word, left, found = full, 64, []
    for _ in range(depth):
        if left < bits:
            full = int(remix(np.uint64(full)))
            word, left = full, 64
        found.append(((word >> 1) % width, 1 - 2 * (word & 1)))
        word, left = word >> bits, left - bits
    return found


def filter_places(h: int, probes: int, slots: int) -> list[int]:
    """Slots of a key in its bucket's filter, from the low end of its word."""
    word = int(filter_word(np.uint64(h % (1 << 64))))
    return [(word // slots**j) % slots for j in range(probes)]


def sketch(hashes: list[int], buckets: int, depth: int, width: int) -> NDArray[np.int64]:
    """Counters [bucket][row][column] of these tuples, one by one."""
    counters = np.zeros((buckets, depth, width), np.int64)
    for h in hashes:
        for row, (column, sign) in enumerate(places(h, depth, width)):
            counters[bucket(h, buckets), row, column] += sign
    return counters


def filtered(hashes: list[int], buckets: int, probes: int, slots: int) -> NDArray[np.bool_]:
    """Filter [bucket][slot] of these tuples."""
    bits = np.zeros((buckets, slots), np.bool_)
    for h in hashes:
        for slot in filter_places(h, probes, slots):
            bits[bucket(h, buckets), slot] = True
    return bits
