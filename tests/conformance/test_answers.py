"""Answers: rows of every type, empty and large ones, bounds, cutting, going on."""

import gc
import itertools
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import promising.errors as e
from promising.query import Session
from promising.query.answers import Answer
from tests.conformance.sessions import Opened
from tests.query.stores import Row, Stores, Ticking, as_rows, filled, pieces, tuples

SECOND = 1_000_000
LARGE = 300_000
TEXTS = [f"tuple number {i} of many" for i in range(LARGE)]
COLUMN = pa.array(TEXTS)


@pytest.fixture
def large(opened: Opened) -> Session:
    """A stream of several megabytes: an answer with all of it comes in many frames, and is cut before it is whole."""
    made = opened(seed=1)
    made.execute("CREATE STREAM big (ts TIMESTAMP, k INT, text VARCHAR) TIMESTAMP BY ts")
    made.execute("CREATE SUMMARY by_k ON big (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (2, 3)")
    rows = np.arange(LARGE)
    made.ingest("big", {"ts": rows * 100, "k": rows % 1000, "text": COLUMN})
    return made


# --- what rows can be --------------------------------------------------------------------------------------------


def test_every_type_and_null(opened: Opened):
    session = opened(seed=1)
    session.execute(
        "CREATE STREAM s (ts TIMESTAMP, i INT, f DOUBLE, t VARCHAR, b BOOLEAN, at TIMESTAMP) TIMESTAMP BY ts"
    )
    table = pa.table(
        {
            "ts": pa.array([1, 2, 3], pa.timestamp("us")),
            "i": [-(1 << 63), None, (1 << 63) - 1],
            "f": [float("-inf"), None, 1e-300],
            "t": ["", None, "naïve ☃ \U0001f6d2 'quoted'"],
            "b": [True, None, False],
            "at": pa.array([-1, None, 4_000_000_000_000_000], pa.timestamp("us")),
        }
    )
    assert session.ingest("s", table).accepted == 3
    found = session.query("SELECT * FROM s").to_arrow()
    assert found.schema == session.query("SELECT * FROM s").schema
    assert found.schema.types == [
        pa.timestamp("us"),
        pa.int64(),
        pa.float64(),
        found.schema.field("t").type,
        pa.bool_(),
        pa.timestamp("us"),
    ]
    assert found.to_pydict() == table.to_pydict()
    assert session.query("SELECT i FROM s WHERE t = 'naïve ☃ \U0001f6d2 ''quoted'''").to_arrow().num_rows == 1
    nan = {"ts": [4], "i": [1], "f": [float("nan")], "t": ["x"], "b": [True], "at": [datetime(2020, 1, 1)]}
    assert session.ingest("s", nan).accepted == 1
    assert np.isnan(session.query("SELECT f FROM s WHERE i = 1").to_arrow()["f"][0].as_py())


def test_names_in_any_script(opened: Opened):
    session = opened(seed=1)
    session.execute('CREATE STREAM "Läden ☃" ("Zeit" TIMESTAMP, "größe" VARCHAR) TIMESTAMP BY "Zeit"')
    session.execute('CREATE SUMMARY "nach größe" ON "Läden ☃" ("größe") WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 2)')
    assert session.ingest("Läden ☃", {"Zeit": [1, 2], "größe": ["ß", "Ω"]}).accepted == 2
    assert session.estimate("nach größe", ["ß", "Ω", "x"]).value.tolist() == [1.0, 1.0, 0.0]
    assert session.describe("nach größe").key == "größe"
    with pytest.raises(e.NoSuchName, match="Läden"):
        session.query('SELECT * FROM "Läden ☂"')


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, text FROM big WHERE k < 0",
        "SELECT k, text FROM big WHERE k < 0 ORDER BY k",
        "SELECT k, count(*) AS n FROM big WHERE k < 0 GROUP BY k",
        "SELECT k FROM big LIMIT 0",
    ],
)
def test_an_empty_answer_has_its_columns(sql: str, large: Session):
    answer = large.query(sql)
    found = answer.to_arrow()
    assert (found.num_rows, found.schema) == (0, answer.schema)
    assert found.column_names[0] == "k"
    assert answer.progress.complete and answer.progress.token is None


