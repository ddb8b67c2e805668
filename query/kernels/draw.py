"""Sampling without replacement, in an order fixed by a seed.

Every unit (a tuple, or a pair of tuples) has a clock that rings after an exponential time with the unit's weight as
rate; units are drawn in the order of their rings. With equal weights that is a uniformly random order; otherwise each
unit is drawn with probability proportional to its weight among those left. All units of an entry have one weight, so no
clocks are stored: the next of the n units left rings after an exponential time with rate n * weight, and a permutation
of the entry's units determines which one it is.
"""

import math

import numpy as np

from promising.query.kernels.heap import sift_down, within
from promising.summaries.kernels.jit import kernel

ROUNDS = 6
STEP = np.uint64(0xD1342543DE82EF95)
SHUFFLED = 128  # up to this many numbers are shuffled one by one


@kernel("uint64(uint64)", inline="always")
def mix(x):
    """splitmix64's finalizer: every bit of the result depends on every bit of x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel("uint64(uint64, uint64)", inline="always")
def reduced(word, n):
    """A number below n < 2^32, from the upper half of a random word."""
    return ((word >> np.uint64(32)) * n) >> np.uint64(32)


@kernel("float64(uint64, uint64)", inline="always")
def ring(key, number):
    """The `number`-th exponential time of a key, with rate 1."""
    word = mix(key + (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return -math.log((np.float64(word >> np.uint64(11)) + 1.0) * (1.0 / 9007199254740992.0))


@kernel("int64(int64, int64, uint64)")
def permute(at, n, key):
    """The image of `at` under a permutation of 0..n-1 chosen by `key`.

    Few numbers are shuffled one by one, because a Feistel network over few would not reach all permutations equally.
    Many go through such a network over a slightly larger rectangle, repeatedly while the result is outside.
    """
    if n <= 1:
        return np.int64(0)
    if n <= SHUFFLED:
        order = np.arange(n)
        for i in range(at + 1):
            word = mix(key + np.uint64(i + 1) * np.uint64(0xA0761D6478BD642F))
            j = i + np.int64((word >> np.uint64(11)) % np.uint64(n - i))
            order[i], order[j] = order[j], order[i]
        return order[at]
    tall = np.uint64(math.sqrt(np.float64(n))) + np.uint64(1)
    wide = np.uint64(n) // tall + np.uint64(1)
    x = np.uint64(at)
    while True:
        left = x // wide
        right = x - left * wide
        for r in range(0, ROUNDS, 2):
            left += reduced(mix(right + key + np.uint64(r) * STEP), tall)
            if left >= tall:
                left -= tall
            right += reduced(mix(left + key + np.uint64(r + 1) * STEP), wide)
            if right >= wide:
                right -= wide
        x = left * wide + right
        if x < np.uint64(n):
            return np.int64(x)


@kernel("void(int64, int64, uint64, int64[::1])")
def permuted(start, n, key, out):
    for i in range(out.size):
        out[i] = permute(start + i, n, key)


@kernel("void(float64[::1], int64[::1], int64[::1], float64[::1], uint64)")
def set_clocks(clocks, tie, units, weight, seed):
    """The negated time of each entry's next ring, so that the first is highest; it never rings without weight."""
    for e in range(clocks.size):
        rate = weight[e] * np.float64(units[e])
        key = mix(np.uint64(tie[e]) ^ seed)
        clocks[e] = -ring(key, np.uint64(0)) / rate if rate > 0.0 else -np.inf


@kernel(
    "int64(int32[::1], int64[::1], float64[::1], int64[::1], int64[::1], int64[::1], float64[::1], uint64, float64,"
    " int64, int32[::1], int64[::1])"
)
def draw(heap, size, clocks, tie, units, drawn, weight, seed, least, last, entries, numbers):
    """The next draws, no later than (`least`, `last`): entry and unit. Returns how many; updates size[0]."""
    left = size[0]
    made = 0
    while made < entries.size and left > 0:
        e = heap[0]
        if not within(clocks[e], tie[e], least, last):
            break
        key = mix(np.uint64(tie[e]) ^ seed)
        entries[made] = e
        numbers[made] = permute(drawn[e], units[e], key)
        made += 1
        drawn[e] += 1
        rest = units[e] - drawn[e]
        if rest > 0:
            if weight[e] > 0.0:
                clocks[e] -= ring(key, np.uint64(drawn[e])) / (weight[e] * np.float64(rest))
        else:
            left -= 1
            heap[0] = heap[left]
        if left > 0:
            sift_down(heap, left, 0, clocks, tie)
    size[0] = left
    return made
