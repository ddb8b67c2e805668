"""Streams made by hand, a view that believes what steps say, and the truth worked out from scratch."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from promising.query.scalar.compiled import Compiled, column
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW, Kind
from promising.query.standing.deltas import NEG_EXP, POS, Counters, Deltas, Mode
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.step import Step, Tick


@dataclass
class Stream:
    """Tuples (time, values) by their number."""

    kinds: dict[str, Kind]
    window: int
    times: list[int] = field(default_factory=list)
    values: list[tuple[Any, ...]] = field(default_factory=list)

    def take(self, name, ids):
        at = list(self.kinds).index(name)
        return pa.array([self.values[i][at] for i in ids.tolist()], ARROW[self.kinds[name]])

    def leaf(self, mode, place=0):
        return Leaf(self, self.window, mode, place)

    def add(self, leaf, rows):
        """Rows arrive: (time, values...)."""
        first = len(self.times)
        self.times += [row[0] for row in rows]
        self.values += [tuple(row[1:]) for row in rows]
        leaf.arrive(np.arange(first, len(self.times)), np.array([row[0] for row in rows], np.int64))

    def live(self, now, born):
        """Numbers of the tuples that are live, given the time at which each was taken in."""
        return [i for i, ts in enumerate(self.times) if ts + self.window > max(now, born[i])]


def col(source: int, name: str, kind: Kind = "int") -> Compiled:
    return column(Input(source, name, kind))


class View:
    """What is shown by what a step says; it complains about anything that makes no sense."""

    def __init__(self, node: Step) -> None:
        self.node = node
        self.results: dict[tuple[int, ...], int] = {}
        self.rows: dict[tuple[int, ...], tuple[Any, ...]] = {}
        self.counters = Counters()
        self.time: int | None = None
        self.number = 0
        self.inversions = 0

    def tick(self, now: int, allowance=None) -> Deltas:
        self.number += 1
        deltas = self.node.step(Tick(now, self.number, self.counters, allowance=allowance))
        nta = self.node.mode is Mode.NTA
        if self.node.mode is not Mode.ITA:
            assert deltas.time in (now, None)
            self.time = now
        elif deltas.time is not None:
            assert self.time is None or deltas.time >= self.time
            self.time = deltas.time
        assert deltas.ids.shape == (len(deltas), self.node.width)
        if len(deltas):
            assert deltas.time is not None
        ended = [ids for ids, exp in self.results.items() if self.time is not None and exp <= self.time]
        if not nta:
            assert not ended or deltas.time is not None or self.node.mode is Mode.ITA, "an end that was not told"
            for ids in ended:
                del self.results[ids]
        else:
            told = sorted(tuple(row) for row in deltas.ids[deltas.kinds == NEG_EXP].tolist())
            assert told == sorted(ended)
        came = []
        for row, exp, kind in zip(deltas.ids.tolist(), deltas.exp.tolist(), deltas.kinds.tolist(), strict=True):
            ids = tuple(row)
            if kind == POS:
                assert exp > self.time
                assert ids not in self.results
                self.results[ids] = exp
                came.append(ids)
            else:
                assert self.results.pop(ids) == exp
                self.inversions += kind != NEG_EXP
        came = [ids for ids in came if ids in self.results]
        if came:
            columns = self.node.values(np.array(came, np.int64).reshape(-1, self.node.width))
            for ids, *values in zip(came, *(c.to_pylist() for c in columns), strict=True):
                self.rows[ids] = tuple(values)
        return deltas

    def shown(self) -> Counter[tuple[Any, ...]]:
        """The bag of rows."""
        return Counter(self.rows[ids] for ids in self.results)
