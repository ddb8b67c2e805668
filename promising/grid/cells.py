"""The value x time grid of a summary in numbers: the basis of every picture."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from promising.errors import BadQuestion
from promising.index.instants import BEGINNING
from promising.index.regions import Description, ZoneInfo
from promising.index.time_text import UNITS

REASONS = {
    "error": "its error grew too large",
    "behaviour": "behaviour changed",
    "maxlength": "it was full",
    "boundary": "end of a T_1 block",
    "open": "still open",
    "late": "late tuples, waiting",
    "ahead": "tuples ahead of the watermark",
    "calendar": "fixed length, by the calendar",
}
"""Why a zone ends where it does."""


@dataclass(frozen=True)
class Stretch:
    """A zone and its interval in the drawing. `shared`: other zones have tuples of that time too."""

    zone: ZoneInfo
    start: int
    end: int
    shared: bool


def stretches(zones: list[ZoneInfo]) -> list[Stretch]:
    """The zones of one granularity by time.

    Zones cut by arrival touch: tuples of one instant may be in two of them. An overlap of less than 1 % of the earlier
    zone is drawn as a common border; a greater one is due to late tuples.
    """
    out: list[Stretch] = []
    reached = BEGINNING
    for zone in sorted(zones, key=lambda z: (z.start, z.zone)):
        shared = zone.reason == "late" or zone.start < reached
        if shared and zone.reason != "late" and reached - zone.start <= (out[-1].end - out[-1].start) // 100:
            out[-1] = Stretch(out[-1].zone, out[-1].start, zone.start, out[-1].shared)
            shared = False
        out.append(Stretch(zone, zone.start, zone.end, shared))
        reached = max(reached, zone.end)
    return [s for s in out if s.end > s.start]


def by_granularity(told: Description) -> dict[int, list[Stretch]]:
    """The stretches of each granularity that has zones, the oldest granularity first.

    Raises `BadQuestion` if there is nothing to draw: no tuples, no zones (`STRUCTURE none`), or no cells.
    """
    if not told.zones:
        raise BadQuestion(f"summary {told.name!r} has no zones to draw ({told.tuples} tuples, {told.structure})")
    if told.cells is None:
        raise BadQuestion(f"the description of {told.name!r} has no cells to draw; ask for it with cells=True")
    return {
        g: stretches([z for z in told.zones if z.granularity == g])
        for g in range(len(told.spans), 0, -1)
        if any(z.granularity == g for z in told.zones)
    }


def rate_unit(told: Description) -> str:
    """The unit of time for densities: the largest that is not longer than `T_1`."""
    return next((name for name, length in UNITS.items() if told.spans[0] >= length), "second")


def densities(told: Description, zones: list[Stretch], unit: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges in time, and [bucket][stretch]: tuples per unit of time, summed over the zones that share a stretch."""
    assert told.cells is not None
    rows = {(z.granularity, z.zone): cells for z, cells in zip(told.zones, told.cells, strict=True)}
    edges = np.unique([t for s in zones for t in (s.start, s.end)]).astype(np.int64)
    grid = np.zeros((told.cells.shape[1], len(edges) - 1))
    for s in zones:
        first, last = np.searchsorted(edges, (s.start, s.end))
        grid[:, first:last] += (rows[s.zone.granularity, s.zone.zone] * unit / (s.end - s.start))[:, None]
    return edges, grid


ADDED = ("sum", "count")
"""Figures that are shown as densities; others but least and greatest are means, weighted by tuples."""


def figures(
    told: Description, zones: list[Stretch], borders: NDArray[np.int64], rows: int, unit: int
) -> NDArray[np.float64]:
    """[row][stretch between borders]: the figure of equal groups of buckets; NaN where there is none."""
    assert told.cells is not None
    assert told.shown is not None
    at = {(z.granularity, z.zone): i for i, z in enumerate(told.zones)}
    places = [at[s.zone.granularity, s.zone.zone] for s in zones]
    weights = told.cells[places].astype(np.float64).T
    shown = np.broadcast_to(told.shown[places].T, weights.shape)
    known = ~np.isnan(shown) & (weights > 0)
    starts, ends = (
        np.array([[t] for t in side], np.int64) for side in ([s.start for s in zones], [s.end for s in zones])
    )
    shared = np.minimum(ends, borders[1:]) - np.maximum(starts, borders[:-1])
    share = np.maximum(shared, 0) / (ends - starts)  # [stretch of a zone][stretch between borders]

    def summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
        out: NDArray[np.float64] = np.where(known, values, 0.0).reshape(rows, -1, len(zones)).sum(axis=1)
        return out

    figure = told.show.partition("(")[0]
    if figure in ("min", "max"):
        edge, none = (np.minimum, np.inf) if figure == "min" else (np.maximum, -np.inf)
        best = edge.reduce(np.where(known, shown, none).reshape(rows, -1, len(zones)), axis=1)
        out = np.full((rows, share.shape[1]), none)
        for i in range(len(zones)):
            there = share[i] > 0
            out[:, there] = edge(out[:, there], best[:, i : i + 1])
        return np.where(np.isfinite(out), out, np.nan)
    weight = summed(weights) @ share
    total = summed(shown if figure in ADDED else np.where(known, shown, 0.0) * weights) @ share
    by = np.diff(borders) / unit if figure in ADDED else weight
    return np.where(weight > 0, total / np.where(by > 0, by, 1.0), np.nan)


def figure_label(told: Description) -> str:
    """What a shade says of the figure that is shown."""
    return f"{told.show} a {rate_unit(told)}" if told.show.partition("(")[0] in ADDED else told.show
