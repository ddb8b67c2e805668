"""What once went wrong between parts that were right by themselves."""

import numpy as np
import pytest

from promising.errors import TokenExpired
from promising.query import Session
from promising.testing import ManualClock

SECOND = 1_000_000


def filled(*, granularity: int = 1000, collapse: str = "(4, 3)", n: int = 30_000, keys: int = 3_000) -> Session:
    """Streams a and b: 900 seconds of tuples, the keys of which are numbered from frequent to rare."""
    session = Session(clock=ManualClock(1 << 60), seed=3)
    for number, name in enumerate("ab"):
        session.execute(f"CREATE STREAM {name} (id INT, k INT, ts TIMESTAMP, price DOUBLE) TIMESTAMP BY ts")
        session.execute(
            f"CREATE SUMMARY s{name} ON {name} (k) WITH GRANULARITY {granularity} SECONDS AND COLLAPSE {collapse}"
        )
        session.ingest(name, batch(n, keys, number))
    return session


def batch(n: int, keys: int, seed: int, start: int = 0) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    return {
        "id": np.arange(n),
        "k": (keys * rng.random(n) ** 3).astype(np.int64),
        "ts": start * SECOND + np.sort(rng.integers(0, 900 * SECOND, n)),
        "price": rng.random(n) * 10,
    }


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


@pytest.mark.parametrize("budget", [0.005, 0.05, 10.0])
@pytest.mark.parametrize("join", [False, True])
def test_aggregates_by_preference_over_a_part_of_the_stream(budget, join):
    session = filled()
    source = "a, b WHERE a.k = b.k" if join else "a"
    sql = f"SELECT sum(a.price) AS p, count(*) AS n FROM {source}"
    exact = session.query(f"{sql} WINDOW 500 SECONDS").to_arrow().to_pylist()[0]
    counts = "SUMMARY.Estimate.Count(a.k)" + (", SUMMARY.Estimate.Count(b.k)" if join else "")
    answer = session.query(f"{sql} WITH PREFERENCE DESC {counts} WINDOW 500 SECONDS", budget=budget).run()
    while answer.progress.token is not None:
        answer = session.resume(answer.progress.token).run()
    found = answer.to_arrow().to_pylist()[0]
    assert found["n"] == exact["n"] and found["p"] == pytest.approx(exact["p"])


def test_rare_keys_among_named_ones_come_in_order_inside_a_window():
    session = filled()
    data, other = batch(30_000, 3_000, 0), range(100, 3_000, 7)
    inside = np.asarray(data["ts"]) > np.max(np.asarray(data["ts"])) - 450 * SECOND
    counts = np.bincount(np.asarray(data["k"])[inside], minlength=3_000)
    named = ", ".join(map(str, other))
    sql = f"SELECT k FROM a WHERE k IN ({named}) WITH PREFERENCE ASC SUMMARY.Estimate.Count(k) WINDOW 450 SECONDS"
    found = counts[session.query(sql).to_arrow()["k"].to_numpy()]
    assert len(found) == counts[list(other)].sum()
    assert (np.diff(found) >= 0).all()


def test_a_horizon_that_passes_over_nothing_ends_no_answer():
    session = Session(clock=ManualClock(1 << 60), seed=3)
    session.execute("CREATE STREAM a (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
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
        session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
        session.execute(f"CREATE SUMMARY s{name} ON {name} (k) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 2)")
    session.ingest("a", {"ts": [1_000 * SECOND], "k": [1]})
    answer = session.query(
        "SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.k) WINDOW 10 SECONDS"
    )
    session.ingest("b", {"ts": [100 * SECOND], "k": [1]})
    session.advance("b", 500 * SECOND)
    assert answer.to_arrow().num_rows == 0


@pytest.mark.parametrize("preference", ["DESC 1.0 / {}", "DESC {} - 30", "ASC {} - 30"])
def test_a_preference_that_may_fall_fades_in_order(preference):
    """Priorities are worked out anew from the rows: by key, granularity and in the order they came."""
    session = filled(granularity=60, collapse="(4, 4)", n=20_000, keys=300)
    sql = "SELECT k, ts FROM a WITH PREFERENCE " + preference.format("SUMMARY.Estimate.Count(k)") + " FADE FACTOR 0.5"
    rows = session.query(sql).to_arrow()
    keys, times = rows["k"].to_numpy(), rows["ts"].cast("int64").to_numpy()
    horizons = np.array(session.catalog.summaries["sa"].index.state.horizons)
    bands = (times[:, None] < horizons[None, :]).sum(axis=1)
    entry = keys * 10 + bands
    first = np.flatnonzero(np.concatenate(([True], entry[1:] != entry[:-1])))
    assert len(first) == len(np.unique(entry)), "each entry in one piece"
    size = dict(zip(*np.unique(entry, return_counts=True), strict=True))
    total = dict(zip(*np.unique(keys, return_counts=True), strict=True))
    rising = preference.startswith("ASC")
    count = np.array([total[keys[i]] if rising else size[entry[i]] for i in first], float)
    value = 1.0 / count if "/" in preference else count - 30
    priority = value / 0.5 ** bands[first] if rising else value * 0.5 ** bands[first]
    assert (np.diff(priority if rising else -priority) >= -1e-12).all()


def test_expected_rows_of_named_keys_hold():
    session = filled()
    session.execute("CREATE SUMMARY brief ON a (k) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 2)")
    (exact,) = session.query("SELECT count(*) AS n FROM a WHERE k = 0").to_arrow()["n"].to_pylist()
    for condition in ("k = 0", "k IN (0, 0, 0)"):
        told = session.query(f"SELECT id FROM a WHERE {condition}", budget=0).run().progress.total
        assert told.lower <= exact <= told.upper < 1.1 * exact
        assert told.value == pytest.approx(exact, rel=0.05)
