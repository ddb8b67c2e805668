"""Answers from cells and filters alone: `OPTIONS (postings = off)`, read bucket by bucket."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from promising.errors import BadClause, BadOptions, NoSummary, TokenExpired, Unsupported
from promising.index import cell_rows
from promising.index.cell_rows import CellRows
from promising.index.check import check_stream
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.query import Session, planner
from promising.query.binder import bind
from promising.query.operators.cell_join import CellJoin
from promising.query.operators.guided import Guided
from promising.query.planner import planning
from promising.query.sql import parse
from promising.query.steps import drained
from tests.query.stores import MS, SECOND, UNPOSTED, Row, Stores, Ticking, filled, pieces, rows_of, stores, tuples
from tests.query.test_noise import noise
from tests.query.test_resume import PREFERENCES, arriving, budgets, query
from tests.tiers import examples

ASKED = [("none", None), ("DESC", 0.3), ("DESC, one side", 0.3), ("DESC, falling", 0.3)]
"""Preferences, and a budget with which buckets are read."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Cells are read however small, in many slices, and a directory always takes too long for a budget."""
    monkeypatch.setattr(cell_rows, "FEWEST", 0)
    monkeypatch.setattr(cell_rows, "SLICE", 16)
    monkeypatch.setattr(planner, "BUILDING", 1 << 60)


def explained(made: Stores | Session, sql: str, budget: float | None) -> str:
    session = made.session if isinstance(made, Stores) else made
    return "\n".join(session.explain(sql, budget=budget).steps)


def whole(made: Stores, sql: str, budget: float | None) -> list[Row]:
    """All rows, of a plan made for a budget."""
    rows = pieces(made, sql, lambda number: None if number else budget, seed=3)[0]
    return [row for part in rows for row in part]


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize(("preference", "budget"), ASKED)
def test_buckets_give_every_row_once(preference, budget, join, strings):
    made = filled(360, 90, structure=UNPOSTED, strings=strings)
    rng = random.Random(f"{preference} {join} {strings}")
    for window in (None, 15, 33):
        asked = query(join, preference, fade="", window=window, where=rng.random() < 0.5)
        assert ("from cells and filters" in explained(made, asked.sql, budget)) == (join or preference != "none")
        assert Counter(whole(made, asked.sql, budget)) == Counter(asked.truth(made))


@pytest.mark.parametrize("preference", ["none", "DESC"])
def test_the_order_is_fixed_and_pieces_go_on(preference):
    made = filled(360, 90, structure=UNPOSTED)
    rng = random.Random(preference)
    made.cpu.step = 5 * MS
    for _ in range(examples(4)):
        asked = query(True, preference, fade="", window=rng.choice([None, 15]), where=rng.random() < 0.5)
        got, progress = pieces(made, asked.sql, lambda n: rng.choice((0.02, 0.05)) if n < 12 else None, seed=3)
        again, _ = pieces(made, asked.sql, lambda n: rng.choice((0.03, 0.1)) if n < 9 else None, seed=3)
        flat = [row for part in got for row in part]
        assert len(got) > 1 and flat == [row for part in again for row in part]
        assert Counter(flat) == Counter(asked.truth(made))
        for each in progress:
            assert each.total.lower <= len(flat) <= each.total.upper


@pytest.mark.parametrize("join", [False, True])
def test_tuples_that_arrive_meanwhile_are_not_in_the_answer(join):
    """Zones are sealed and collapse between two buckets."""
    for seed in range(examples(3)):
        made = filled(360, 90, structure=UNPOSTED, data=seed + 1)
        made.cpu.step = 5 * MS
        asked = query(join, "DESC", fade="", window=(None, 15)[seed % 2], where=False)
        truth = asked.truth(made)
        got, _ = pieces(made, asked.sql, lambda n: 0.11 if n < 9 else None, between=arriving(made))
        assert len(got) > 3
        assert Counter(row for part in got for row in part) == Counter(truth)


