"""What travels between the steps of a standing plan: results that came and went, and the time."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

POS = 1
"""A result came."""
NEG_EXP = -1
"""A result went because its time is over; only `nta` says so."""
NEG_INV = -2
"""A result went before its time."""

Ids = NDArray[np.int64]
"""Results by the tuples they are made of: a row each, a column per leaf."""
Times = NDArray[np.int64]
Kinds = NDArray[np.int8]


class Mode(StrEnum):
    """How steps learn that time goes on; `piggyback` is the one to use, the others are there to be compared."""

    ITA = "ita"
    """Results that come bring the time; where none come, nothing ends."""
    NTA = "nta"
    """Each result that ends is told of, and undone step by step."""
    TIME = "time"
    """The time is told by messages of its own, where something ends."""
    PIGGYBACK = "piggyback"
    """The time rides on what is sent anyhow, and has a message of its own only where nothing is."""


@dataclass(frozen=True, slots=True)
class Deltas:
    """Changes of one edge in one tick.

    `time`: whatever ends at it or before has ended; None: nothing is said about the time.
    """

    ids: Ids
    ts: Times
    exp: Times
    kinds: Kinds
    time: int | None

    def __len__(self) -> int:
        return len(self.kinds)


def nothing(width: int, time: int | None = None) -> Deltas:
    """No changes, at most a time."""
    return Deltas(
        np.empty((0, width), np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8), time
    )


def joined(parts: list[Deltas], time: int | None) -> Deltas:
    """Changes one after the other."""
    if len(parts) == 1:
        only = parts[0]
        return Deltas(only.ids, only.ts, only.exp, only.kinds, time)
    return Deltas(
        np.concatenate([p.ids for p in parts]),
        np.concatenate([p.ts for p in parts]),
        np.concatenate([p.exp for p in parts]),
        np.concatenate([p.kinds for p in parts]),
        time,
    )


@dataclass(slots=True)
class Counters:
    """What a plan has done, for comparisons that do not depend on the machine."""

    positives: int = 0
    """Results handed on from step to step."""
    negatives: int = 0
    """Retractions handed on, of either kind."""
    times: int = 0
    """Time messages of their own: one for each distinct end that is told of."""
    probes: int = 0
    """Entries looked at on the other side of a join."""
    expiry_probes: int = 0
    """Those of them because something ended."""
