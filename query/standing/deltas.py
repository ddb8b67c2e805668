"""The messages between the steps of a standing plan: inserted and retracted results, and the time."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

POS = 1  # insertion of a result
NEG_EXP = -1  # expiry of a result; only `nta` sends it
NEG_INV = -2  # retraction of a result before its expiry

Ids = NDArray[np.int64]  # results by the tuples they consist of: one row each, one column per leaf
Times = NDArray[np.int64]
Kinds = NDArray[np.int8]


class Mode(StrEnum):
    """How steps learn that time advances. Use `piggyback`; the others exist for comparison."""

    ITA = "ita"  # new results carry the time; without any, nothing expires
    NTA = "nta"  # each expiry is sent as a retraction and undone step by step
    TIME = "time"  # separate messages carry the time wherever something expires
    PIGGYBACK = "piggyback"  # results carry the time; a separate message is sent only where no result can carry it


@dataclass(frozen=True, slots=True)
class Deltas:
    """Changes on one edge in one tick. Everything that ends at or before `time` has expired; None: time unknown."""

    ids: Ids
    ts: Times
    exp: Times
    kinds: Kinds
    time: int | None

    def __len__(self) -> int:
        return len(self.kinds)


def nothing(width: int, time: int | None = None) -> Deltas:
    return Deltas(
        np.empty((0, width), np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8), time
    )


def joined(parts: list[Deltas], time: int | None) -> Deltas:
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
    """Work done by a plan, as machine-independent counts."""

    positives: int = 0  # results passed between steps
    negatives: int = 0  # retractions of either kind passed between steps
    times: int = 0  # separate time messages: one for each distinct expiry reported
    probes: int = 0  # entries visited on the other side of a join
    expiry_probes: int = 0  # of these, visited because something expired
