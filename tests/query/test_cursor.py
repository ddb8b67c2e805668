"""Answers under way while their streams go on and their summaries are dropped."""

import numpy as np
import pytest

from promising.errors import TokenExpired
from promising.query import Session
from promising.testing import ManualClock
from tests.query.skewed import SECOND, batch, filled


def test_a_summary_dropped_under_an_answer_costs_no_rows_in_silence():
    session = filled()
    sql = "SELECT a.id FROM a WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.k)"
    calm, disturbed = session.query(sql), session.query(sql)
    session.execute("DROP SUMMARY sa")
    assert calm.to_arrow().num_rows == 30_000
    session.ingest("a", batch(30_000, 3_000, 9, start=900))
    with pytest.raises(TokenExpired, match="dropped"):
        disturbed.to_arrow()


def test_a_dropped_summary_does_not_spoil_the_last_frame():
    session = filled()
    answer = session.query("SELECT a.id FROM a, b WHERE a.k = b.k", budget=0)
    session.execute("DROP SUMMARY sa")
    assert answer.run().progress.cut == "budget"


def test_a_horizon_that_passes_over_nothing_ends_no_answer():
    session = Session(clock=ManualClock(1 << 60), seed=3)
    session.execute("CREATE STREAM a (ts TIMESTAMP, k INT) TIMESTAMP BY ts KEEP 20460 SECONDS")
    session.execute("CREATE SUMMARY sa ON a (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)")
    empty = session.query("SELECT k FROM a")
    session.ingest("a", {"ts": np.arange(1_000) * 30_000, "k": np.arange(1_000)})
    young = session.query("SELECT k FROM a")
    session.ingest("a", {"ts": 5_000 * SECOND + np.arange(1_000), "k": np.arange(1_000)})
    assert young.to_arrow().num_rows == 1_000
    assert empty.to_arrow().num_rows == 0


def test_later_tuples_that_have_aged_out_are_not_counted():
    session = Session(clock=ManualClock(1 << 60), seed=3)
    for name in "ab":
        session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INT) TIMESTAMP BY ts KEEP 80 SECONDS")
        session.execute(f"CREATE SUMMARY s{name} ON {name} (k) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 2)")
    session.ingest("a", {"ts": [1_000 * SECOND], "k": [1]})
    answer = session.query(
        "SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.k) WINDOW 10 SECONDS"
    )
    session.ingest("b", {"ts": [100 * SECOND], "k": [1]})
    session.advance("b", 500 * SECOND)
    assert answer.to_arrow().num_rows == 0
