"""The picture of a summary: what it draws, on a summary small enough to count by hand."""

import numpy as np
import pytest
from matplotlib.axes import Axes

from promising.errors import BadQuestion
from promising.grid import cells as grid
from promising.grid import picture
from promising.index import Options, Stream, SummaryIndex
from promising.index.regions import ZoneInfo
from promising.testing import ManualClock

SECOND = 1_000_000
MINUTE = 60 * SECOND
PNG = b"\x89PNG\r\n\x1a\n"


def make(structure: str = "adaptive", lateness: int = 0) -> tuple[Stream, SummaryIndex]:
    schema = {"ts": "timestamp", "item": "int"}
    stream = Stream("s", schema, "ts", clock=ManualClock(1 << 50), max_tuples=1 << 16, lateness=lateness)
    summary = stream.create_summary(
        "by_item", "item", granularity=MINUTE, collapse=(2, 3), structure=structure, options=Options(buckets=8)
    )
    return stream, summary


def fill(stream: Stream, start: int, minutes: int) -> None:
    """One tuple a second, of 40 items in turn."""
    times = start + np.arange(minutes * 60, dtype=np.int64) * SECOND
    stream.append({"ts": times, "item": np.arange(len(times)) % 40})


def panels(figure) -> list[Axes]:
    """Those that show cells."""
    return [axes for axes in figure.axes if axes.get_label().startswith("G_")]


def test_every_granularity_has_a_panel_and_a_heading(tmp_path):
    stream, summary = make()
    fill(stream, 0, 9)
    figure = picture.draw(summary.describe(cells=True), "Nine minutes", began=0, marks={"the first": 0})
    headings = [axes.get_title() for axes in figure.axes if axes.get_title().startswith("$G_")]
    assert [h.split(":")[0] for h in headings] == ["$G_{3}$", "$G_{2}$", "$G_{1}$"]
    assert [panel.get_label() for panel in panels(figure)] == ["G_3", "G_2", "G_1"]
    assert "1 minute each" in headings[1]
    assert "Nine minutes" in {text.get_text() for text in figure.texts}
    out = tmp_path / "grid.png"
    picture.save(figure, out)
    assert out.read_bytes().startswith(PNG)


def test_the_cells_hold_every_tuple_once():
    stream, summary = make()
    fill(stream, 0, 9)
    told = summary.describe(cells=True)
    held = 0.0
    for granularity in (1, 2, 3):
        part = grid.stretches([z for z in told.zones if z.granularity == granularity])
        edges, cells = grid.densities(told, part, SECOND)
        held += float((cells * (np.diff(edges) / SECOND)).sum())
    assert held == pytest.approx(told.tuples)


def test_zones_that_touch_share_a_border_and_late_ones_share_time():
    first = ZoneInfo(1, 1, 0, 1001, 10, "maxlength")
    touching = ZoneInfo(1, 2, 1000, 2001, 10, "open")
    late = ZoneInfo(1, 3, 500, 1500, 10, "maxlength")
    borders = [(s.start, s.end, s.shared) for s in grid.stretches([touching, first])]
    assert borders == [(0, 1000, False), (1000, 2001, False)]
    assert [s.shared for s in grid.stretches([first, late])] == [False, True]


def test_late_tuples_are_drawn_beside_the_zones_of_their_time():
    stream, summary = make(lateness=2 * MINUTE)
    fill(stream, 0, 3)
    stream.append({"ts": np.array([61 * SECOND, 90 * SECOND]), "item": np.array([1, 2])})
    zones = [z for z in summary.describe().zones if z.granularity == 1]
    assert [s.zone.tuples for s in grid.stretches(zones) if s.shared] == [2]
    assert panels(picture.draw(summary.describe(cells=True), "late"))


def test_a_single_tuple_can_be_drawn():
    stream, summary = make()
    stream.append({"ts": [5], "item": [7]})
    assert len(panels(picture.draw(summary.describe(cells=True), "one"))) == 1


@pytest.mark.parametrize("structure", ["time", "grid"])
def test_the_other_structures_are_drawn_with_their_own_buckets(structure):
    stream, summary = make(structure)
    fill(stream, 0, 2)
    (panel,) = panels(picture.draw(summary.describe(cells=True), structure))
    assert panel.get_ylim() == (0, 1 if structure == "time" else 8)


def test_nothing_to_draw_is_said(tmp_path):
    _, empty = make()
    with pytest.raises(BadQuestion, match="no zones to draw"):
        picture.draw(empty.describe(cells=True), "empty")
    stream, bare = make("none")
    fill(stream, 0, 1)
    with pytest.raises(BadQuestion, match="60 tuples, none"):
        picture.draw(bare.describe(cells=True), "bare")
    stream, summary = make()
    fill(stream, 0, 1)
    with pytest.raises(BadQuestion, match="ask for it with cells=True"):
        picture.draw(summary.describe(), "no cells")