def test_noise_changes_the_order_of_buckets_and_no_row():
    made = filled(480, 90, structure=UNPOSTED)
    asked = query(True, "DESC", fade="", window=None, where=False)
    calm = whole(made, asked.sql, 0.3)
    noise(made, 1)
    noisy = whole(made, asked.sql, 0.3)
    assert noisy != calm and Counter(noisy) == Counter(calm) == Counter(asked.truth(made))
    asked = query(True, "none", fade="", window=15, where=True)
    assert Counter(whole(made, asked.sql, None)) == Counter(asked.truth(made))


def test_a_stream_with_itself():
    made = filled(300, 60, structure=UNPOSTED)
    sql = "SELECT x.id, y.id FROM a x, a y WHERE x.k = y.k"
    held = list(zip(made.columns("a")["id"].tolist(), made.columns("a")["k"].tolist(), strict=True))
    assert "from cells and filters of by_a, bucket by bucket" in explained(made, sql, None)
    assert Counter(whole(made, sql, None)) == Counter((i, j) for i, k in held for j, m in held if k == m)


def test_the_most_promising_bucket_comes_first():
    made = filled(900, 90, structure=UNPOSTED)
    asked = query(True, "DESC", fade="", window=None, where=False)
    rows = whole(made, asked.sql, 0.3)
    key = {**dict(zip(made.columns("a")["id"].tolist(), made.columns("a")["k"].tolist(), strict=True))}
    first = [key[row[0]] for row in rows]
    heaviest = Counter(made.columns("a")["k"].tolist()).most_common(1)[0][0]
    assert heaviest in first[: len(first) // 10]


def test_buckets_without_a_common_key_are_not_read():
    made = stores(structure=UNPOSTED)
    one, other = tuples(600, 40, seed=1), tuples(600, 40, seed=2)
    other["k"] = other["k"] + 39  # one key is common
    made.ingest("a", one)
    made.ingest("b", other)
    sql = query(True, "none", fade="", window=None, where=False)
    answer = made.session.query(sql.sql)
    assert Counter(rows_of(answer)) == Counter(sql.truth(made)) != Counter()
    assert answer.progress.read < 300


def test_a_summary_that_lacks_old_tuples_is_not_asked():
    """What the stream retains from before a summary reached it is in no cell."""
    made = filled(300, 40, structure=UNPOSTED, keep="400 SECONDS")
    asked = query(True, "none", fade="", window=None, where=False)
    state = made.session.summary("by_a").index.state
    snapshot = planner.snapshots_of(_bound(made, asked.sql), [])[0]
    assert CellRows(made.session.summary("by_a").index, snapshot).usable
    state.floor = snapshot.earliest + 1
    assert not CellRows(made.session.summary("by_a").index, snapshot).usable
    assert "plain hash join" in explained(made, asked.sql, None)


def _bound(made: Stores, sql: str):
    return bind(parse(sql), sql, made.session.catalog)


def test_a_summary_that_is_dropped_meanwhile():
    made = filled(300, 40, structure=UNPOSTED)
    made.cpu.step = 5 * MS
    asked = query(True, "DESC", fade="", window=None, where=False)
    answer = made.session.query(asked.sql, budget=0.05)
    rows_of(answer)
    made.session.execute("DROP SUMMARY by_b")
    token = answer.progress.token
    assert token is not None
    with pytest.raises(TokenExpired, match="by_b"):
        rows_of(made.session.resume(token))


def test_one_side_with_postings_is_looked_up():
    made = filled(300, 40, structure=UNPOSTED)
    made.session.execute("DROP SUMMARY by_b")
    made.session.execute("CREATE SUMMARY by_b ON b (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 4)")
    asked = query(True, "none", fade="", window=None, where=False)
    assert "look up b from postings of summary by_b" in explained(made, asked.sql, None)
    assert Counter(whole(made, asked.sql, None)) == Counter(asked.truth(made))


def test_summaries_of_other_sizes():
    """Fewer counters, or a smaller filter: no order, and nothing is left out. Fewer buckets: no common cells."""
    for options, cells in (("width = 32", True), ("coarse_bits = 65536", True), ("buckets = 8", False)):
        made = filled(300, 40, structure=UNPOSTED)
        made.session.execute("DROP SUMMARY by_b")
        made.session.execute(
            "CREATE SUMMARY by_b ON b (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 4)"
            f" OPTIONS (postings = off, {options})"
        )
        asked = query(True, "DESC", fade="", window=None, where=False)
        assert ("from cells and filters" in explained(made, asked.sql, 0.3)) == cells
        assert Counter(whole(made, asked.sql, 0.3)) == Counter(asked.truth(made))


def test_postings_are_used_where_another_summary_has_them():
    made = filled(300, 40, structure=UNPOSTED)
    for name in "ab":
        made.session.execute(f"CREATE SUMMARY a_{name} ON {name} (k) WITH GRANULARITY 1 SECONDS AND COLLAPSE (2, 2)")
    asked = query(True, "DESC", fade="", window=None, where=False)
    assert "keys of b.k from postings of summary a_b" in explained(made, asked.sql, 0.3)


def test_what_needs_all_keys_builds_a_directory():
    made = filled(300, 40, structure=UNPOSTED)
    for preference in ("ASC", "WEIGHTED", "DESC, tuples"):
        asked = query(True, preference, fade="", window=None, where=False)
        assert "in a directory built for this query (postings of by_a are off)" in explained(made, asked.sql, 0.3)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ("postings = 1", BadClause, "option postings is on or off"),
        ("postings = maybe", BadClause, "option postings is on or off"),
        ("postings = TRUE", BadClause, "option postings is on or off"),
        ("buckets = on", BadClause, "option buckets takes a whole number"),
        ("postings = off, postings = on", BadClause, "given twice"),
    ],
)
def test_what_an_option_takes(options, error, says):
    made = stores()
    with pytest.raises(error, match=says):
        made.session.execute(
            f"CREATE SUMMARY s ON a (k) WITH GRANULARITY 1 SECONDS AND COLLAPSE (2, 2) OPTIONS ({options})"
        )


