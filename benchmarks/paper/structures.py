"""The paper's four structures at work: T1 none, T2 time, T3 grid, T4 adaptive. What Figures 9 and 10 measure.

Two streams are played back in batches. Each batch is put into its stream, and its keys look for partners in the window
of the other, for as long as the time between arrivals allows. There are two ways to look:

- *cells*, the paper's: the regions of each key, ranked by their estimate, are visited best first, and the tuples of
  each are compared with the key one by one. A cell that several keys of the batch need is fetched once. T1 has one
  region, the window.
- *postings*, ours: the rows of a key are followed from one to the next. T1 has none and reads the window.

Time is CPU time of the thread, and the clock is asked after every cell, or every few keys. By cells there is another
measure, which no machine changes: how many tuples may be compared (`play_compared`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.joins import MINUTE
from benchmarks.paper.logs import Columns, Log
from benchmarks.paper.simple_shj import Ints, Rows
from promising.index import Stream
from promising.index.summary_index import SummaryIndex
from promising.summaries.kernels.jit import kernel

STRUCTURES = {"T1": "none", "T2": "time", "T3": "grid", "T4": "adaptive"}
SCHEMA = {"store_id": "int", "transaction_id": "int", "ts": "timestamp", "item_id": "int", "price": "float"}
FILL = 1 << 14
PROBES = 8
"""Keys that are followed between two looks at the clock."""
NEVER = 1 << 62

Clock = Callable[[], int]
Way = Callable[["Half", Ints, tuple[int, int], int, Clock], int]
"""Looks in a half for partners of keys in a window until a time, and returns how many it found."""


@kernel("int64(int64[::1], int32[::1], int64, int32[::1])")
def compare(column: Ints, rows: Rows, key: int, out: Rows) -> int:
    """The rows that have the key, into `out`; returns how many."""
    found = 0
    for i in range(rows.size):
        if column[rows[i]] == key:
            out[found] = rows[i]
            found += 1
    return found


class Half:
    """One stream with one summary. Rows of its log are the rows of `columns`: nothing ages out while it plays."""

    def __init__(self, name: str, columns: Columns, structure: str) -> None:
        rows = len(columns["ts"])
        self.columns = columns
        self.stream = Stream(name, SCHEMA, time="ts", clock=lambda: 1 << 60, max_tuples=max(rows, 1 << 18))
        self.summary: SummaryIndex = self.stream.create_summary(
            "items", key="item_id", granularity=MINUTE, collapse=(4, 3), structure=structure
        )
        self.out: Rows = np.zeros(rows, np.int32)
        self.compared = 0
        """Tuples that were compared with a key, one by one."""

    def append(self, first: int, last: int) -> None:
        self.stream.append({name: column[first:last] for name, column in self.columns.items()})


def cells(half: Half, keys: Ints, window: tuple[int, int], until: int, clock: Clock) -> int:
    """Regions by estimate, best first; their tuples compared one by one."""
    found = half.summary.regions(keys, window)
    order = np.argsort(-found.estimate, kind="stable").tolist()
    places = list(zip(found.granularity.tolist(), found.zone.tolist(), found.bucket.tolist(), strict=True))
    zoned = half.summary.structure != "none"  # without structure a region is the window, and a visit must be told so
    inside = ((found.start >= window[0]) & (found.end <= window[1]) & zoned).tolist()
    of, column, total = found.key.tolist(), half.columns["item_id"], 0
    fetched: dict[tuple[int, int, int], NDArray[np.int32]] = {}
    for at in order:
        if clock() >= until:
            break
        rows = fetched.get(places[at])
        if rows is None:
            rows = fetched[places[at]] = half.summary.visit(places[at], None if inside[at] else window)
        total += compare(column, rows, int(keys[of[at]]), half.out)
        half.compared += len(rows)
    return total


def postings(half: Half, keys: Ints, window: tuple[int, int], until: int, clock: Clock) -> int:
    """Exact postings, a few keys at a time. Without structure all keys at once: one reading of the window for all."""
    step = len(keys) if half.summary.structure == "none" else PROBES
    total = 0
    for first in range(0, len(keys), step):
        if clock() >= until:
            break
        total += len(half.summary.probe(keys[first : first + step], window))
    return total


WAYS: dict[str, Way] = {"cells": cells, "postings": postings}


@dataclass(frozen=True)
class Played:
    """CPU nanoseconds for putting in and for looking, and how many were allowed; tuples put in, pairs found."""

    ins: int
    hit: int
    allowed: int | None
    inputs: int
    outputs: int

    @property
    def t_ins(self) -> float:
        """Microseconds a tuple."""
        return self.ins / self.inputs / 1e3

    @property
    def t_hit(self) -> float:
        """Microseconds a pair."""
        return self.hit / max(self.outputs, 1) / 1e3

    @property
    def per_input(self) -> float:
        """Pairs a tuple. Whoever took more time than there was has only the part of them that the time was for."""
        spent = self.ins + self.hit
        part = 1.0 if self.allowed is None or spent <= self.allowed else self.allowed / spent
        return self.outputs * part / self.inputs


class Player:
    """Both streams of a log with one structure, filled up to a place, to be played on from there."""

    def __init__(self, log: Log, structure: str, filled: int) -> None:
        self.log = log
        self.halves = Half("a", log.a, structure), Half("b", log.b, structure)
        began = time.thread_time_ns()
        for half in self.halves:
            for first in range(0, filled, FILL):
                half.append(first, min(first + FILL, filled))
        self.fill_us = (time.thread_time_ns() - began) / 1e3 / (2 * filled)
        """Microseconds to put a tuple in, in batches of FILL."""
        self.at = filled

    def play(
        self, batch: int, batches: int, window: int, way: str, tau_us: float | None, clock: Clock = time.thread_time_ns
    ) -> Played:
        """So many batches of either stream, over a window in microseconds.

        tau_us: time that each tuple has, until the next arrives, for putting in and looking; None looks to the end.
        """
        look = WAYS[way]
        ins = hit = outputs = 0
        for first in range(self.at, self.at + batch * batches, batch):
            for side in (0, 1):
                half, other = self.halves[side], self.halves[1 - side]
                keys = half.columns["item_id"][first : first + batch]
                now = int(half.columns["ts"][first + batch - 1])
                began = clock()
                half.append(first, first + batch)
                put = clock()
                until = NEVER if tau_us is None else began + int(batch * tau_us * 1e3)
                outputs += look(other, keys, (now - window + 1, now + 1), until, clock)
                hit += clock() - put
                ins += put - began
        self.at += batch * batches
        inputs = 2 * batch * batches
        return Played(ins, hit, None if tau_us is None else int(inputs * tau_us * 1e3), inputs, outputs)


def play_compared(player: Player, batch: int, batches: int, window: int, tuples: float) -> Played:
    """`play` by cells, where what a tuple may take is so many tuples compared: the same on every machine."""

    def clock() -> int:
        return sum(half.compared for half in player.halves)

    return player.play(batch, batches, window, "cells", tuples / 1e3, clock)


def by_equation(t_ins: float, t_hit: float, tau_us: float) -> float:
    """The paper's equation 1: output tuples per input tuple."""
    return max(tau_us - t_ins, 0.0) / t_hit
