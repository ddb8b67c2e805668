"""MEASURES in statements: what is defined is measured, shown and stored; what does not fit is refused at its place."""

import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import promising
from promising.errors import BadMeasure, CeilingTooLow, InUse, NoSuchName, PromisingError, UnknownMeasure
from promising.index import measure_changes
from promising.index.check import check_stream
from promising.index.measure_reading import complete, window_measure
from promising.index.storage.backup import backup, restore
from promising.query.answers import Done
from promising.query.session import Session

STREAM = 'CREATE STREAM sales (ts TIMESTAMP, item INT, Price DOUBLE, n INT, city TEXT, "order" INT, old BOOL)'
WITH = "WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3)"
EVERY = (
    "MOMENTS(Price)",
    "MOMENTS(order)",
    "MOMENTS(ts)",
    "QUANTILES(Price)",
    "DISTINCT(city)",
    "FREQUENT(city)",
    "HISTOGRAM(n, -0.5, 100, 16)",
    "SAMPLE(8)",
)
START = 1_700_000_000_000_000


def fill(session: Any, tuples: int = 3000, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    latest = session.catalog.streams["sales"].latest or START
    session.ingest(
        "sales",
        {
            "ts": latest + np.cumsum(rng.integers(0, 100_000, tuples)),
            "item": rng.integers(0, 50, tuples),
            "Price": rng.normal(10, 3, tuples),
            "n": rng.integers(-5, 200, tuples),
            "city": [f"c{i}" for i in rng.zipf(1.5, tuples) % 20],
            "order": rng.integers(0, 9, tuples),
            "old": rng.random(tuples) < 0.5,
        },
    )


@pytest.fixture
def session():
    with Session(seed=1) as made:
        made.execute(f"{STREAM} TIMESTAMP BY ts")
        yield made


def shown(session: Any) -> list[dict[str, Any]]:
    table = session.execute("SHOW SUMMARIES")
    assert isinstance(table, pa.Table)
    rows: list[dict[str, Any]] = table.select(["name", "measures", "statement"]).to_pylist()
    return rows


def moments(session: Any, measure: str = "moments(Price)") -> tuple[float, float]:
    """Count and sum, from the zones and what they lack."""
    summary = session.catalog.summaries["s"].index
    found = window_measure(summary, measure)
    state = complete(summary, found)
    every = [[found.kind.estimate(state, cell, what).value for cell in range(len(state))] for what in ("count", "sum")]
    return sum(every[0]), math.fsum(x for x in every[1] if not math.isnan(x))


def test_what_is_defined_is_measured(session: Session):
    fill(session)
    session.execute(f"CREATE SUMMARY s ON sales (item) MEASURES ({', '.join(EVERY)}) {WITH}")
    fill(session, seed=1)
    truth = session.query("SELECT count(*) AS n, sum(price) AS x FROM sales").to_arrow().to_pylist()[0]
    count, total = moments(session)
    assert count == truth["n"] == 6000
    assert total == pytest.approx(truth["x"], rel=1e-12)
    (row,) = shown(session)
    assert row["measures"] == ", ".join(EVERY)
    assert session.describe("s").measures == EVERY


def test_names_of_columns_are_found_whatever_their_case(session: Session):
    session.execute(f'CREATE SUMMARY s ON sales (item) MEASURES (moments("PRICE"), Distinct(CITY)) {WITH}')
    assert session.describe("s").measures == ("MOMENTS(Price)", "DISTINCT(city)")


@pytest.mark.parametrize(
    "clauses",
    [
        f"MEASURES ({', '.join(EVERY)}) {WITH}",
        f"MEASURES NONE {WITH} STRUCTURE grid",
        f"{WITH} STRUCTURE auto OPTIONS (buckets = 16, tolerance = 2.5)",
        "MEASURES (SAMPLE(1)) WITH GRANULARITY 1500 MILLISECONDS AND COLLAPSE (4, 1) STRUCTURE none",
    ],
)
def test_the_statement_of_a_summary_recreates_it(session: Session, clauses: str):
    session.execute(f"CREATE SUMMARY s ON sales (item) {clauses}")
    before = shown(session), session.catalog.streams["sales"].definitions()
    session.execute("DROP SUMMARY s")
    session.execute(before[0][0]["statement"])
    assert (shown(session), session.catalog.streams["sales"].definitions()) == before


BAD = [
    ("MOMENTS(‸city)", BadMeasure, "of type string; MOMENTS measures columns of type float, int, timestamp"),
    ("QUANTILES(‸old)", BadMeasure, "of type bool"),
    ("MOMENTS(n), DISTINCT(city), ‸MOMENTS(N)", BadMeasure, r"MOMENTS\(n\) is given twice"),
    ("SAMPLE(‸0)", BadMeasure, "1 to 16,384 rows are wanted"),
    ("SAMPLE(‸-1)", BadMeasure, "1 to 16,384 rows are wanted"),
    ("‸SAMPLE()", BadMeasure, "1 to 16,384 rows are wanted"),
    ("SAMPLE(‸n)", BadMeasure, "measures whole tuples"),
    ("‸MOMENTS()", BadMeasure, "names no column"),
    ("MOMENTS(‸5)", BadMeasure, "names no column"),
    ("MOMENTS(‸n, 5)", BadMeasure, "too many arguments"),
    ("‸MEDIAN(n)", BadMeasure, "unknown measure MEDIAN; there are DISTINCT, FREQUENT, HISTOGRAM, MOMENTS"),
    ("‸MOMENT(n)", BadMeasure, "did you mean MOMENTS?"),
    ("MOMENTS(‸pric)", NoSuchName, "no column 'pric' in sales; did you mean Price?"),
    ("HISTOGRAM(‸n)", BadMeasure, "needs the range of its bins"),
    ("HISTOGRAM(‸n, 5, 5)", BadMeasure, "a range of finite numbers"),
    ("HISTOGRAM(‸n, 0, 1e999)", BadMeasure, "a range of finite numbers"),
]


@pytest.mark.parametrize(("marked", "kind", "message"), BAD)
def test_bad_measures_are_refused_at_their_place(
    session: Session, marked: str, kind: type[PromisingError], message: str
):
    head = "CREATE SUMMARY s ON sales (item)\n  MEASURES ("
    column = 1 + len("  MEASURES (") + marked.index("‸")
    with pytest.raises(kind, match=message) as caught:
        session.execute(f"{head}{marked.replace('‸', '')}) {WITH}")
    assert re.search(rf"line 2, column {column}\b", str(caught.value)), caught.value
    assert session.catalog.summaries == {}
    assert session.catalog.streams["sales"].summaries == {}


def test_measures_are_part_of_the_ceiling(session: Session):
    with pytest.raises(CeilingTooLow, match="ceiling"):
        session.execute(f"CREATE SUMMARY s ON sales (item) MEASURES (QUANTILES(n)) {WITH} OPTIONS (ceiling = 100000)")
    assert session.catalog.summaries == {}


def test_measures_survive_restart_backup_and_restore(tmp_path: Path):
    home, copy, again = (str(tmp_path / name) for name in ("home", "copy", "again"))
    with promising.open(home) as session:
        session.execute(f"{STREAM} TIMESTAMP BY ts")
        session.execute(f"CREATE SUMMARY s ON sales (item) MEASURES ({', '.join(EVERY)}) {WITH}")
        fill(session)
        known = shown(session), moments(session)
    for _ in range(2):  # from the log, then from a checkpoint
        with promising.open(home) as session:
            assert (shown(session), moments(session)) == known
            assert session.store is not None
            session.store.checkpoint()
    backup(home, copy)
    restore(copy, again)
    with promising.open(again) as session:
        assert (shown(session), moments(session)) == known


# --- ALTER SUMMARY -------------------------------------------------------------------------------------------------


def test_measures_are_added_and_dropped(session: Session):
    fill(session)
    session.execute(f"CREATE SUMMARY s ON sales (item) MEASURES (SAMPLE(8)) {WITH}")
    done = session.execute("ALTER SUMMARY S ADD MEASURES (MOMENTS(price), DISTINCT(city))")
    assert isinstance(done, Done)
    assert done.message == "summary s measures SAMPLE(8), MOMENTS(Price), DISTINCT(city)"
    fill(session, seed=1)
    truth = session.query("SELECT count(*) AS n, sum(price) AS x FROM sales").to_arrow().to_pylist()[0]
    count, total = moments(session)
    assert count == truth["n"]
    assert total == pytest.approx(truth["x"], rel=1e-12)
    session.execute("ALTER SUMMARY s DROP MEASURES (Sample(8), distinct(CITY))")
    assert moments(session)[0] == truth["n"]
    assert shown(session)[0]["measures"] == "MOMENTS(Price)"
    assert not list(check_stream(session.catalog.streams["sales"]))


@pytest.mark.parametrize(
    ("marked", "kind", "message"),
    [
        ("ADD MEASURES (MOMENTS(n), ‸MOMENTS(price))", BadMeasure, r"measures MOMENTS\(Price\) already"),
        ("ADD MEASURES (MOMENTS(n), ‸MOMENTS(N))", BadMeasure, "is given twice"),
        ("ADD MEASURES (MOMENTS(‸city))", BadMeasure, "of type string"),
        ("ADD MEASURES (‸QUANTILES(n))", CeilingTooLow, "ceiling"),
        ("DROP MEASURES (MOMENTS(Price), ‸MOMENTS(n))", UnknownMeasure, r"its measures are: MOMENTS\(Price\)"),
        ("DROP MEASURES (MOMENTS(‸nn))", NoSuchName, "no column 'nn'"),
    ],
)
def test_bad_changes_are_refused_at_their_place(
    session: Session, marked: str, kind: type[PromisingError], message: str
):
    fill(session, 500)
    session.execute(f"CREATE SUMMARY s ON sales (item) MEASURES (MOMENTS(price)) {WITH}")
    ceiling = session.describe("s").ceiling + 100_000
    session.execute("DROP SUMMARY s")
    session.execute(f"CREATE SUMMARY s ON sales (item) MEASURES (MOMENTS(price)) {WITH} OPTIONS (ceiling = {ceiling})")
    head = "ALTER SUMMARY s "
    with pytest.raises(kind, match=message) as caught:
        session.execute(head + marked.replace("‸", ""))
    assert f"line 1, column {1 + len(head) + marked.index('‸')}:" in str(caught.value)
    assert str(caught.value).count("line 1, column") == 1
    assert session.describe("s").measures == ("MOMENTS(Price)",)
    assert session.describe("s").building == ""


def test_batches_and_queries_go_on_while_measures_are_built(session: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measure_changes, "SLICE", 100)
    fill(session, 5000)
    session.execute(f"CREATE SUMMARY s ON sales (item) {WITH}")
    seen: list[str] = []

    def between(_: float) -> None:
        fill(session, 10, len(seen))
        (row,) = session.execute("SHOW SUMMARIES").to_pylist()  # type: ignore[union-attr]  # a table
        seen.append(row["building"])
        assert row["measures"] == ""
        if len(seen) == 2:
            with pytest.raises(InUse, match=r"line 1, column 15"):
                session.execute("ALTER SUMMARY s ADD MEASURES (SAMPLE(8))")
        assert session.query("SELECT count(*) AS n FROM sales").to_arrow()["n"].to_pylist() == [5000 + 10 * len(seen)]

    # Of this module alone: other threads of the process sleep, too.
    monkeypatch.setattr("promising.query.summary_statements.time", SimpleNamespace(sleep=between))
    session.execute("ALTER SUMMARY s ADD MEASURES (MOMENTS(price))")
    assert len(seen) > 10
    assert re.fullmatch(r"building MOMENTS\(Price\): \d+00 of [\d,]+ tuples", seen[1])
    assert moments(session)[0] == 5000 + 10 * len(seen)


def test_a_kill_leaves_either_the_old_measures_or_the_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The files of the store are copied at each point of a change, and opened as after a kill."""
    monkeypatch.setattr(measure_changes, "SLICE", 200)
    home, before, after = (
        tmp_path / "home",
        ("SAMPLE(8)", "MOMENTS(n)"),
        ("MOMENTS(n)", "MOMENTS(Price)", "DISTINCT(city)"),
    )
    copies: list[Path] = []

    def copied() -> None:
        copies.append(tmp_path / f"copy {len(copies)}")
        shutil.copytree(home, copies[-1])

    with promising.open(str(home)) as session:
        session.execute(f"{STREAM} TIMESTAMP BY ts")
        session.execute(f"CREATE SUMMARY s ON sales (item) MEASURES ({', '.join(before)}) {WITH}")
        fill(session, 2000)
        stream = session.catalog.streams["sales"]
        copied()
        for at, _ in enumerate(stream.set_measures("s", ["moments(n)", "moments(Price)", "distinct(city)"])):
            fill(session, 20, at)
            if at == 3:
                assert session.store is not None
                session.store.checkpoint()
            copied()
        copied()
        fill(session, 300, 99)
        copied()
        truth = moments(session)
        count = stream.kept
    assert len(copies) > 5
    for at, copy in enumerate(copies):
        with promising.open(str(copy)) as session:
            last = at == len(copies) - 1
            assert session.describe("s").measures == (after if at >= len(copies) - 2 else before)
            assert not list(check_stream(session.catalog.streams["sales"]))
            assert session.store is not None
            assert session.store.damages == {}
            if last:
                assert (moments(session), moments(session)[0]) == (truth, count)
            elif at < len(copies) - 2:
                session.execute("ALTER SUMMARY s ADD MEASURES (MOMENTS(price))")
                assert moments(session)[0] == session.catalog.streams["sales"].kept