def test_auto_has_postings():
    made = stores()
    sql = "CREATE SUMMARY s ON a (k) WITH GRANULARITY 1 SECONDS AND COLLAPSE (2, 2) STRUCTURE auto"
    with pytest.raises(BadOptions, match="name one, such as STRUCTURE adaptive"):
        made.session.execute(f"{sql} OPTIONS (postings = off)")
    made.session.execute(f"{sql} OPTIONS (postings = on)")


def listed(made: Stores) -> list[dict[str, Any]]:
    table = made.session.execute("SHOW SUMMARIES")
    assert isinstance(table, pa.Table)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_what_is_shown_creates_one_like_it():
    made = stores(structure=UNPOSTED)
    shown = listed(made)
    assert [one["postings"] for one in shown] == ["off", "off"]
    made.session.execute("DROP SUMMARY by_a")
    made.session.execute(shown[0]["statement"])
    assert listed(made) == shown
    assert not made.session.describe("by_a").postings
    assert made.session.describe("by_a").key_bytes == 0


def test_the_worker_holds_one_bucket():
    made = filled(900, 90, structure=UNPOSTED)
    asked = query(True, "none", fade="", window=None, where=False)
    worker = drained(planning(_bound(made, asked.sql), lambda: 256, None, 1)).worker
    assert isinstance(worker, CellJoin)
    most = 0
    for _ in worker.work():
        most = max(most, worker.nbytes)
        left = worker.remaining()
        assert left is None or left.lower <= left.upper
    left = worker.remaining()
    assert 0 < most < 600 * 28 and left is not None and left.upper == 0


def test_the_stream_is_locked_for_a_slice_at_a_time(monkeypatch):
    monkeypatch.setattr("promising.query.operators.cell_join.SLICE", 7)
    made = filled(900, 30, structure=UNPOSTED)
    looked, usual = [], CellRows.there

    def there(side, rows):
        looked.append(len(rows))
        return usual(side, rows)

    monkeypatch.setattr(CellRows, "there", there)
    asked = query(True, "none", fade="", window=11, where=False)
    assert "bucket by bucket" in explained(made, asked.sql, None)
    assert Counter(whole(made, asked.sql, None)) == Counter(asked.truth(made))
    assert max(looked) == 7


