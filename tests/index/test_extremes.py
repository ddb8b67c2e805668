"""The extreme tuples of blocks of arrivals, against a sort of all of them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import DataDamaged
from promising.index import extremes as module
from promising.index import log as tuple_log
from promising.index.check.extremes import check_extremes
from promising.index.check.stream import check_stream
from promising.index.extremes import TOP, Extremes
from promising.index.log import TupleLog
from promising.index.storage.store import Store
from promising.index.stream import Stream
from promising.summaries.cells import same_images
from tests.tiers import examples

BLOCK = 256


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", BLOCK)
    monkeypatch.setattr("promising.index.check.extremes.BLOCK", BLOCK)
    monkeypatch.setattr(tuple_log, "CHUNK", 64)


def column(rng: np.random.Generator, rows: int) -> list[float | None]:
    values: list[float | None] = np.round(rng.standard_t(1, rows), 1).tolist()  # with equal magnitudes
    for at in np.flatnonzero(rng.random(rows) < 0.1):
        values[at] = [None, math.nan, math.inf, -math.inf, -0.0][int(rng.integers(5))]
    return values


def made(keep: int | None = None) -> Stream:
    stream = Stream("s", {"ts": "timestamp", "k": "int", "x": "float", "n": "int"}, time="ts", keep=keep)
    stream.create_summary("by_k", key="k", granularity=10, measures=["moments(x)", "moments(n)", "moments(ts)"])
    return stream


def fill(stream: Stream, rng: np.random.Generator, rows: int, first: int = 0) -> dict[str, list[Any]]:
    columns = {
        "ts": list(range(first, first + rows)),
        "k": rng.integers(0, 5, rows).tolist(),
        "x": column(rng, rows),
        "n": rng.integers(-(1 << 40), 1 << 40, rows).tolist(),
    }
    at = 0
    while at < rows:
        stop = at + int(rng.integers(1, 300))
        stream.append({name: values[at:stop] for name, values in columns.items()})
        if rng.random() < 0.5:
            stream.catch_up(int(rng.integers(1, 500)))
        at = stop
    stream.catch_up_all()
    return columns


def size(value: float | None) -> float:
    return -1.0 if value is None else abs(value) if math.isfinite(value) else math.inf


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_they_are_the_greatest_of_each_block(seed: int):
    rng = np.random.default_rng(seed)
    stream, rows = made(), int(rng.integers(1, 1500))
    columns = fill(stream, rng, rows)
    extremes = stream.extremes
    assert extremes is not None
    assert extremes.until == rows and set(extremes.columns) == {"x", "n"}
    for name in extremes.columns:
        values = columns[name]
        sizes, arrivals, figures = extremes.of(name)
        for block in range(extremes.blocks):
            here = range(block * BLOCK, min((block + 1) * BLOCK, rows))
            best = sorted((at for at in here if values[at] is not None), key=lambda at: (-size(values[at]), at))[:TOP]
            assert arrivals[block][: len(best)].tolist() == best
            assert sizes[block][: len(best)].tolist() == [size(values[at]) for at in best]
            known = [values[at] for at in here if values[at] is not None]
            finite = [abs(value) for value in known if math.isfinite(value)]
            assert figures[block].tolist() == [sum(finite), len(known), len(known) - len(finite)]
    assert check_stream(stream) == []


def test_they_depend_on_no_batches_and_survive_an_image():
    one, other = made(), made()
    for stream in (one, other):
        fill(stream, np.random.default_rng(5), 700)
    mine, others = one.extremes, other.extremes
    assert mine is not None and others is not None
    again = Extremes(mine.columns)
    again.restore(mine.image())
    rng = np.random.default_rng(9)
    more = {"ts": range(700, 900), "k": [1] * 200, "x": column(rng, 200), "n": list(range(200))}
    for stream, batch in ((one, 200), (other, 7)):
        for first in range(0, 200, batch):
            stream.append({name: list(values[first : first + batch]) for name, values in more.items()})
            stream.catch_up_all()
    with one.reading() as log:
        again.follow(log, 1 << 20, warm=False)
    for found in (others, again):
        for name in ("x", "n"):
            for part, same in zip(mine.of(name), found.of(name), strict=True):
                assert part.tobytes() == same.tobytes()
    again.restore({"columns": {"x": "int"}, "until": 1})
    assert again.until == 900


def test_released_tuples_leave():
    stream = made(keep=500)
    fill(stream, np.random.default_rng(6), 4000)
    extremes = stream.extremes
    assert extremes is not None
    assert extremes.first > 0 and extremes.blocks < 12
    assert check_stream(stream) == []


def test_a_check_reports_a_wrong_one():
    stream = made()
    fill(stream, np.random.default_rng(7), 600)
    assert stream.extremes is not None
    stream.extremes.of("x")[1][1, 3] += 1
    with stream.reading() as log:
        (found,) = check_extremes(stream.extremes, log)
    assert found == "the extremes of 'x' from arrival 256 on are not those of its tuples"


def test_a_check_goes_on_where_tuples_cannot_be_read(monkeypatch: pytest.MonkeyPatch):
    stream = made()
    fill(stream, np.random.default_rng(7), 600)

    def damaged(*asked: Any) -> Any:
        raise DataDamaged("a file is damaged")

    monkeypatch.setattr(TupleLog, "values", damaged)
    assert any("extreme tuples are not checked: a file is damaged" in found for found in check_stream(stream))


def test_they_are_stored_with_the_stream(tmp_path: Path):
    with Store.open(tmp_path, seed=3) as store:
        stream = store.create_stream("s", {"ts": "timestamp", "k": "int", "x": "float", "n": "int"}, time="ts")
        stream.create_summary("by_k", key="k", granularity=10, measures=["moments(x)", "moments(n)"])
        fill(stream, np.random.default_rng(8), 900)
        assert stream.extremes is not None
        known = stream.extremes.image()
    with Store.open(tmp_path) as store:
        stream = store.streams["s"]
        assert stream.extremes is not None and stream.extremes.until == 900
        assert same_images(stream.extremes.image(), known)
        assert check_stream(stream) == []
