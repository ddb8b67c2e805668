"""LIMIT n BY: the rows of the same answer without it, less those beyond the n-th of each value, in the same order."""

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising.query.limit_by
from promising.errors import Overflow
from promising.query import Session
from promising.query.aggregate.grouping import Words
from promising.query.limit_by import Kept, RowsByValue
from tests.query.stores import MS, Row, Stores, filled, pieces, rows_of
from tests.query.test_resume import PREFERENCES, budgets
from tests.tiers import examples


def limited(rows: Iterable[Row], places: Sequence[int], most: int, limit: int | None) -> list[Row]:
    """What a LIMIT n BY some places of the rows, and then a LIMIT, leave of an answer."""
    seen: Counter[Row] = Counter()
    out = []
    for row in rows:
        value = tuple(row[place] for place in places)
        seen[value] += 1
        if seen[value] <= most:
            out.append(row)
    return out[:limit]


@pytest.fixture(scope="module", params=["BIGINT", "VARCHAR"])
def made(request: pytest.FixtureRequest) -> Stores:
    return filled(360, 60, strings=request.param == "VARCHAR")


COLUMNS = {"a.k": [0], "k": [0], "b.k": [1], "n": [4], "k, n": [0, 4]}
"""What it may be by, and where that is in the rows of `asked`."""


def asked(rng: random.Random, preference: str, *, join: bool) -> str:
    if join:
        sql = "SELECT a.k, b.k AS bk, a.id, b.id AS bid, b.n FROM a, b WHERE a.k = b.k"
        sql += rng.choice(["", " AND a.price > b.price"])
    else:
        sql = "SELECT k, k AS bk, id, id AS bid, n FROM a" + rng.choice(["", " WHERE price > 8"])
    clause = PREFERENCES[preference]
    if not join:
        clause = clause.replace(", SUMMARY.Estimate.Count(b.k)", "").replace("b.", "a.")
    sql += f" WITH PREFERENCE {clause}" if clause else ""
    sql += rng.choice(["", " FADE FACTOR 0.5", " FADE HALF LIFE 5 SECONDS"]) if clause else ""
    return sql + rng.choice(["", " WINDOW 15 SECONDS", " WINDOW 33 SECONDS"])


@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("preference", PREFERENCES)
def test_it_leaves_the_first_rows_of_each_value(made: Stores, preference: str, join: bool):
    rng = random.Random(f"{preference} {join}")
    for _ in range(6):
        sql = asked(rng, preference, join=join)
        by = rng.choice([c for c in COLUMNS if join or c != "b.k"])
        most, limit = rng.choice([1, 2, 5, 1 << 70]), rng.choice([None, None, 0, 1, 20])
        whole = rows_of(made.session.query(sql, seed=3))
        text = f"{sql} LIMIT {most} BY {by}" + ("" if limit is None else f" LIMIT {limit}")
        wanted = limited(whole, COLUMNS[by], most, limit)
        assert rows_of(made.session.query(text, seed=3)) == wanted, text
        made.cpu.step = rng.choice([2, 5, 10]) * MS
        got, progress = pieces(made, text, budgets(rng), seed=3)
        assert [row for piece in got for row in piece] == wanted, text
        assert all(p.total.lower <= len(wanted) <= p.total.upper for p in progress), text
        assert progress[-1].rows == len(wanted)


def test_a_key_that_has_had_its_rows_is_left():
    """Otherwise all pairs of the most frequent keys would be looked at."""
    made = filled(3_000, 20, strings=False)
    for where in ("", " AND a.price > b.price"):
        sql = f"SELECT a.k FROM a, b WHERE a.k = b.k{where} WITH PREFERENCE {PREFERENCES['DESC']} LIMIT 3 BY k"
        plan = made.session.explain(sql, analyze=True)
        assert "at most 3 of each k" in str(plan)
        assert "a key ends when it has had its rows" in str(plan)
        assert plan.progress is not None
        assert (plan.progress.rows, plan.progress.complete) == (60, True)
        assert set(Counter(rows_of(made.session.query(sql))).values()) == {3}