def test_lists_of_the_most_frequent(large: Session):
    """Values with their counts, of groups and of nothing; in one frame, and in many."""
    sql = "SELECT k, approx_top_k(text, 2) AS top, approx_count_distinct(text) AS n FROM big WHERE k < 3 GROUP BY k"
    found = large.query(sql + " ORDER BY k").to_arrow().to_pylist()
    first = [{"value": f"tuple number {t} of many", "count": 1, "lower": 1, "upper": 1} for t in (1, 100001)]
    assert (found[1]["top"], found[1]["n"], len(found)) == (first, 300, 3)
    (nothing,) = large.query("SELECT approx_top_k(k, 3) AS top FROM big WHERE k < 0").to_arrow().to_pylist()
    assert nothing == {"top": None}
    many = large.query("SELECT text, approx_top_k(k, 1) AS top FROM big WHERE k < 100 GROUP BY text").to_arrow()
    assert many.num_rows == LARGE // 10
    assert all(one["top"][0]["value"] < 100 for one in many.slice(0, 1000).to_pylist())


def test_a_stream_without_tuples(opened: Opened):
    session = opened(seed=1)
    session.execute("CREATE STREAM s (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
    session.execute("CREATE SUMMARY m ON s (k) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 2)")
    assert session.query("SELECT * FROM s").to_arrow().num_rows == 0
    assert session.query("SELECT count(*) AS n, sum(k) AS s FROM s").to_arrow().to_pylist() == [{"n": 0, "s": None}]
    assert session.describe("m", cells=True).watermark is None


# --- large ones --------------------------------------------------------------------------------------------------


def test_a_large_answer_comes_whole_and_in_order(large: Session):
    answer = large.query("SELECT k, text FROM big")
    frames = list(answer)
    assert len(frames) > 2
    assert [f.progress.rows for f in frames] == list(itertools.accumulate(f.rows.num_rows for f in frames))
    found = answer.to_arrow()
    assert found.nbytes > 8 << 20
    assert found["text"].to_pylist() == TEXTS


def test_a_large_frame_comes_in_one_piece(large: Session):
    """Sorted rows come in one frame, however many they are."""
    (frame,) = (f for f in large.query("SELECT text, k FROM big ORDER BY k, text") if f.rows.num_rows)
    assert frame.rows.num_rows == LARGE
    assert frame.mode == "replace"
    assert frame.rows["k"].to_numpy().tolist() == sorted(i % 1000 for i in range(LARGE))


def test_bounds_of_many_groups_fit_their_rows(large: Session):
    answer = large.query("SELECT text, count(*) AS n, sum(k) AS s FROM big GROUP BY text")
    assert answer.bounds is not None
    found = answer.to_arrow()
    assert found.num_rows == LARGE
    for bound in answer.bounds:
        assert bound.schema == found.schema
        assert bound["s"].to_pylist() == found["s"].to_pylist()


def test_rows_for_those_who_keep_them(large: Session):
    answer = large.query("SELECT k FROM big")
    assert sum(frame.rows.num_rows for frame in answer.stream()) == LARGE
    assert answer.progress.complete
    assert answer.to_arrow().num_rows == 0


def test_frames_of_other_libraries(large: Session):
    asked = "SELECT k, count(*) AS n FROM big GROUP BY k ORDER BY k LIMIT 3"
    assert large.query(asked).to_polars().to_dict(as_series=False) == {"k": [0, 1, 2], "n": [300] * 3}
    assert large.query(asked).to_pandas()["n"].tolist() == [300] * 3


# --- aggregates --------------------------------------------------------------------------------------------------


def test_an_error_target_ends_an_aggregate_with_bounds(large: Session):
    answer = large.query("SELECT count(*) AS n, avg(k) AS mean FROM big WHERE k > 100 WITH ERROR 0.1", seed=3).run()
    assert answer.bounds is not None
    lower, upper = answer.bounds
    for name in ("n", "mean"):
        assert lower[name][0].as_py() <= answer.to_arrow()[name][0].as_py() <= upper[name][0].as_py()
    assert answer.progress.cut in ("error", None)
    assert large.query("SELECT k FROM big LIMIT 1").bounds is None


def test_progress_before_the_first_frame(large: Session):
    progress = large.query("SELECT k FROM big").progress
    assert (progress.rows, progress.complete, progress.cut) == (0, False, None)
    assert progress.total.lower <= LARGE <= progress.total.upper


def test_a_limit_is_reached(large: Session):
    progress = large.query("SELECT k FROM big LIMIT 7").run().progress
    assert (progress.rows, progress.complete, progress.cut, progress.token) == (7, True, "limit", None)


# --- cut and taken up again --------------------------------------------------------------------------------------


def test_a_cancelled_answer_goes_on(large: Session):
    answer = large.query("SELECT text FROM big")
    seen: list[str] = []
    for frame in answer:
        seen += frame.rows["text"].to_pylist()
        answer.cancel()
    assert answer.progress.cut == "cancelled" and not answer.progress.complete
    assert 0 < len(seen) < LARGE
    assert answer.progress.token is not None
    rest = large.resume(answer.progress.token)
    seen += rest.to_arrow()["text"].to_pylist()
    assert seen == TEXTS
    assert rest.progress.complete and rest.progress.rows == LARGE


@pytest.mark.deep("waits until memory is given back")
def test_a_token_outlives_its_answer(large: Session):
    def cut() -> str | None:
        frames = large.query("SELECT text FROM big", budget=0).stream()
        return next(frame.progress.token for frame in frames if frame.progress.token)

    for _ in range(20):
        token = cut()
        gc.collect()  # the answer is gone, and nobody has read to its end
        assert token is not None
        large.resume(token, budget=0).close()


def test_cancel_after_the_end_changes_nothing(large: Session):
    answer = large.query("SELECT count(*) AS n FROM big").run()
    answer.cancel()
    answer.cancel()
    assert answer.progress.complete and answer.to_arrow()["n"].to_pylist() == [LARGE]


def test_a_closed_answer_has_nothing_more(large: Session):
    answer = large.query("SELECT text FROM big")
    rows = next(iter(answer)).rows.num_rows
    answer.close()
    answer.close()
    assert list(answer) == []
    assert answer.to_arrow().num_rows == rows


def test_an_answer_that_nobody_reads_is_let_go(large: Session):
    for _ in range(20):
        begun = large.query("SELECT text FROM big")
        next(iter(begun))
        del begun
        large.query("SELECT text FROM big")
    gc.collect()
    assert large.query("SELECT count(*) AS n FROM big").to_arrow()["n"].to_pylist() == [LARGE]


def test_two_answers_are_read_in_turns(large: Session):
    one, other = large.query("SELECT k FROM big"), large.query("SELECT text FROM big")
    for _ in itertools.zip_longest(one, other):
        pass
    assert one.to_arrow().num_rows == other.to_arrow().num_rows == LARGE


@pytest.mark.parametrize("budget", [0, 0.0, timedelta(0)])
def test_no_budget_no_rows(budget: Any, large: Session):
    answer = large.query("SELECT k FROM big", budget=budget).run()
    assert (answer.progress.rows, answer.progress.cut) == (0, "budget")
    assert answer.progress.token is not None
    assert large.resume(answer.progress.token).to_arrow().num_rows == LARGE


@pytest.fixture
def made(opened: Opened) -> Stores:
    """Streams a and b of 900 tuples, in a session whose CPU time is a clock that ticks when it is read."""
    kept = filled(900, 90)
    cpu = Ticking()
    session = opened(clock=lambda: 1 << 60, cpu=cpu, seed=5)
    for name in "ab":
        session.execute(
            f"CREATE STREAM {name} (id BIGINT, k BIGINT, ts TIMESTAMP, price DOUBLE, n BIGINT) TIMESTAMP BY ts"
        )
        session.execute(
            f"CREATE SUMMARY by_{name} ON {name} (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 4) STRUCTURE adaptive"
        )
    copied = Stores(session, cpu)
    for name in "ab":
        copied.ingest(name, kept.columns(name))
    return copied


JOIN = "SELECT a.id, b.id FROM a, b WHERE a.k = b.k"
BOTH = "SUMMARY.Estimate.Count(a.k), SUMMARY.Estimate.Count(b.k)"


@pytest.mark.parametrize("preference", ["", f"DESC {BOTH}", f"ASC {BOTH} FADE FACTOR 0.5", f"WEIGHTED {BOTH}"])
def test_pieces_make_the_whole(preference: str, made: Stores):
    """Whatever the budgets of the pieces, no row comes twice, none is missing, and the order is that of the whole."""
    asked = JOIN + (f" WITH PREFERENCE {preference}" if preference else "")
    truth, rng = made.pairs(), random.Random(preference)
    made.cpu.step = 1
    whole = as_rows(made.session.query(asked, seed=4).to_arrow())
    made.cpu.step = 10_000_000

    def late(piece: int) -> None:
        if piece <= 2:
            made.session.ingest("a", dict(tuples(20, 90, seed=8_000 + piece, start=20, seconds=19)))

    got, progress = pieces(
        made, asked, lambda n: rng.choice([0, 0.02, 0.05, 0.1]) if n < 8 else None, seed=4, between=late
    )
    flat: list[Row] = [row for piece in got for row in piece]
    assert len(got) > 2
    assert set(flat) == set(whole) == truth and len(flat) == len(truth)
    if not preference.startswith("WEIGHTED"):
        assert flat == whole
    assert all(p.total.lower <= len(truth) <= p.total.upper for p in progress)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*), sum(n), median(price) FROM a WHERE n > 3",
        "SELECT n, count(*), max(price), count(DISTINCT k) FROM a GROUP BY n ORDER BY n",
        "SELECT id, price FROM a ORDER BY price DESC, id LIMIT 20",
    ],
)
def test_whole_answers_end_exact(sql: str, made: Stores):
    exact = made.session.query(sql).to_arrow()
    answer: Answer = made.session.query(sql, budget=0.02).run()
    parts = 0
    while (token := answer.progress.token) is not None:
        assert not answer.progress.complete
        answer = made.session.resume(token, budget=0.05).run()
        parts += 1
    assert parts > 0
    assert answer.progress.complete and answer.to_arrow() == exact


