"""What peers with numpy use to add up their rows, after the clock has stopped."""

from typing import Any

import numpy as np

from benchmarks.peers.protocol import CHECK, FIRST, SECOND

IN_SQL = f"({{}} * {FIRST} + {{}} * {SECOND}) % {CHECK}"
"""What a row adds, for engines that add up inside."""


def checksum(first: Any, second: Any) -> int:
    """Of rows of two numbers, in any order; `first` may be one number for all."""
    x, y = (np.asarray(one, np.int64) for one in (first, second))
    return int(((x * FIRST + y * SECOND) % CHECK).sum())
