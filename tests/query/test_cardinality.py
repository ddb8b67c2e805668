"""How large an answer will be, as a frame reports it before any tuple has been read."""

import pytest

from tests.query.skewed import filled


def test_expected_rows_of_named_keys_hold():
    session = filled()
    session.execute("CREATE SUMMARY brief ON a (k) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 2)")
    (exact,) = session.query("SELECT count(*) AS n FROM a WHERE k = 0").to_arrow()["n"].to_pylist()
    for condition in ("k = 0", "k IN (0, 0, 0)"):
        told = session.query(f"SELECT id FROM a WHERE {condition}", budget=0).run().progress.total
        assert told.lower <= exact <= told.upper < 1.1 * exact
        assert told.value == pytest.approx(exact, rel=0.05)
