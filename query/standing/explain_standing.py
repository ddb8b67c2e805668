"""EXPLAIN CREATE CONTINUOUS QUERY: the plan in words, how the results of each step expire, and what stores them."""

import math
from dataclasses import replace

from promising.index.regions import Guess
from promising.query.answers import Explanation
from promising.query.explain import SCHEMA
from promising.query.standing import plan
from promising.query.standing.aggregate_view import Aggregating, view_of
from promising.query.standing.deltas import Mode
from promising.query.standing.labels import Edge, labelled
from promising.query.standing.views import Selecting


def explain_standing(standing: plan.Standing, mode: Mode = Mode.PIGGYBACK) -> Explanation:
    """The plan of a query. Creates nothing; raises what creation would."""
    edges = labelled(standing, mode)
    if isinstance(view := view_of(standing, mode), Selecting | Aggregating):
        edges[0] = replace(edges[0], store=view.store)
    steps = [_line(edge) for edge in edges]
    lines = ["  " * edge.depth + step for edge, step in zip(edges, steps, strict=True)]
    if standing.preference is not None:
        ranked = {"DESC": "keys with most pairs first", "ASC": "rarest keys first", "WEIGHTED": "drawn at random"}
        lines.append(f"when there is more to do than time: {ranked[standing.preference.direction]}")
    if standing.budget is not None:
        lines.append(f"CPU time: {standing.budget / 1e3:g} ms of each second")
    lines += [f"warning: {warning}" for warning in standing.warnings]
    # The cardinality of a view is not estimated.
    return Explanation(steps, Guess(0.0, 0.0, math.inf), standing.warnings, SCHEMA.empty_table(), lines=lines)


def _line(edge: Edge) -> str:
    where = "" if not edge.store else f", {'view' if edge.depth == 0 else 'stored'}: {edge.store}"
    return f"{edge.text} [{edge.label}{where}]{': ' if edge.note else ''}{edge.note}"
