"""A key with many tuples, worked over several slices of changing size, gives each of its rows once."""

import numpy as np
import pytest

from promising.query import Session

N = 20_000


@pytest.fixture(scope="module")
def session():
    made = Session(seed=7)
    made.execute("CREATE STREAM a (ts TIMESTAMP, item BIGINT, n BIGINT) TIMESTAMP BY ts")
    made.execute("CREATE SUMMARY items ON a (item) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 3)")
    made.ingest("a", {"ts": 10**15 + np.arange(N) * 10_000, "item": np.arange(N) % 3 % 2, "n": np.arange(N)})
    return made


@pytest.mark.parametrize(
    "rest",
    [
        "WHERE item = 1",
        "WITH PREFERENCE DESC SUMMARY.Estimate.Count(item)",
        "WITH PREFERENCE DESC SUMMARY.Estimate.Count(item) WINDOW 100 SECONDS",
        "WITH PREFERENCE DESC SUMMARY.Estimate.Count(item) FADE FACTOR 0.5",
        "WITH PREFERENCE ASC SUMMARY.Estimate.Count(item)",
    ],
)
def test_every_row_once(session, rest):
    rows = session.query(f"SELECT n FROM a {rest}").to_arrow()["n"].to_pylist()
    plain = [n for n in range(N) if "WHERE" not in rest or n % 3 % 2 == 1]
    plain = plain[-10_000:] if "WINDOW" in rest else plain
    assert len(rows) == len(plain)
    assert sorted(rows) == plain
