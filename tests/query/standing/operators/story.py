"""Random ticks of streams, and the step over them compared with what it stands for, worked out after each tick."""

import math
import random

import pyarrow.compute as pc

from promising.query.bound import RESULT
from promising.query.scalar.compiled import Compiled, apply, column
from promising.query.scalar.scope import Input
from promising.query.scalar.types import Kind
from promising.query.standing.deltas import Mode
from tests.query.standing.harness import Stream, View, col

MODES = list(Mode)
KINDS: dict[str, Kind] = {"k": "int", "x": "int", "y": "float", "s": "string"}
K0, K1 = col(0, "k"), col(1, "k")
X0, X1 = col(0, "x"), col(1, "x")


def less(a: Compiled, b: Compiled) -> Compiled:
    return apply("bool", (a, b), pc.less)


def result(name, kind="int"):
    return column(Input(RESULT, name, kind))


class Story:
    """Random ticks of two streams: bursts, silence, late tuples, equal times, duplicates."""

    def __init__(self, seed: int, mode: Mode, windows=(40, 25), keys=4) -> None:
        self.random = random.Random(seed)
        self.mode = mode
        self.keys = keys
        self.streams = [Stream(KINDS, window) for window in windows]
        self.leaves = [stream.leaf(mode, place) for place, stream in enumerate(self.streams)]
        self.born: list[list[int]] = [[] for _ in windows]
        self.now = 1000

    def row(self, ts):
        r = self.random
        key = None if r.random() < 0.08 else r.randrange(self.keys)
        y = (
            r.choice([None, math.nan, math.inf, -math.inf])
            if r.random() < 0.05
            else r.choice([0.5, -1.25, 1e15, 3.0, 1e-9])
        )
        return (ts, key, r.choice([None, 1, 2, 3, -7]), y, r.choice([None, "", "a", "bee"]))

    def arrivals(self):
        r = self.random
        previous = self.now
        self.now += r.choice([0, 0, 1, 3, 10, 60 if r.random() < 0.2 else 5])
        for stream, leaf, born in zip(self.streams, self.leaves, self.born, strict=True):
            if r.random() < 0.25:
                continue
            rows = []
            for _ in range(r.choice([0, 1, 2, 6])):
                late = r.random() < 0.3
                ts = r.randint(previous - 45, previous) if late else r.randint(previous, self.now)
                rows.append(self.row(ts))
                if r.random() < 0.2:
                    rows.append(rows[-1])
            stream.add(leaf, rows)
            born.extend([self.now] * len(rows))

    def live(self, number, time):
        """Values of the live tuples of a stream."""
        stream, born = self.streams[number], self.born[number]
        return [stream.values[i] for i in stream.live(time, born)]

    def run(self, node, truth, ticks=60, partly=False):
        """Tick, and compare where the time is known."""
        view = View(node)
        for _ in range(ticks):
            self.arrivals()
            deltas = view.tick(self.now)
            if self.mode is not Mode.ITA or deltas.time is not None:
                expected = truth(view.time)
                assert view.shown() <= expected if partly else view.shown() == expected, (view.number, view.time)
        self.now += 1000
        if self.mode is not Mode.ITA:
            view.tick(self.now)
            assert view.shown() == truth(self.now)
        return view


def joined(story, now, residual):
    left, right = story.live(0, now), story.live(1, now)
    for a in left:
        for b in right:
            if a[0] is not None and a[0] == b[0] and (not residual or (None not in (a[1], b[1]) and a[1] < b[1])):
                yield a, b
