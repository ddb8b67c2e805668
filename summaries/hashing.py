"""The keyed hash of keys, used for buckets, sketch rows and filters."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from promising.errors import WrongType
from promising.summaries.kernels.hashing import hash_long, hash_longs, hash_strings
from promising.summaries.keys import Keys, as_keys, utf8

SPARK_SEED = np.uint64(42)  # Spark's `xxhash64` starts a row from it


@cache
def inner_seed(seed: int) -> np.uint64:
    """The XXH64 seed for keys: Spark chains the columns of a row, and the first column is the seed."""
    if not -(1 << 63) <= seed < (1 << 63):
        raise WrongType(f"seed {seed} does not fit a 64-bit signed integer")
    return np.uint64(hash_long(np.int64(seed), SPARK_SEED))


def hash_keys(keys: Any, seed: int) -> npt.NDArray[np.uint64]:
    """Hash a column of integers or strings, bit for bit as Spark's `xxhash64(CAST(seed AS BIGINT), key)` does.

    Integers of any width hash as BIGINT, strings by their UTF-8 bytes. For one seed two integers never collide; two
    strings do with a probability of about 2**-64. Booleans, floats, nulls and mixed columns raise a `BatchError` with
    the row.

    >>> [f"{word:016x}" for word in hash_keys([1, -1], seed=7)]
    ['2b29776d26e07c61', '0cef11e15d84c4b7']
    >>> hash_keys(["1"], seed=7) == hash_keys([1], seed=7)
    array([False])
    """
    return hash_checked(as_keys(keys), seed)


def hash_checked(keys: Keys, seed: int) -> npt.NDArray[np.uint64]:
    """`hash_keys` of the result of `as_keys`."""
    words = np.empty(len(keys), np.uint64)
    if isinstance(keys, np.ndarray):
        hash_longs(keys, inner_seed(seed), words)
    else:
        hash_strings(*utf8(keys), inner_seed(seed), words)
    return words
