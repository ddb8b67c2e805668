"""Limits of the memory of queries: of one, of a client, of all; what ends, what yields, and what it is counted as."""

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from promising.errors import LimitReached, TokenExpired
from promising.query import Session
from promising.query.query_memory import PRESSED, Account, QueryLimits, QueryMemory
from promising.query.result_sinks import CROWDED, CROWDED_BYTES, Sorted
from promising.query.steps import Steps
from tests.query.stores import Ticking

MB = 1 << 20
ALL = QueryLimits(8 * MB, 16 * MB, 32 * MB)
JOIN = "SELECT a.v, b.v AS w FROM s a, s b WHERE a.k = b.k"
ROWS, KEYS = 20_000, 400


def session(limits: QueryLimits | None = ALL, **given: Any) -> Session:
    made = Session(query_limits=limits, **given)
    made.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, w VARCHAR) TIMESTAMP BY ts")
    rng = np.random.default_rng(0)
    words = pa.array([f"word {n}" for n in range(ROWS)])
    columns = {"ts": np.arange(ROWS), "k": rng.integers(0, KEYS, ROWS), "v": rng.random(ROWS), "w": words}
    assert made.ingest("s", columns).accepted == ROWS
    return made


# --- accounts --------------------------------------------------------------------------------------------------------


def ends(account: Account) -> str | None:
    """The setting that ends a query, if one does."""
    try:
        account.check(spills=True)
    except LimitReached as problem:
        return next(word for word in str(problem).replace(":", "").split() if word.startswith("limits."))
    return None


def test_a_query_ends_past_its_own_limit():
    account = QueryMemory(ALL).open("c")
    assert not account.hold(4 * MB)
    assert account.hold(4 * MB + 1)  # it should spill
    assert ends(account) is None
    account.hold(8 * MB + 1)
    assert ends(account) == "limits.max_query_bytes"


def test_a_client_ends_past_its_limit_and_leaves_others_alone():
    memory = QueryMemory(ALL)
    mine = [memory.open("mine") for _ in range(4)]
    for account in mine[:2]:
        account.hold(13 * MB // 2)
    other = memory.open("other")
    assert mine[2].hold(MB)
    assert ends(mine[2]) is None  # seven eighths
    mine[2].hold(MB + 1)
    assert ends(mine[2]) == "limits.max_query_bytes_per_client"
    mine[3].hold(ALL.client >> 8)
    assert ends(mine[3]) == "limits.max_query_bytes_per_client" or memory.used <= 16 * MB
    assert not other.hold(2 * MB)
    assert ends(other) is None


def test_the_last_part_of_all_memory_is_left_to_small_queries():
    memory = QueryMemory(ALL)
    large = [memory.open(f"client {number}") for number in range(4)]
    assert [account.hold(7 * MB) for account in large] == [True] * 4  # more than half of their own
    assert [ends(account) for account in large] == [None] * 4
    for account in large[:3]:
        account.hold(8 * MB)
    assert ends(large[0]) == "limits.max_query_bytes_total"
    small = memory.open("small")
    small.hold(ALL.total >> 8)
    assert ends(small) is None
    large[2].close()
    assert ends(large[0]) is None


def test_an_account_that_nobody_closed_is_closed_by_the_collector():
    memory = QueryMemory(ALL)
    account = memory.open("c")
    account.hold(MB)
    assert memory.used == MB
    del account
    gc.collect()
    assert memory.used == 0
    account = memory.open("c")
    account.hold(MB)
    account.close()
    account.close()
    assert memory.used == 0


# --- queries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        f"{JOIN} ORDER BY a.v, b.v",
        "SELECT a.v, b.ts, count(*) FROM s a, s b WHERE a.k = b.k GROUP BY a.v, b.ts",
        "SELECT a.k, median(b.v) FROM s a, s b WHERE a.k = b.k GROUP BY a.k",
        "SELECT count(DISTINCT a.v + b.v) FROM s a, s b WHERE a.k = b.k",
        f"{JOIN} LIMIT 1 BY v, w",
    ],
    ids=["sort", "groups", "median", "distinct", "limit by"],
)
def test_past_its_limit_a_query_ends_with_what_it_has(sql: str):
    """Without a store nothing spills. What is counted exceeds the limit by a slice."""
    made = session()
    most, rows = 0, 0
    answer = made.query(sql)
    with pytest.raises(LimitReached, match=r"limits\.max_query_bytes allows 8,388,608.*with a data directory"):
        for frame in answer.stream():
            rows = frame.rows.num_rows + (rows if frame.mode == "append" else 0)
            most = max(most, made.query_bytes)
    assert answer.progress.cut == "memory"
    assert not answer.progress.complete
    assert answer.progress.token is None
    assert rows > 0
    assert MB < most < 3 * ALL.query
    assert made.query_bytes == 0
    assert made.query("SELECT count(*) FROM s").to_arrow()[0].to_pylist() == [ROWS]


