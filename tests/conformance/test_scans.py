"""Scans for others: the same plan, the same tuples, the same refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import promising.errors as e
from promising.query import Session
from promising.testing import ManualClock
from tests.conformance.sessions import Opened

NOW = 10**12
ROWS = 20_000
JOIN = "SELECT a.item, b.name FROM s a, s b WHERE a.item = b.item"
Both = Callable[..., tuple[Session, Session]]


def filled(opened: Opened) -> Session:
    session = opened(clock=ManualClock(NOW), seed=7)
    session.execute("CREATE STREAM s (ts TIMESTAMP, item INT, name VARCHAR) TIMESTAMP BY ts")
    session.execute("CREATE SUMMARY items ON s (item) WITH GRANULARITY 1 HOUR AND COLLAPSE (4, 5)")
    session.ingest("s", tuples())
    return session


def tuples() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "ts": pa.array(np.arange(ROWS) * 1000).cast(pa.timestamp("us")),
            "item": pa.array(rng.zipf(1.5, ROWS) % 100),
            "name": pa.array([f"n{i}" for i in range(ROWS)]),
        }
    )


@pytest.fixture
def session(opened: Opened) -> Session:
    return filled(opened)


def test_tuples_come_by_arrival(session: Session):
    found = list(session.fetch("S", 100, ROWS - 100, ["name", "item"]))
    assert len(found) > 1
    assert pa.concat_tables(found).to_pydict() == tuples().slice(100, ROWS - 200).select(["name", "item"]).to_pydict()
    assert list(session.fetch("s", 5, 5, ["name"])) == []


def test_what_a_plan_says_is_there_can_be_had(session: Session):
    plan = session.plan_scan("SELECT item FROM s WHERE item = 3", share=1.0)
    (scan,) = plan.scans
    rows = sum(sum(t.num_rows for t in session.fetch("s", *stretch, scan.columns)) for stretch in scan.warm)
    assert rows == sum(last - first for first, last in scan.warm)
    assert scan.warm or scan.pieces


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_plan_is_the_same(both: Both, share: float):
    here, there = (filled(lambda session=session, **_: session) for session in both(clock=ManualClock(NOW), seed=7))
    plan = here.plan_scan(JOIN, share=share)
    assert there.plan_scan(JOIN, share=share) == plan
    assert (plan.hashes is None) == (share == 1.0)


WRONG: dict[str, Callable[[Session], Any]] = {
    "no column to plan for": lambda s: s.plan_scan("SELECT itm FROM s"),
    "no SELECT": lambda s: s.plan_scan("SHOW STREAMS"),
    "no statement": lambda s: s.plan_scan("SELEC"),
    "a share of none": lambda s: s.plan_scan(JOIN, share=0.0),
    "a share of more": lambda s: s.plan_scan(JOIN, share=1.5),
    "a share that is none": lambda s: s.plan_scan(JOIN, share=float("nan")),
    "no stream": lambda s: list(s.fetch("nope", 0, 1, ["item"])),
    "no column": lambda s: list(s.fetch("s", 0, 1, ["itm"])),
    "no columns": lambda s: list(s.fetch("s", 0, 1, [])),
    "not yet": lambda s: list(s.fetch("s", 0, ROWS + 1, ["item"])),
    "backwards": lambda s: list(s.fetch("s", 5, 1, ["item"])),
    "before the first": lambda s: list(s.fetch("s", -1, 1, ["item"])),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_in_the_same_words(what: str, both: Both):
    said = []
    for made in both(clock=ManualClock(NOW), seed=7):
        made.execute("CREATE STREAM s (ts TIMESTAMP, item INT, name VARCHAR) TIMESTAMP BY ts")
        with pytest.raises(e.PromisingError) as refused:
            WRONG[what](made)
        said.append((type(refused.value), str(refused.value)))
    assert said[0] == said[1]
