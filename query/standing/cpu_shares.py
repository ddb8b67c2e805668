"""CPU scheduling of a tick: divides the time among standing queries that may defer work, by budget and weight."""

from collections.abc import Callable

from promising.query.standing.views import Planned, View
from promising.summaries.kernels.clock import work_ns

SAVED = 1.0  # seconds of unused budget that a query may accumulate


def share_out(views: list[Planned], left: int | None, elapsed: float, tick: int) -> None:
    """Run each view for its share of the remaining `left` nanoseconds; None: without limit.

    Views with the least CPU time per weight run first, and unused time goes to the others. Each view also accrues its
    budget for the `elapsed` seconds since the last tick.
    """
    for view in views:
        budget = view.standing.budget
        if budget is not None:
            view.grant = int(min(view.grant + budget * 1e3 * elapsed, budget * 1e3 * SAVED))
    views = sorted(views, key=lambda v: v.cpu / _weight(v))
    weights = sum(_weight(v) for v in views)
    spent = 0
    for view in views:
        share = None if left is None else int(max(0, left - spent) * _weight(view) / weights)
        weights -= _weight(view)
        spent += _run(view, view.step, share, tick)
    while left is not None and spent < left:  # a share too small for one view may suffice for another
        waiting = [v for v in views if v.pending and v.failed is None and _granted(v)]
        if not waiting:
            return
        share = max((left - spent) // len(waiting), 100_000)
        for view in waiting:
            spent += _run(view, view.more, share, tick)


def _run(view: Planned, step: Callable[[int, Callable[[], bool]], None], share: int | None, tick: int) -> int:
    """Run a view within its limits; returns the nanoseconds spent."""
    most = share
    if view.standing.budget is not None:
        most = view.grant if share is None else min(share, view.grant)
    began = work_ns()
    step(tick, lambda: most is None or work_ns() - began < most)
    cost = work_ns() - began
    if view.standing.budget is not None:
        view.grant = max(view.grant - cost, -int(view.standing.budget * 1e3 * SAVED))
    return cost


def _weight(view: View) -> float:
    return float(view.standing.budget or 1_000_000)


def _granted(view: View) -> bool:
    return view.standing.budget is None or view.grant > 0
