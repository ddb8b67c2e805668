"""The grid of a figure: by hand on small summaries, in the terminal and as a picture."""

from pathlib import Path

import numpy as np
import pytest

from promising.grid.cells import by_granularity, densities, figure_label, figures
from promising.grid.text import grid_text
from promising.index import Options, Stream
from promising.index.regions import Description
from promising.testing import ManualClock

SECOND = 1_000_000
MINUTE = 60 * SECOND


def described(show: str) -> Description:
    """Four minutes, of which the prices are 1, 2, 3, 4, and in the last minute as many tuples again of -10."""
    schema = {"ts": "timestamp", "item": "int", "price": "int"}
    stream = Stream("s", schema, "ts", clock=ManualClock(1 << 50))
    summary = stream.create_summary(
        "by_item",
        "item",
        granularity=MINUTE,
        collapse=(2, 5),
        structure="grid",
        options=Options(buckets=4),
        measures=("moments(price)", "distinct(price)"),
    )
    times = np.arange(240, dtype=np.int64) * SECOND
    stream.append({"ts": times, "item": np.arange(240) % 40, "price": times // MINUTE + 1})
    stream.append({"ts": times[180:], "item": np.arange(60) % 40, "price": np.full(60, -10)})
    return summary.describe(cells=True, show=show)


@pytest.mark.parametrize(
    ("show", "value"),
    [("avg(price)", -3), ("min(price)", -10), ("max(price)", 4), ("sum(price)", -360), ("count(price)", 120)],
)
def test_figures_of_the_last_minute(show: str, value: float):
    told = described(show)
    part = by_granularity(told)[1]
    newest = np.array([180 * SECOND, 239 * SECOND + 1], np.int64)
    assert figures(told, part, newest, 1, MINUTE)[0, 0] == pytest.approx(value, rel=0.02)


def test_every_stretch_of_a_picture_has_the_figure_of_its_zone():
    told = described("avg(price)")
    assert told.shown is not None
    for part in by_granularity(told).values():
        edges, grid = densities(told, part, MINUTE)
        shown = figures(told, part, edges, len(grid), MINUTE)
        assert ((grid == 0) == np.isnan(shown)).all()
        for s in part:
            if not s.shared and not any(o is not s and o.start < s.end and o.end > s.start for o in part):
                at = int(np.searchsorted(edges, s.start))
                row = told.shown[told.zones.index(s.zone)]
                np.testing.assert_allclose(shown[:, at], row, rtol=1e-9)


def test_a_figure_of_whole_zones_is_that_of_their_cells():
    told = described("distinct(price)")
    part = by_granularity(told)[1]
    edges, _ = densities(told, part, MINUTE)
    shown = figures(told, part, edges, 4, MINUTE)
    assert set(np.unique(shown[~np.isnan(shown)]).tolist()) <= {1.0, 1.5, 2.0}


@pytest.mark.parametrize("show", ["avg(price)", "sum(price)", "distinct(price)"])
def test_the_terminal_says_what_a_shade_is(show: str):
    told = described(show)
    text = "\n".join(line.plain for line in grid_text(told, 100).lines(100, False))
    assert f"{figure_label(told)} in cell: " in text
    assert "tuples a minute in" not in text
    assert (figure_label(told) == show) == (show != "sum(price)")


@pytest.mark.parametrize("show", ["avg(price)", "count(price)"])
def test_a_picture_of_a_figure(tmp_path: Path, show: str):
    picture = pytest.importorskip("promising.grid.picture")
    figure = picture.draw(described(show), "Prices")
    titles = [axes.get_title() for axes in figure.axes]
    assert any(title.startswith(show) for title in titles)
    picture.save(figure, tmp_path / "prices.png")
    assert (tmp_path / "prices.png").stat().st_size > 10_000
