"""MEASURES in statements: what is defined is measured, shown and stored; what does not fit is refused at its place."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import promising
from promising.errors import BadMeasure, CeilingTooLow, NoSuchName, PromisingError
from promising.index.measure_reading import complete, window_measure
from promising.index.storage.backup import backup, restore
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