def test_a_limit_has_the_best_keys_however_short_the_budget():
    made = filled(900, 90, structure=UNPOSTED)
    asked = query(True, "DESC", fade="", window=None, where=False).sql
    assert "bucket by bucket" in explained(made, asked, 1e-6)
    assert "bucket by bucket" not in explained(made, f"{asked} LIMIT 3", 1e-6)
    assert "bucket by bucket" not in explained(made, f"{asked} LIMIT 1 BY a.k", 1e-6)


@pytest.mark.deep("many random queries")
@pytest.mark.parametrize("strings", [False, True])
def test_random_queries(strings):
    rng = random.Random(f"unposted {strings}")
    for number in range(40):
        made = filled(300, rng.choice((5, 60, 2_000)), structure=UNPOSTED, strings=strings, data=number + 1)
        for name in rng.sample("ab", 2):
            made.ingest(
                name, tuples(90, 40, seed=5_000 + number, start=rng.choice((30, 45)), seconds=3, strings=strings)
            )
        for preference, _ in ASKED:
            asked = query(
                rng.random() < 0.7,
                preference,
                fade="",
                window=rng.choice([None, 7, 20]),
                where=rng.random() < 0.5,
                limit=rng.choice([None, None, 17]),
            )
            truth = asked.truth(made)
            made.cpu.step = rng.choice([2, 5, 10]) * MS
            got = [row for part in pieces(made, asked.sql, budgets(rng))[0] for row in part]
            assert len(got) == len(set(got)) == (len(truth) if asked.limit is None else min(asked.limit, len(truth)))
            assert set(got) <= truth


@pytest.mark.parametrize("strings", [False, True])
def test_keys_that_are_named_are_looked_for_in_cells(strings):
    made = filled(600, 300, structure=UNPOSTED, strings=strings)
    rng = random.Random(f"named {strings}")
    for number in range(examples(6)):
        keys = rng.sample(range(320), rng.choice((1, 1, 4, 40)))
        named = {f"item {k}" for k in keys} if strings else set(keys)
        listed = ", ".join(f"'{k}'" if strings else str(k) for k in named)
        join, window = number % 2 == 0, rng.choice([None, 11])
        asked = query(join, rng.choice(list(PREFERENCES)), fade="", window=window, where=False)
        sql = asked.sql.replace("a.k = b.k", f"a.k = b.k AND a.k IN ({listed})")
        sql = sql if join else sql.replace(" FROM a", f" FROM a WHERE a.k IN ({listed})")
        assert "from cells and filters of summary by_a" in explained(made, sql, None)
        held = made.window(window, "a", "b")
        key = [dict(zip(part["id"].tolist(), part["k"].tolist(), strict=True)) for part in held]
        truth = {row for row in asked.truth(made) if key[0][row[0]] in named}
        assert Counter(whole(made, sql, rng.choice([None, 0.3]))) == Counter(truth)


def test_few_cells_are_read_for_a_key():
    made = stores(structure="adaptive OPTIONS (postings = off, maxlength = 256)")
    for part in range(10):
        made.ingest("a", tuples(1_000, 5_000, seed=part, start=part, seconds=1, exponent=0.0))
    key = int(made.columns("a")["k"][17])
    worker = drained(planning(_bound(made, f"SELECT id FROM a WHERE k = {key}"), lambda: 256, None, 1)).worker
    assert isinstance(worker, Guided)
    cells, only = worker.plan.sides[0].cells, worker.plan.restrict
    assert cells is not None and only is not None
    assert sum(len(rows) for rows in cells.with_keys(only)) < 2_000
    assert set(rows_of(made.session.query(f"SELECT id FROM a WHERE k = {key}"))) == made.selected(
        where=lambda row: row[1] == key
    )


def test_a_share_of_a_scan_needs_postings():
    made = filled(300, 40, structure=UNPOSTED)
    sql = "SELECT a.id FROM a, b WHERE a.k = b.k"
    whole_of_it = made.session.plan_scan(sql)
    assert len(whole_of_it.scans) == 2
    with pytest.raises(NoSummary, match=r"postings of by_a are off.*with postings = on"):
        made.session.plan_scan(sql, share=0.5)