def test_a_token_is_good_once(made: Stores):
    token = made.session.query("SELECT id FROM a", budget=0).run().progress.token
    assert token is not None
    assert made.session.resume(token).to_arrow().num_rows == 900
    with pytest.raises(e.TokenExpired, match="it was used"):
        made.session.resume(token)


# --- many statements ---------------------------------------------------------------------------------------------


def test_query_many_answers_each_exactly(large: Session):
    ranges = [f"SELECT k, text FROM big WHERE k >= {i} AND k < {i + 1}" for i in range(0, 12)]
    others = ["SELECT count(*) AS n FROM big", "SELECT k FROM big WHERE k < 0", "SELECT text FROM big"]
    found = large.query_many(ranges + others)
    for number, table in enumerate(found[:12]):
        assert set(table["k"].to_pylist()) == {number} and table.num_rows == 300
    assert found[12].to_pydict() == {"n": [LARGE]}
    assert found[13].num_rows == 0 and found[13].column_names == ["k"]
    assert found[14]["text"].to_pylist() == TEXTS
    assert large.query_many([]) == []


def test_query_many_fails_as_a_whole(large: Session):
    with pytest.raises(e.NoSuchName, match="did you mean k"):
        large.query_many(["SELECT k FROM big", "SELECT kk FROM big"])
    with pytest.raises(e.Unsupported, match="takes SELECTs"):
        large.query_many(["SHOW STREAMS"])
    with pytest.raises(e.DivisionByZero):
        large.query_many(["SELECT k FROM big", "SELECT 1 / k FROM big"])


