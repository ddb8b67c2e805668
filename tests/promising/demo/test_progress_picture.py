"""The picture of coverage against CPU time: what it measures and draws, on a part of the log."""

import pytest

from promising.demo import journey, progress_picture

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def session():
    return progress_picture.stores(journey.transactions(20_000))


def test_every_tuple_is_in_one_of_the_streams(session):
    shown = session.execute("SHOW STREAMS")
    assert shown["name"].to_pylist() == ["even", "odd"]
    assert sum(shown["tuples"].to_pylist()) == 20_000
    for name, rest in (("even", 0), ("odd", 1)):
        stores = session.query(f"SELECT StoreID % 2 AS rest FROM {name} GROUP BY 1").to_arrow()
        assert stores["rest"].to_pylist() == [rest]


def test_curves_rise_to_the_end_and_are_drawn(session, tmp_path):
    found = progress_picture.curves(session)
    assert list(found) == list(progress_picture.LINES)
    for curve in found.values():
        assert curve == sorted(curve)
        assert curve[-1][1] == 1.0
    figure = progress_picture.draw(found, 1234, "Measured twice.")
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [line[2] for line in progress_picture.LINES.values()]
    assert any("1,234 rows in all" in text.get_text() for text in figure.texts)
    assert any("Measured twice." in text.get_text() for text in figure.texts)
    figure.savefig(tmp_path / "coverage.png", format="png")
    assert (tmp_path / "coverage.png").read_bytes().startswith(PNG)
