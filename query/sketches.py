"""What the sketches of zones answer of a query: approximate aggregates of a window, with bounds.

Zones wholly inside the window, and inside one bucket of GROUP BY time, count by their sketches; tuples at the edges and
in no sealed zone yet are added one by one. Other aggregates of the same query come from moments of the zones, exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import StorageError
from promising.index.measure_reading import WindowMeasure, bucket_measures, complete, window_measure
from promising.index.snapshot import Snapshot
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex
from promising.query.aggregate.accumulators import Absorbing
from promising.query.aggregate.aggregates import APPROXIMATE, Aggregate
from promising.query.aggregate.estimators import Estimated
from promising.query.aggregate.known import Known
from promising.query.bound import Bound
from promising.query.cells import keys_of, rises
from promising.query.column_ranges import limits
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.types import ARROW
from promising.summaries.cells import Measure
from promising.summaries.frequent import FrequentCells
from promising.summaries.moments import Moments

MOST_READ = 1 << 17  # tuples at the edges; more are not worth a sketch
CONFIDENCE = 0.95  # of the bounds of all sketches, at least
IN_BOUNDS = ("median", "quantile", "count_distinct")  # from sketches only if WITH ERROR allows it
MEASURED = {
    **dict.fromkeys(("approx_quantile", "median", "quantile"), "quantiles"),
    **dict.fromkeys(("approx_count_distinct", "count_distinct"), "distinct"),
    "approx_top_k": "frequent",
    **dict.fromkeys(("count", "sum", "avg", "min", "max"), "moments"),
}

Bounds = tuple[Any, Any, Any]
Parts = dict[int, WindowMeasure]
"""By bucket of time; without GROUP BY there is one, 0."""


@dataclass(frozen=True)
class Sketched:
    """The answer, of `tuples` of which `read` were in no sealed zone inside the window, or inside one of its `buckets`
    of time; from so many `zones`. buckets: None without GROUP BY."""

    found: Estimated
    tuples: int
    read: int
    zones: int
    buckets: int | None = None


def sketched(bound: Bound, snapshot: Snapshot) -> Sketched | None:
    """The answer of sketches about a snapshot just taken, under the same lock; None if they cannot give it."""
    target = bound.target
    if not bound.grouped or (target is not None and target.confidence > CONFIDENCE):
        return None
    allowed = APPROXIMATE if target is None else (*APPROXIMATE, *IN_BOUNDS)
    if not any(aggregate.function in allowed for aggregate in bound.aggregates):
        return None
    window = _window(bound, snapshot)
    if window is None or not _by_time(bound):
        return None
    measures: list[Parts | None] = []
    known: dict[Measure, Parts] = {}
    for aggregate, argument in zip(bound.aggregates, bound.arguments, strict=True):
        if argument is None:
            measures.append(None)
            continue
        if argument.column is None or (target is None and aggregate.function in IN_BOUNDS):
            return None
        measure = Measure(MEASURED[aggregate.function], argument.column.name)
        if measure not in known:
            made = _measured(snapshot, measure, window, bound.group_keys)
            if made is None:
                return None
            known[measure] = made
        measures.append(known[measure])
    first = next(iter(known.values()))
    tuples = {name: part.covered + len(part.rows) for name, part in first.items()}
    parts = [
        [_estimate(aggregate, None if found is None else found[name], tuples[name]) for name in first]
        for aggregate, found in zip(bound.aggregates, measures, strict=True)
    ]
    every = [part for column in parts for part in column]
    if any(part is None or (target is not None and _worst(part) > target.error) for part in every):
        return None
    value, lower, upper = (
        [
            pa.array([cast(Bounds, part)[at] for part in column], ARROW[aggregate.result_kind])
            for aggregate, column in zip(bound.aggregates, parts, strict=True)
        ]
        for at in range(3)
    )
    exact = all(part is not None and part[0] == part[1] == part[2] for part in every)
    keys = [pa.array(list(first), pa.int64()).view(ARROW["timestamp"]) for _ in bound.group_keys]
    found = Estimated(keys, value, lower, upper, np.array(list(tuples.values())), exact)
    read, zones = sum(len(part.rows) for part in first.values()), sum(part.zones for part in first.values())
    return Sketched(found, sum(tuples.values()), read, zones, len(first) if keys else None)


def _by_time(bound: Bound) -> bool:
    """Whether there is no group key, or only the time or the time truncated."""
    return not bound.group_keys or (len(bound.terms) == 1 and rises(bound, bound.terms[0]))


def _worst(bounds: Bounds) -> float:
    """The relative error of one aggregate, at most; infinite if a bound is unknown."""
    value, lower, upper = bounds
    if value == lower == upper:
        return 0.0
    if lower is None or upper is None or not value:
        return math.inf
    return float(max(upper - value, value - lower) / abs(value))


def _window(bound: Bound, snapshot: Snapshot) -> tuple[int, int] | None:
    """The window as it is narrowed by conditions on the time; None if there are others."""
    start, end = snapshot.start, snapshot.end
    for limit in limits(bound):
        if limit is None or limit.name != snapshot.stream.schema.time:
            return None
        if limit.low is not None:
            start = max(start, int(limit.low) + limit.open)
        if limit.high is not None:
            end = min(end, int(limit.high) + (not limit.open))
    return start, max(start, end)


def _measured(snapshot: Snapshot, measure: Measure, window: tuple[int, int], keys: Sequence[Compiled]) -> Parts | None:
    """One measure of the window, by bucket of its only key, from a summary that has it; what no zone covers is read."""
    for summary in snapshot.stream.summaries.values():
        if _serves(summary, measure, snapshot):
            try:
                found = _parts(summary, measure, window, keys)
                for part in (found or {}).values():
                    complete(summary, part)
            except StorageError:
                return None  # reading the tuples reports it
            return found
    return None


def _parts(summary: SummaryIndex, measure: Measure, window: tuple[int, int], keys: Sequence[Compiled]) -> Parts | None:
    if not keys:
        found = window_measure(summary, measure, window)
        return {0: found} if found.zones and len(found.rows) <= MOST_READ else None

    def bucket(times: NDArray[np.int64]) -> NDArray[np.int64]:
        named: NDArray[np.int64] = keys_of(keys[0], times).cast(pa.int64()).to_numpy()
        return named

    return bucket_measures(summary, measure, window, bucket, MOST_READ)


def _serves(summary: SummaryIndex, measure: Measure, snapshot: Snapshot) -> bool:
    state = summary.state
    measures = any(kind.measure == measure for kind in summary.kinds)
    return measures and isinstance(state, SummaryState) and state.oldest <= snapshot.start


def _estimate(aggregate: Aggregate, found: WindowMeasure | None, tuples: int) -> Bounds | None:
    """Value and bounds of one aggregate; None if the sketch does not know it."""
    if found is None:
        return tuples, tuples, tuples
    if MEASURED[aggregate.function] == "quantiles":
        return _quantile(found, aggregate.rank)
    if MEASURED[aggregate.function] == "distinct":
        estimate = found.kind.estimate(found.state, 0)
        return int(estimate.value), int(estimate.lower), int(estimate.upper)
    if aggregate.function == "approx_top_k":
        return _top(found, int(aggregate.at or 0))
    one = Moments(1, found.state.kind)
    one.merge(found.state, np.zeros(len(found.state), np.int32))
    accumulator = aggregate.accumulator(keyed=False, exact=True)
    cast(Absorbing, accumulator).absorb(Known.of(one))
    value = accumulator.values(1)[0].as_py()
    return value, value, value


def _quantile(found: WindowMeasure, at: float) -> Bounds:
    """Between the values at two neighbouring ranks, as the exact quantile; a bound that is no number is unknown."""
    values = found.state.summaries[0].total + int(found.state.apart[0])
    if not values:
        return None, None, None
    place = at * (values - 1)
    below = math.floor(place)
    share = place - below
    low, high = (
        found.kind.estimate(found.state, 0, (min(rank, values - 1) + 0.5) / values) for rank in (below, below + 1)
    )
    high = high if share else low
    between = low.value if share == 0 or low.value == high.value else low.value * (1 - share) + high.value * share
    return between, _known(low.lower), _known(high.upper)


def _known(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _top(found: WindowMeasure, most: int) -> Bounds | None:
    """The values of the greatest counts; None if the sketch has lost some that may belong to them."""
    if found.state.apart[0] or (found.state.summaries[0].total and not found.state.summaries[0].top(1)):
        return None
    assert isinstance(found.kind, FrequentCells)
    listed: list[dict[str, Any]] = [
        {"value": key, "count": int(e.value), "lower": int(e.lower), "upper": int(e.upper)}
        for key, e in found.kind.top(found.state, most)
    ]
    sure = all(one["lower"] == one["upper"] for one in listed)
    if not sure and len(listed) < most:
        return None
    listed.sort(key=lambda one: (-one["count"], one["value"]))
    return (listed, listed, listed) if listed and sure else (listed or None, None, None)