def test_candidates_of_finished_keys_are_not_made(monkeypatch: pytest.MonkeyPatch):
    offered: list[int] = []
    admit = RowsByValue.admit

    def counting(self: RowsByValue, words: Words) -> Kept:
        offered.append(words.shape[1])
        return admit(self, words)

    monkeypatch.setattr(RowsByValue, "admit", counting)
    made = filled(3_000, 20, strings=False)
    sql = f"SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE {PREFERENCES['DESC']} LIMIT 3 BY k"
    assert len(rows_of(made.session.query(sql))) == 60
    assert sum(offered) == 60  # of about a million pairs


@settings(max_examples=examples(60))
@given(st.data())
def test_values_of_every_type(data: st.DataObject):
    """NULL is a value, so is NaN, and -0.0 is 0.0; over rows, sorted rows and groups."""
    size = data.draw(st.integers(0, 40))
    kinds = {
        "i": st.none() | st.integers(-2, 2),
        "f": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
        "s": st.none() | st.sampled_from(["", "a", "b"]),
        "b": st.none() | st.booleans(),
    }
    columns = {name: data.draw(st.lists(one, min_size=size, max_size=size)) for name, one in kinds.items()}
    by = data.draw(st.lists(st.sampled_from(list(kinds)), min_size=1, max_size=3))
    most, limit = data.draw(st.integers(1, 3)), data.draw(st.none() | st.integers(0, 10))
    tail = f" LIMIT {most} BY {', '.join(by)}" + ("" if limit is None else f" LIMIT {limit}")
    with Session(seed=1, clock=lambda: 1 << 50) as session:
        session.execute("CREATE STREAM s (ts TIMESTAMP, i INT, f DOUBLE, s VARCHAR, b BOOLEAN) TIMESTAMP BY ts")
        if size:
            types = {"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "b": pa.bool_()}
            arrays = {name: pa.array(values, types[name]) for name, values in columns.items()}
            session.ingest("s", pa.table({"ts": pa.array(np.arange(size) * 1000), **arrays}))
        for select in (
            "SELECT i, f, s, b, ts FROM s",
            "SELECT i, f, s, b, ts FROM s ORDER BY i DESC, ts",
            "SELECT i, f, s, b, count(*), max(ts) AS last FROM s GROUP BY i, f, s, b ORDER BY last DESC",
        ):
            whole = rows_of(session.query(select))
            places = ["ifsb".index(name) for name in by]
            wanted = limited(map(comparable, whole), places, most, limit)
            assert list(map(comparable, rows_of(session.query(select + tail)))) == wanted, select + tail


def comparable(row: Row) -> Row:
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row)


def test_sorted_rows_are_evicted_early(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("promising.query.result_sinks.CROWDED", 16)
    made = filled(360, 30, strings=False)
    sql = "SELECT k, price, id FROM a ORDER BY price DESC, id"
    whole = rows_of(made.session.query(sql))
    for limit in (None, 7):
        tail = " LIMIT 2 BY k" + ("" if limit is None else f" LIMIT {limit}")
        assert rows_of(made.session.query(sql + tail)) == limited(whole, [0], 2, limit)


def test_in_query_many_and_under_another_name():
    made = filled(360, 30, strings=False)
    sql = "SELECT k % 3 AS third, id FROM a WHERE price BETWEEN 1 AND 50 LIMIT 2 BY THIRD"
    answers = made.session.query_many([sql] * 9)
    assert all(Counter(answer["third"].to_pylist()) == {0: 2, 1: 2, 2: 2} for answer in answers)


def test_more_values_than_are_counted_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(promising.query.limit_by, "MOST_VALUES", 10)
    made = filled(360, 60, strings=False)
    with pytest.raises(Overflow, match="more than 10 distinct values"):
        made.session.query("SELECT id FROM a LIMIT 1 BY id").to_arrow()
    assert len(rows_of(made.session.query("SELECT n FROM a LIMIT 1 BY n"))) == 9


def test_what_a_suspended_answer_counts_is_part_of_its_size():
    rows = RowsByValue(2, 1)
    rows.admit(np.arange(20_000).reshape(2, -1))
    assert rows.nbytes >= 10_000 * 40