STATEMENTS = (
    "SELECT a.k, count(*), sum(b.n) FROM a, b WHERE a.k = b.k GROUP BY a.k",
    "SELECT count(*), min(a.price) FROM a, b WHERE a.k = b.k AND a.n < b.n WINDOW 15 SECONDS",
    "SELECT a.id, b.id FROM a, b WHERE a.k = b.k ORDER BY a.id, b.id LIMIT 20",
    "SELECT DISTINCT a.k FROM a, b WHERE a.k = b.k",
    "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k WINDOW 5 SECONDS)",
    "SELECT a.k FROM a, b WHERE a.k = b.k LIMIT 2 BY a.k",
    "SELECT a.k FROM a WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.k) LIMIT 1 BY a.k",
)


def test_other_statements_are_answered_as_with_postings():
    made, known = (filled(400, 60, structure=structure) for structure in (UNPOSTED, "adaptive"))
    asked = 0
    for sql in STATEMENTS:
        try:
            expected = Counter(rows_of(known.session.query(sql, budget=None)))
        except Unsupported:
            with pytest.raises(Unsupported):
                made.session.query(sql).to_arrow()
            continue
        asked += 1
        assert Counter(rows_of(made.session.query(sql))) == expected
        budgeted = whole(made, sql, 0.3) if "count(" not in sql and "ORDER" not in sql else []
        assert not budgeted or Counter(budgeted) == expected
    assert asked > 4


@pytest.mark.deep("opens stores")
@pytest.mark.parametrize("hot", [0, 1 << 40])
def test_they_survive_keep_restart_and_cold_tuples(tmp_path, monkeypatch, hot):
    """By cells while all is in memory; without them once some of it is in files."""
    monkeypatch.setattr("promising.index.log.CHUNK", 64)
    options = StoreOptions(hot_tuples=hot, run_tuples=64, sync="relaxed")
    asked = query(True, "DESC", fade="", window=None, where=False)
    rng = np.random.default_rng(hot % 7)
    held: dict[str, list[tuple[int, int, int]]] = {"a": [], "b": []}
    plans = []
    for part in range(4):
        store = Store.open(tmp_path, seed=3, clock=lambda: 1 << 60, options=options)
        with Session(store=store, clock=lambda: 1 << 60, cpu=Ticking(), seed=3) as session:
            for name in "ab":
                if not part:
                    columns = "id BIGINT, k BIGINT, ts TIMESTAMP"
                    session.execute(f"CREATE STREAM {name} ({columns}) TIMESTAMP BY ts KEEP 400 SECONDS")
                    session.execute(
                        f"CREATE SUMMARY by_{name} ON {name} (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 4)"
                        " OPTIONS (postings = off, maxlength = 256)"
                    )
                n = 300
                ts = np.sort(rng.integers(part * 150, part * 150 + 170, n)) * SECOND
                keys = rng.integers(0, 40, n)
                session.ingest(name, {"id": np.arange(n) + 1_000 * part, "k": keys, "ts": ts})
                held[name] += zip((np.arange(n) + 1_000 * part).tolist(), keys.tolist(), ts.tolist(), strict=True)
                stream = session.stream(name)
                assert not check_stream(stream)
                held[name] = [row for row in held[name] if stream.oldest is None or row[2] >= stream.oldest]
            if part % 2:
                store.checkpoint()
            pairs = {(x[0], y[0]) for x in held["a"] for y in held["b"] if x[1] == y[1]}
            plans.append(explained(session, asked.sql, 0.3))
            first = session.query(asked.sql, budget=0.3)
            rows_first = rows_of(first)
            token = first.progress.token
            rest = [] if token is None else rows_of(session.resume(token))
            assert Counter(rows_first + rest) == Counter(pairs)
            named = "SELECT id FROM a WHERE k IN (3, 17, 99)"
            assert Counter(rows_of(session.query(named))) == Counter((i,) for i, k, _ in held["a"] if k in (3, 17))
    assert all("from cells and filters" in plan for plan in plans) == (hot > 0)
