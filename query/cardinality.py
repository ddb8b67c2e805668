"""Estimates of answer sizes, from summaries only."""

import math

import numpy as np
from numpy.typing import NDArray

from promising.errors import UnknownName
from promising.index import SummaryIndex
from promising.index.sketches import Sketched, window_sketch
from promising.index.snapshot import Snapshot
from promising.index.summary_index import best_summary
from promising.query.bound import Bound
from promising.query.operators.operator import Guess
from promising.summaries.adt import BOUNDS
from promising.summaries.sizing import tail_point

PASS = 1 / 3  # assumed selectivity of a condition before any tuple is read


def candidates(bound: Bound, snapshots: list[Snapshot]) -> Guess:
    """Estimated tuples, or pairs with equal keys, in the window before conditions; 95 % confidence bounds."""
    if bound.constants is not None and bound.join is None:
        summary = best_summary(bound.sources[0].stream.summaries, bound.constants.attribute)
        if summary is not None:
            values = list(dict.fromkeys(bound.constants.values))
            found = summary.estimate(values, (snapshots[0].start, snapshots[0].end))
            return Guess(float(found.value.sum()), float(found.lower.sum()), float(found.upper.sum()))
    if bound.join is None:
        return snapshots[0].tuples
    a, b = (s.tuples for s in snapshots)
    most = Guess(a.value * b.value, 0.0, a.upper * b.upper)
    sketches = [_sketch(summary, snapshot) for summary, snapshot in zip(bound.join.summaries, snapshots, strict=True)]
    if bound.constants is not None or sketches[0] is None or sketches[1] is None:
        return most
    found_pairs = join_size(sketches[0], sketches[1])
    return most if found_pairs is None else _within(found_pairs, most.upper)


def answer_rows(bound: Bound, found: Guess) -> Guess:
    others = len(bound.predicates) - (bound.constants is not None)  # candidates are already restricted to the constants
    if not bound.predicates:
        return found
    return Guess(found.value * PASS ** min(others, 4), 0.0, found.upper)


def _within(guess: Guess, most: float) -> Guess:
    return Guess(*(min(max(x, 0.0), most) for x in guess))


def _sketch(summary: SummaryIndex | None, snapshot: Snapshot) -> Sketched | None:
    try:
        return None if summary is None else window_sketch(summary, (snapshot.start, snapshot.end))
    except UnknownName:  # dropped concurrently
        return None


def join_size(a: Sketched, b: Sketched) -> Guess | None:
    """Estimated pairs with equal keys: the inner product of two sketches, None if their shapes differ.

    The lower bound counts tuples surely in both windows, the upper bound those that may be. Per row and bucket the
    variance is at most (F2 F2' + J²) / width; the median of the rows errs by more than sqrt(variance / p) with
    probability at most 1 - `BOUNDS` (see `CountSketch.inner`).
    """
    if a.inside.shape != b.inside.shape:
        return None
    value, _ = _inner(a.inside + a.share * a.across, b.inside + b.share * b.across)
    low, reach = _inner(a.inside, b.inside)
    high, far = _inner(a.inside + a.across, b.inside + b.across)
    return Guess(min(max(value, low - reach), high + far), max(low - reach, 0.0), high + far)


def _inner(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[float, float]:
    """The estimate and its error bound."""
    rows = np.einsum("brc,brc->br", a, b)
    squares = [np.einsum("brc,brc->br", x, x) for x in (a, b)]
    variance = float(((squares[0] * squares[1] + rows**2) / a.shape[2]).sum(axis=0).max())
    return float(np.median(rows.sum(axis=0))), math.sqrt(variance / tail_point(a.shape[1], 1 - BOUNDS))