# --- alike -------------------------------------------------------------------------------------------------------

Both = Callable[..., tuple[Session, Session]]


def test_the_same_seed_draws_the_same_on_both_sides(both: Both):
    orders = []
    for session in both(seed=5, clock=lambda: 1 << 60):
        session.execute("CREATE STREAM s (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
        session.execute("CREATE SUMMARY m ON s (k) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 8)")
        n = 2_000
        session.ingest("s", {"ts": np.arange(n) * 1000, "k": np.arange(n) % 37})
        asked = "SELECT ts, k FROM s WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(k)"
        orders += [session.query(asked, seed=seed).to_arrow().to_pydict() for seed in (1, -7, None)]
    assert orders[:3] == orders[3:]
    assert orders[0] != orders[1]


def test_half_characters_are_refused_where_they_stand(opened: Opened):
    session = opened()
    session.execute("CREATE STREAM s (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
    session.execute("CREATE SUMMARY m ON s (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (2, 3)")
    with pytest.raises(e.BadSequence, match="whole characters"):
        session.ingest("s", {"ts": [1], "k": [1]}, producer="\ud800", sequence=1)
    with pytest.raises(e.UnknownName, match=r"no column '\\ud800'"):
        session.probe("m", [1], columns=["\ud800"])
    with pytest.raises(e.BadToken):
        session.resume("a.\ud800")
