"""The value x time grid of a summary for the terminal: a panel per granularity, the oldest on the left."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from promising.grid.cells import REASONS, Stretch, by_granularity, densities, figure_label, figures, rate_unit
from promising.index.regions import Description
from promising.index.time_text import SECOND, UNITS, instant, readable

PLAIN = ".:-=+*#%@"  # denser to the right; a space is no tuple
FULL = "█"
SHADES = ("#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")  # of viridis
LETTERS = {reason: reason[0] for reason in REASONS} | {"boundary": "t"}  # of T_1; b is behaviour
INK = {
    "e": "red",
    "b": "magenta",
    "m": "blue",
    "t": "yellow",
    "o": "green",
    "l": "cyan",
    "a": "bright_blue",
    "c": "default",
}
NARROWEST = 12  # columns of a panel


def grid_text(told: Description, width: int = 100, buckets: int = 16, colour: bool = True) -> "GridText":
    """The grid for rich to print: time across, value buckets up, at most `buckets` rows and `width` columns.

    A shade is the number of tuples per unit of time, on a logarithmic scale; or the figure that the description has,
    on a linear one. Below the heading of a granularity each
    zone has a letter for the reason of its end. Without colour the shades are characters.
    Raises `BadQuestion` if there is nothing to draw: no tuples, no zones (`STRUCTURE none`), or no cells.
    """
    return GridText(told, by_granularity(told), width, buckets, colour)


@dataclass
class _Panel:
    """A granularity in columns: `shown` is [row][column], the highest bucket on top; NaN where there is nothing."""

    granularity: int
    part: list[Stretch]
    columns: int
    shown: NDArray[np.float64]

    @property
    def span(self) -> tuple[int, int]:
        return self.part[0].start, max(s.end for s in self.part)

    def columns_of(self, s: Stretch) -> tuple[int, int]:
        """First and last column of a stretch. Adjacent stretches have adjacent columns."""
        start, end = self.span
        first, after = ((t - start) * 2 * self.columns // (end - start) + 1 >> 1 for t in (s.start, s.end))
        first = min(first, self.columns - 1)
        return first, max(first, after - 1)


@dataclass
class GridText:
    """See `grid_text`."""

    told: Description
    parts: dict[int, list[Stretch]]
    width: int
    buckets: int
    colour: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(min(self.width, options.max_width), self.colour and console.color_system is not None):
            yield from line.render(console)
            yield Segment.line()

    def lines(self, width: int, colour: bool) -> list[Text]:
        """The lines of the grid, none wider than `width`."""
        assert self.told.cells is not None
        held = self.told.cells.shape[1]
        rows = 1 << (max(1, min(self.buckets, held)).bit_length() - 1)  # buckets are a power of two
        axis = len(str(held - 1)) + 1
        room = max(width - axis, NARROWEST)
        most = max(1, (room + 1) // (NARROWEST + 1))
        panels = self._panels(rows, room, most)
        scale = _Scale(np.concatenate([p.shown.ravel() for p in panels]), colour, linear=self.told.shown is not None)
        out = [Text(line) for line in self._title(width)]
        hidden = sorted(set(self.parts) - {p.granularity for p in panels})
        if hidden:
            out.append(Text(_cut(f"too narrow for {', '.join(f'G_{g}' for g in hidden)}", width)))
        lead = " " * axis
        out.append(_beside(lead, [Text(_heading(self.told, p)) for p in panels], panels))
        out.append(_beside(lead, [_strip(p, colour, shared=False) for p in panels], panels))
        if any(s.shared for p in panels for s in p.part):
            out.append(_beside(lead, [_strip(p, colour, shared=True) for p in panels], panels))
        for row in range(rows):
            top = held - 1 - row * (held // rows)
            label = str(top if row == 0 else top - held // rows + 1) if row in (0, rows // 2 - 1, rows - 1) else ""
            out.append(_beside(f"{label:>{axis - 1}} ", [scale.row(p.shown[row]) for p in panels], panels))
        out.append(_beside(lead, [Text(_dates(p)) for p in panels], panels))
        return [*out, *self._legend(scale, held // rows, width)]

    def _panels(self, rows: int, room: int, most: int) -> list[_Panel]:
        """The finest granularities that fit, oldest first."""
        chosen = dict(list(self.parts.items())[-most:])
        unit = UNITS[rate_unit(self.told)]
        columns, rest = divmod(room - (len(chosen) - 1), len(chosen))
        out = []
        for place, (g, part) in enumerate(chosen.items()):
            mine = columns + (place < rest)
            if self.told.shown is None:
                edges, grid = densities(self.told, part, unit)
                summed = grid.reshape(rows, -1, grid.shape[1]).sum(axis=1)
                shown = _resampled(edges, summed, mine)
                shown[shown == 0.0] = np.nan
            else:
                start, end = part[0].start, max(s.end for s in part)
                borders = start + np.arange(mine + 1) * (end - start) // mine
                shown = figures(self.told, part, borders, rows, unit)
            out.append(_Panel(g, part, mine, shown[::-1]))
        return out

    def _title(self, width: int) -> list[str]:
        told = self.told
        first = f"{told.name} on {told.key}: {told.tuples:,} tuples of {told.keys:,} keys in {len(told.zones):,} zones"
        second = "" if told.watermark is None else f"watermark {instant(told.watermark)[:16]} UTC"
        second += f", {told.expired:,} tuples have expired" if told.expired else ""
        return [_cut(line, width) for line in (first, second) if line]

    def _legend(self, scale: "_Scale", summed: int, width: int) -> list[Text]:
        """The legend of shades and letters, wrapped."""
        cell = "cell" if summed == 1 else f"{summed} cells"
        what = f"tuples a {rate_unit(self.told)}" if self.told.shown is None else figure_label(self.told)
        words = [Text(f"{what} in {cell}: "), *scale.samples()]
        lines = _fill(words, width)
        seen = {z.reason for z in self.told.zones}
        words = [Text("a zone ends by ")]
        for reason, meaning in REASONS.items():
            if reason in seen:
                style = INK[LETTERS[reason]] if scale.colour else ""
                words.append(Text.assemble((LETTERS[reason], style), f" {reason} ({meaning})  "))
        return [*lines, *_fill(words, width)]


class _Scale:
    """Shades of values, by their logarithm unless `linear`. NaN and infinities have none."""

    def __init__(self, values: NDArray[np.float64], colour: bool, linear: bool) -> None:
        self.colour = colour
        self.steps = len(SHADES) if colour else len(PLAIN)
        found = values[np.isfinite(values)]
        least, most = (float(found.min()), float(found.max())) if len(found) else (0.0, 1.0)
        if linear:
            self.edges = np.linspace(least, max(most, least + abs(least) * 0.01 + 1e-300), self.steps + 1)
        else:
            self.edges = np.geomspace(least, max(most, least * 1.01), self.steps + 1)

    def level(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """0 for the lowest value; -1 for none."""
        found = np.clip(np.searchsorted(self.edges, values, side="right") - 1, 0, self.steps - 1)
        return np.where(np.isfinite(values), found, -1)

    def shade(self, level: int, width: int = 1) -> Text:
        if level < 0:
            return Text(" " * width)
        return Text(FULL * width, SHADES[level]) if self.colour else Text(PLAIN[level] * width)

    def row(self, values: NDArray[np.float64]) -> Text:
        out = Text()
        levels = self.level(values).tolist()
        at = 0
        while at < len(levels):  # runs of one shade
            stop = at
            while stop < len(levels) and levels[stop] == levels[at]:
                stop += 1
            out.append_text(self.shade(levels[at], stop - at))
            at = stop
        return out

    def samples(self) -> list[Text]:
        """Some shades, each with its lower limit."""
        levels = range(0, self.steps, 2) if self.steps > 4 else range(self.steps)
        return [Text.assemble(self.shade(i, 2), f" {_figure(float(self.edges[i]))}+  ") for i in levels]


def _figure(value: float) -> str:
    """
    >>> _figure(0.0123), _figure(3.21), _figure(1234.5), _figure(-20.4)
    ('0.012', '3.2', '1,234', '-20')
    """
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def _resampled(edges: NDArray[np.int64], grid: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """Densities on columns of equal time; the number of tuples is preserved."""
    # The cumulative count is linear between edges, so a column's count is the difference of two of its points.
    places = (edges - edges[0]).astype(np.float64)  # floats are too coarse for times since the epoch
    borders = places[-1] * np.arange(columns + 1) / columns
    mass = np.concatenate((np.zeros((len(grid), 1)), np.cumsum(grid * np.diff(places), axis=1)), axis=1)
    at = np.stack([np.interp(borders, places, line) for line in mass])
    out: NDArray[np.float64] = np.diff(at, axis=1) / np.diff(borders)
    return np.where(out > mass[:, -1:] / places[-1] * 1e-9, out, 0.0)  # rounding residue counts as zero


def _strip(panel: _Panel, colour: bool, shared: bool) -> Text:
    """A letter for each zone, in the middle of its columns; a bar where it ends."""
    cells = [" "] * panel.columns
    letters: dict[int, str] = {}
    for s in panel.part:
        if s.shared == shared:
            first, last = panel.columns_of(s)
            for at in range(first, last + 1):
                cells[at] = "-"
            if last > first:
                cells[last] = "|"
            letters[(first + last) // 2] = LETTERS[s.zone.reason]
    for at, letter in letters.items():
        cells[at] = letter
    out = Text()
    for cell in cells:
        out.append(cell, INK.get(cell, "dim") if colour else "")
    return out


def _heading(told: Description, panel: _Panel) -> str:
    g, n = panel.granularity, len(panel.part)
    zones = f"{n:,} zone" + ("s" if n != 1 else "")
    length = "cut by the stream" if g == 1 else f"of {readable(told.spans[g - 2])}"
    tries = (f"G_{g}: {zones} {length}", f"G_{g}: {zones}", f"G_{g}")
    return next((text for text in tries if len(text) <= panel.columns), tries[-1][: panel.columns])


def _dates(panel: _Panel) -> str:
    """Start and end of a panel, as precise as needed and as room allows."""
    start, end = panel.span
    days = (end - start) / UNITS["day"]
    form = "%d %b" if days >= 3 else "%d %b %H:%M" if days >= 1 / 12 else "%H:%M:%S"
    first, last = (_moment(t, form) for t in (start, end))
    space = panel.columns - len(first) - len(last)
    return first + " " * space + last if space > 0 else first[: panel.columns]


def _moment(time: int, form: str) -> str:
    moment = np.datetime64(time // SECOND, "s").item()
    return moment.strftime(form) if isinstance(moment, datetime) else instant(time)  # before the year 1, after 9999


def _beside(lead: str, texts: list[Text], panels: list[_Panel]) -> Text:
    """The panels' parts of one line, each on its own columns."""
    out = Text(lead)
    for place, (text, panel) in enumerate(zip(texts, panels, strict=True)):
        out.append(" " if place else "")
        out.append_text(text)
        out.append(" " * (panel.columns - text.cell_len))
    out.rstrip()
    return out


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(width - 3, 0)] + "..."


def _fill(words: list[Text], width: int) -> list[Text]:
    """Wrap words to the width."""
    lines = [Text()]
    for word in words:
        if lines[-1].cell_len and lines[-1].cell_len + len(word.plain.rstrip()) > width:
            lines.append(Text())
        lines[-1].append_text(word)
    for line in lines:
        line.rstrip()
    return lines
