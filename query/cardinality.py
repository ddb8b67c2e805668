"""Estimates of answer sizes, from summaries only."""

from promising.index.snapshot import Snapshot
from promising.index.summary_index import best_summary
from promising.query.bound import Bound
from promising.query.join_cardinality import sketched
from promising.query.operators.operator import Guess

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
    return sketched(bound, snapshots)


def answer_rows(bound: Bound, found: Guess) -> Guess:
    others = len(bound.predicates) - (bound.constants is not None)  # candidates are already restricted to the constants
    if not bound.predicates:
        return found
    return Guess(found.value * PASS ** min(others, 4), 0.0, found.upper)
