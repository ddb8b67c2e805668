"""Numbers that describe what zones measured: for pictures and stories. Answers come from `measure_reading`."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.errors import BadMeasure, UnknownMeasure
from promising.index.measures import Kinds, Measures, Rows, logged
from promising.index.regions import ZoneInfo
from promising.index.summary import SummaryState
from promising.index.unindexed import BareState
from promising.summaries.cells import CellKind, Measure

Floats = NDArray[np.float64]


def figure_of(name: str, kinds: Kinds, text: str) -> tuple[CellKind[Any], str]:
    """The kind and the figure of a text like "avg(price)"; else `UnknownMeasure`. name: of the summary."""
    there = {f"{figure}({kind.measure.column})".lower(): (kind, figure) for kind in kinds for figure in kind.figures}
    try:
        asked = Measure.read(text)
        found = there.get(f"{asked.kind}({asked.column})".lower())
    except BadMeasure:
        found = None
    if found is None or asked.arguments:
        shown = ", ".join(figure_text(*pair) for pair in there.values())
        more = f"there are {shown}" if shown else "it measures nothing that has figures, such as MOMENTS(column)"
        raise UnknownMeasure(f"summary {name!r} has no {text!r} to show; {more}")
    return found


def figure_text(kind: CellKind[Any], figure: str) -> str:
    """A figure as `figure_of` reads it."""
    return str(Measure(figure, kind.measure.column))


def zone_figures(state: SummaryState | BareState, kind: CellKind[Any], figure: str) -> Floats:
    """A figure of every zone, in the order of `describe`, by bucket if the kind has it so; NaN where there is none."""
    every = [kind.figure(found, figure) for found in _states(state, kind)]
    return np.stack(every) if every else np.empty((0, 0))


def _states(state: SummaryState | BareState, kind: CellKind[Any]) -> Iterator[Any]:
    """Those of sealed zones, and those that unsealed ones would have."""
    if isinstance(state, BareState):
        return
    at, fine = state.measures.kinds.index(kind), state.fine
    for block in fine.blocks.values():
        for zone in block.zones:
            yield zone.measured.states[at]
        if block.aside:
            yield _built(state, kind, block.waiting()[1])
    for ahead in fine.ahead.zones():
        yield _built(state, kind, ahead.rows)
    if len(fine.open_rows):
        yield _built(state, kind, fine.open_rows)
    for zones in state.coarse.levels.values():
        for coarse in zones.values():
            yield coarse.measured.states[at]


def _built(state: SummaryState, kind: CellKind[Any], rows: Rows) -> Any:
    measures = Measures((kind,), state.identity.sizes.buckets)
    return measures.built(logged(state.log, rows, state.hashes(rows))).states[0]


def told_measures(state: SummaryState, zones: Sequence[ZoneInfo], zone: ZoneInfo) -> tuple[str, ...]:
    """What a zone measured, a line for each measure. zones: all, as in `describe`."""
    at = zones.index(zone)
    return tuple(_line(kind, next(islice(_states(state, kind), at, None))) for kind in state.measures.kinds)


def _line(kind: CellKind[Any], state: Any) -> str:
    whole = kind.whole(state)
    figures = ((name, float(kind.figure(whole, name)[0])) for name in kind.figures)
    said = ", ".join(f"{name} {'none' if np.isnan(value) else format(value, ',.6g')}" for name, value in figures)
    return f"{kind.measure.sql}: {said}" if said else kind.measure.sql