def test_a_partial_sort_is_sorted_and_partial_groups_are_bounded():
    made, whole = session(), session(None)
    answer = made.query(f"{JOIN} ORDER BY a.v DESC")
    with pytest.raises(LimitReached):
        answer.run()
    assert answer.last is not None
    found = answer.last.rows["v"].to_numpy()
    assert (np.diff(found) <= 0).all()
    answer = made.query("SELECT a.k, count(*) AS n, median(b.v) FROM s a, s b WHERE a.k = b.k GROUP BY a.k")
    with pytest.raises(LimitReached):
        answer.run()
    sql = "SELECT a.k, count(*) AS n FROM s a, s b WHERE a.k = b.k GROUP BY a.k"
    counts = {row["k"]: row["n"] for row in whole.query(sql).to_arrow().to_pylist()}
    last = answer.last
    assert last is not None
    assert last.lower is not None
    assert last.upper is not None
    bounds = (last.rows["k"], last.lower["n"], last.upper["n"])
    for key, low, high in zip(*(column.to_pylist() for column in bounds), strict=True):
        assert low <= counts[key] <= high


@pytest.mark.parametrize("most", [1, 1000])
@pytest.mark.parametrize("by", ["", " LIMIT 3 BY v"])
def test_a_sort_with_a_limit_holds_as_many_rows(monkeypatch: pytest.MonkeyPatch, most: int, by: str):
    held: list[int] = []
    sizes: list[int] = []
    add = Sorted.add

    def counted(self: Sorted, batch: Any) -> Steps[int]:
        found = yield from add(self, batch)
        held.append(self.held)
        sizes.append(self.nbytes)
        return found

    monkeypatch.setattr(Sorted, "add", counted)
    made = session()
    rows = made.query(f"{JOIN} ORDER BY a.v{by} LIMIT {most}").to_arrow()
    assert rows.num_rows == most
    pairs = ROWS * ROWS // KEYS
    assert max(held) <= 2 * most + CROWDED
    assert max(held) < pairs / 10
    assert max(sizes) < 3 * CROWDED_BYTES


def test_long_values_beyond_a_limit_are_evicted_by_their_bytes(monkeypatch: pytest.MonkeyPatch):
    made = Session()
    made.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, w VARCHAR) TIMESTAMP BY ts")
    for first in range(0, 16_000, 1_000):
        numbers = np.arange(first, first + 1_000)
        made.ingest("s", {"ts": numbers, "k": -numbers, "w": [f"{n:05}" * 400 for n in numbers]})
    sizes: list[int] = []
    add = Sorted.add

    def counted(self: Sorted, batch: Any) -> Steps[int]:
        found = yield from add(self, batch)
        sizes.append(self.nbytes)
        return found

    monkeypatch.setattr(Sorted, "add", counted)
    assert made.query("SELECT w FROM s ORDER BY k LIMIT 2").to_arrow()["w"].to_pylist()[0].startswith("15999")
    assert max(sizes) < 4 * CROWDED_BYTES  # 32 MB of values were read


def test_suspended_answers_yield_to_running_ones():
    made = session(QueryLimits(8 * MB, 8 * MB, 32 * MB), cpu=Ticking())

    def suspended(client: str) -> str:
        token = made.query(f"{JOIN} ORDER BY a.v", budget=2, client=client).run().progress.token
        assert token is not None
        return token

    tokens = [suspended("one"), suspended("two"), suspended("one")]
    before = made.query_bytes
    assert before > MB
    with pytest.raises(LimitReached, match="max_query_bytes"):
        made.query(f"{JOIN} ORDER BY a.v", client="one").run()
    assert made.query_bytes < before  # those of the client went first
    with pytest.raises(TokenExpired):
        made.resume(tokens[0], client="one")
    made.resume(tokens[1], client="two").close()
    assert made.query_bytes == 0


def test_windows_that_many_statements_share_are_counted():
    made = session(QueryLimits(MB // 4, 4 * MB, 8 * MB))
    asked = [f"SELECT v FROM s WHERE v > {k / 10}" for k in range(10)]
    with pytest.raises(LimitReached, match="max_query_bytes allows"):
        list(made.query_each(asked))
    assert made.query_bytes == 0


def test_directories_are_counted_while_they_are_built():
    made = session(QueryLimits(MB // 4, 4 * MB, 8 * MB))
    answer = made.query(JOIN)  # no summary: a directory is built
    with pytest.raises(LimitReached, match="max_query_bytes allows"):
        answer.run()
    assert answer.progress.read == 0


def test_pressed_comes_before_the_end():
    assert 0 < PRESSED < 15 / 16
