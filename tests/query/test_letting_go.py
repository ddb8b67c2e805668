"""A query that is done takes everything with it at once: nothing waits for the collector of cycles, which comes late
and halts all others while it looks."""

import gc

import numpy as np
import pytest

import promising
from promising.query.cursor import Cursor

STATEMENTS = (
    "SELECT a.k, a.v, b.v FROM a, b WHERE a.k = b.k",
    "SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.k)",
    "SELECT k, v FROM a WHERE v > 1 ORDER BY v",
    "SELECT count(*), avg(v) FROM a WITH ERROR 0.01",
)


@pytest.fixture(scope="module")
def session():
    made = promising.open(seed=1)
    rng = np.random.default_rng(1)
    for name in "ab":
        made.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
        made.execute(f"CREATE SUMMARY {name}_k ON {name} (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)")
        times = 1_700_000_000_000_000 + np.arange(5_000)
        made.ingest(name, {"ts": times, "k": rng.integers(0, 50, 5_000), "v": rng.random(5_000) * 9})
    yield made
    made.close()


def cursors() -> int:
    return sum(isinstance(o, Cursor) for o in gc.get_objects())


@pytest.mark.deep("looks for what is left after many answers")
@pytest.mark.parametrize("sql", STATEMENTS)
def test_nothing_is_left_of_an_answer_that_was_read_or_closed(session, sql):
    gc.collect()
    gc.disable()
    try:
        before = cursors()
        session.query(sql).run()
        answer = session.query(sql)
        next(iter(answer.stream()))
        assert cursors() > before
        answer.close()
        del answer
        assert cursors() == before
    finally:
        gc.enable()
