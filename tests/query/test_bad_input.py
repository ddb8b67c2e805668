"""What is wrong is told with a typed error at its place, and leaves everything as it was."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import promising.errors as e
from promising.query import Session
from promising.query.resume_tokens import KEPT, MOST
from promising.testing import ManualClock

SECOND = 1_000_000
TUPLES = 1200


class World:
    """Two streams; `fact` has a minute of tuples and a summary on `k`, `other` less and a summary without structure."""

    def __init__(self, opened: Callable[..., Session] = Session) -> None:
        self.clock = ManualClock(1_000 * SECOND)
        self.session = s = opened(clock=self.clock, seed=3)
        s.execute_many(
            """
            CREATE STREAM fact (ts TIMESTAMP, k INT, name VARCHAR, n INT, price DOUBLE)
              TIMESTAMP BY ts LATENESS 2 SECONDS KEEP 80 SECONDS;
            CREATE SUMMARY by_k ON fact (k) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3);
            CREATE STREAM other (ts TIMESTAMP, k INT, name VARCHAR) TIMESTAMP BY ts KEEP 80 SECONDS;
            CREATE SUMMARY bare ON other (k) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3) STRUCTURE none;
            CREATE CONTINUOUS QUERY watch AS SELECT k, count(*) FROM fact GROUP BY k WINDOW 5 SECONDS
            """
        )
        ts = [i * 60 * SECOND // TUPLES for i in range(TUPLES)]
        k = [i % 7 for i in range(TUPLES)]
        name = [str(i % 5) for i in range(TUPLES)]
        n = [i % 4 for i in range(TUPLES)]
        self.session.ingest("fact", {"ts": ts, "k": k, "name": name, "n": n, "price": [i / 2 for i in range(TUPLES)]})
        self.session.ingest("other", {"ts": ts[:90], "k": k[:90], "name": name[:90]})

    def age(self) -> None:
        """Let everything become older than the stream keeps."""
        self.session.ingest("fact", {"ts": [300 * SECOND], "k": [1], "name": ["x"], "n": [1], "price": [0.0]})

    def state(self) -> list[Any]:
        """All that a user can see."""
        s = self.session
        shown: list[Any] = [s.execute(f"SHOW {what}") for what in ("STREAMS", "SUMMARIES", "QUERIES")]
        shown += [s.execute(f"DESCRIBE {what}") for what in ("fact", "by_k", "other", "watch")]
        shown += [s.query(f"SELECT * FROM {stream}").to_arrow() for stream in ("fact", "other")]
        return [table.to_pydict() for table in shown]


@pytest.fixture(scope="module")
def shared() -> World:
    return World()


@pytest.fixture
def world() -> World:
    return World()


def marked(problem: e.StatementError, sql: str) -> str:
    """What the caret points at, to the end of the line. The message must show it in the same place."""
    assert problem.line is not None and problem.column is not None, f"no place: {problem}"
    line = sql.split("\n")[problem.line - 1]
    *_, shown, caret = str(problem).split("\n")
    assert shown == "  " + line
    assert caret.index("^") == problem.column + 1
    return line[problem.column - 1 :]


JOIN = "SELECT x.k FROM fact x, other y WHERE x.k = y.k"
DESC = "WITH PREFERENCE DESC SUMMARY.Estimate.Count(x.k)"
SUMMARY = "CREATE SUMMARY c ON fact (k) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3)"
STREAM = "CREATE STREAM c (ts TIMESTAMP, a INT) TIMESTAMP BY ts"

# statement, error, part of the message, what the caret points at
CASES: list[tuple[str, type[e.PromisingError], str, str]] = [
    # syntax
    ("", e.BadSyntax, "no statement", ""),
    ("SELEC k FROM fact", e.BadSyntax, "expected a statement, found SELEC", "SELEC"),
    ("SELECT k FROM fact WHERE", e.BadSyntax, "found the end", ""),
    ("SELECT k\nFROM fact\nWHERE k >\n  ) 3", e.BadSyntax, "expected an expression", ") 3"),
    ("SELECT k FROM fact; SELECT n FROM fact", e.BadSyntax, "second statement", "SELECT n"),
    ("SELECT k FROM fact LIMIT 1 LIMIT 2", e.BadClause, "twice", "LIMIT 2"),
    ("SELECT DISTINCT k FROM fact", e.Unsupported, "DISTINCT", "DISTINCT"),
    ("SELECT k FROM fact UNION SELECT k FROM other", e.Unsupported, "UNION", "UNION"),
    ("SELECT 1", e.Unsupported, "without FROM", "SELECT"),
    ("SELECT SUMMARY.Estimate.Count(k) FROM fact", e.Unsupported, "outside of PREFERENCE", "SUMMARY"),
    ("EXPLAIN SHOW STREAMS", e.Unsupported, "EXPLAIN", "SHOW"),
    ("EXPLAIN DROP STREAM fakt", e.NoSuchName, "did you mean fact?", "fakt"),
    # names
    ("SELECT pric FROM fact", e.NoSuchName, "did you mean price?", "pric FROM"),
    ("SELECT k FROM fatc", e.NoSuchName, "did you mean fact?", "fatc"),
    ("SELECT z.k FROM fact x", e.NoSuchName, "'z'", "z.k"),
    ("SELECT z.* FROM fact x", e.NoSuchName, "'z'", "z.*"),
    ("SELECT k FROM fact x, other y WHERE x.k = y.k", e.Ambiguous, "x.k or y.k", "k FROM"),
    ("SELECT medain(k) FROM fact", e.NoSuchName, "did you mean median?", "medain"),
    ("SELECT k FROM by_k", e.NoSuchName, "it is a summary", "by_k"),
    ("SELECT k FROM fact WITH PREFERENCE DESC SUMMARY.Estimate.Count(kk)", e.NoSuchName, "did you mean k?", "kk"),
    ("DROP SUMMARY by_kk", e.NoSuchName, "did you mean by_k?", "by_kk"),
    ("DROP STREAM watch", e.NoSuchName, "it is a query", "watch"),
    ("DESCRIBE facts", e.NoSuchName, "did you mean fact?", "facts"),
    ("CREATE CONTINUOUS QUERY q AS SELECT kk FROM fact", e.NoSuchName, "did you mean k?", "kk"),
    (
        "CREATE SUMMARY c ON fakt (k) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 3)",
        e.NoSuchName,
        "did you mean fact?",
        "fakt",
    ),
    (SUMMARY.replace("(k)", "(nam)"), e.NoSuchName, "did you mean name?", "nam)"),
    (STREAM.replace("BY ts", "BY t"), e.NoSuchName, "did you mean ts?", "t"),
    ("SELECT * FROM fact, fact WHERE fact.k = fact.k", e.BadClause, "another alias", "fact WHERE"),
    # types
    ("SELECT k + name FROM fact", e.TypeMismatch, "+ does not work on an integer and a string", "k + name"),
    ("SELECT k FROM fact WHERE k", e.TypeMismatch, "true or false", "k"),
    ("SELECT k FROM fact WHERE k = 'x'", e.TypeMismatch, "'x' is not an integer", "k = 'x'"),
    ("SELECT k FROM fact WHERE ts > 'yesterday'", e.TypeMismatch, "not a timestamp", "ts >"),
    ("SELECT sum(name) FROM fact", e.TypeMismatch, "sum wants a number", "name)"),
    ("SELECT median(ts) FROM fact", e.TypeMismatch, "median wants a number", "ts)"),
    ("SELECT sum(k) FROM fact HAVING count(*)", e.TypeMismatch, "true or false", "count(*)"),
    (
        "SELECT x.k FROM fact x, other y WHERE x.k = y.k AND x.n = y.name",
        e.TypeMismatch,
        "integer and a string",
        "x.n = y.name",
    ),
    ("SELECT x.k FROM fact x, other y WHERE x.k = y.name", e.TypeMismatch, "integer and a string", "x.k = y.name"),
    (
        "SELECT k FROM fact WITH PREFERENCE SUMMARY.Estimate.Count(k), name",
        e.TypeMismatch,
        "a preference is a number",
        "name",
    ),
    # aggregates and clauses out of place
    ("SELECT k, count(*) FROM fact", e.BadClause, "neither in GROUP BY", "k, count"),
    ("SELECT k FROM fact WHERE count(*) > 1", e.BadClause, "cannot stand in WHERE", "count(*)"),
    ("SELECT sum(count(*)) FROM fact", e.BadClause, "another aggregate", "count(*)"),
    ("SELECT k FROM fact GROUP BY 2", e.BadClause, "there are 1 columns", "2"),
    ("SELECT k FROM fact ORDER BY 0", e.BadClause, "there are 1 columns", "0"),
    ("SELECT quantile(k, 1.5) FROM fact", e.BadClause, "from 0 to 1", "quantile"),
    ("SELECT k FROM fact LIMIT -1", e.BadClause, "LIMIT", "LIMIT"),
    ("SELECT k FROM fact LIMIT 0 BY k", e.BadClause, "a whole number from 1 on, as in LIMIT 2 BY column", "LIMIT 0"),
    ("SELECT k FROM fact LIMIT -2 BY k", e.BadClause, "a whole number from 1 on", "LIMIT -2"),
    ("SELECT k FROM fact LIMIT 1.5 BY k", e.BadClause, "a whole number from 1 on", "LIMIT 1.5"),
    ("SELECT k FROM fact LIMIT 2 BY nme", e.NoSuchName, "no column 'nme' in fact; did you mean name?", "nme"),
    ("SELECT k AS things FROM fact LIMIT 2 BY thing", e.NoSuchName, "did you mean things?", "thing"),
    ("SELECT k FROM fact LIMIT 2 BY f.k", e.NoSuchName, "no stream 'f' in this query", "f.k"),
    ("SELECT 1 FROM fact x, other y WHERE x.k = y.k LIMIT 2 BY k", e.Ambiguous, "write x.k or y.k", "k"),
    ("SELECT n, count(*) FROM fact GROUP BY n LIMIT 2 BY k", e.BadClause, "neither in GROUP BY", "k"),
    ("SELECT x.k FROM fact x, other y", e.Unsupported, "equality", "SELECT"),
    ("SELECT x.k FROM fact x, other y WHERE x.k < y.k", e.Unsupported, "equality", "x.k < y.k"),
    # run time
    ("SELECT k / (n - 3) FROM fact", e.DivisionByZero, "/ 0", "k / (n"),
    ("SELECT k % n FROM fact", e.DivisionByZero, "% 0", "k % n"),
    ("SELECT n, sum(k) / (n - 1) FROM fact GROUP BY n", e.DivisionByZero, "/ 0", "sum(k)"),
    ("SELECT count(*) FROM fact WHERE k / n > 0", e.DivisionByZero, "/ 0", "k / n"),
    ("SELECT x.k FROM fact x, other y WHERE x.k / x.n = y.k", e.DivisionByZero, "/ 0", "x.k / x.n"),
    ("SELECT 9223372036854775807 + k FROM fact", e.Overflow, "does not fit 64 bits", "92233"),
    ("SELECT 9223372036854775808 FROM fact", e.Overflow, "does not fit 64 bits", "92233"),
    ("SELECT sum(9223372036854775807 - k) FROM fact", e.Overflow, "does not fit 64 bits", "sum"),
    ("SELECT k FROM fact ORDER BY (k + 1) * 9223372036854775807", e.Overflow, "does not fit 64 bits", "(k + 1)"),
    ("SELECT CAST(name || 'x' AS INT) FROM fact", e.BadCast, "'0x'", "CAST"),
    ("SELECT k FROM fact WITH PREFERENCE 1 / (SUMMARY.Estimate.Count(k) * 0)", e.DivisionByZero, "1 / 0", "1 / ("),
    # preferences
    ("SELECT k FROM fact WITH PREFERENCE DESC SUMMARY.Estimate.Count(n)", e.NoSummary, "no summary on n", "SUMMARY"),
    ("SELECT k FROM fact WITH PREFERENCE DESC n", e.BadClause, "at least one SUMMARY.Estimate", "WITH PREF"),
    ("SELECT x.k FROM fact x, other y WHERE x.name = y.name " + DESC, e.NoSummary, "x.name has none", "WITH PREF"),
    (JOIN + " " + DESC + " * x.n * y.k", e.Unsupported, "one of the two streams", "WITH PREF"),
    ("SELECT k FROM fact ORDER BY k WITH PREFERENCE SUMMARY.Estimate.Count(k)", e.BadClause, "not both", "ORDER BY"),
    (JOIN + " " + DESC + " FADE FACTOR 0", e.BadClause, "greater than 0 and at most 1", "0"),
    (JOIN + " " + DESC + " FADE FACTOR 1.01", e.BadClause, "greater than 0 and at most 1", "1.01"),
    (JOIN + " " + DESC + " FADE FACTOR -0.5", e.BadClause, "greater than 0 and at most 1", "-0.5"),
    (JOIN + " " + DESC + " FADE HALF LIFE 0 HOURS", e.BadClause, "longer than nothing", "0 HOURS"),
    (JOIN + " " + DESC + " FADE HALF LIFE -1 DAY", e.BadClause, "longer than nothing", "-1 DAY"),
    (JOIN + " " + DESC + " FADE HALF LIFE 1 DAY FADE FACTOR 0.5", e.BadClause, "exclude each other", "FADE FACTOR"),
    (JOIN + " FADE HALF LIFE 1 DAY", e.BadClause, "FADE HALF LIFE changes a preference", "1 DAY"),
    (JOIN + " FADE FACTOR 0.5", e.BadClause, "WITH PREFERENCE is missing", "0.5"),
    # spans
    ("SELECT k FROM fact WINDOW 0 SECONDS", e.BadClause, "longer than nothing", "0 SEC"),
    ("SELECT k FROM fact WINDOW -5 SECONDS", e.BadClause, "longer than nothing", "-5 SEC"),
    ("SELECT k FROM fact WINDOW 0.0000001 SECONDS", e.BadClause, "whole number of microseconds", "0.0000001"),
    ("SELECT k FROM fact WINDOW 99999999999999999 DAYS", e.BadClause, "longer than any span", "9999"),
    ("SELECT k FROM fact BUDGET -1 SECONDS", e.BadClause, "must not be negative", "-1"),
    ("SELECT k FROM fact BUDGET 5", e.BadClause, "needs a unit", "5"),
    ("SELECT k FROM fact BUDGET 2 HOURS", e.BadClause, "an hour at most", "2 HOURS"),
    ("SELECT count(*) FROM fact WITH ERROR 1", e.BadClause, "between 0 and 1", "WITH ERROR"),
    ("SELECT count(*) FROM fact WITH ERROR 0.1 CONFIDENCE 1", e.BadClause, "less than 1", "WITH ERROR"),
    ("SELECT k FROM fact WITH ERROR 0.1", e.BadClause, "this query has none", "WITH ERROR"),
    ("SELECT max(k) FROM fact WITH ERROR 0.1", e.BadClause, "cannot be promised for max", "WITH ERROR"),
    # definitions that are clauses
    (SUMMARY.replace("(2, 3)", "(2.5, 3)"), e.BadClause, "the rate is a whole number", "2.5"),
    (SUMMARY.replace("(2, 3)", "(2, 3) OPTIONS (bucket = 4)"), e.BadClause, "did you mean buckets?", "bucket"),
    (SUMMARY.replace("(2, 3)", "(2, 3) OPTIONS (width = 8, width = 8)"), e.BadClause, "given twice", "width = 8)"),
    (SUMMARY.replace("(2, 3)", "(2, 3) OPTIONS (width = 'wide')"), e.BadClause, "takes a whole number", "width"),
    (STREAM.replace("a INT", "ts INT"), e.BadClause, "given twice", "ts INT"),
    (STREAM.replace("INT", "DECIMAL"), e.Unsupported, "DECIMAL", "DECIMAL"),
    # what is needed
    ("DROP STREAM fact", e.InUse, "summary by_k, query watch", "fact"),
    ("DROP STREAM other", e.InUse, "summary bare", "other"),
]


@pytest.mark.parametrize(("sql", "kind", "message", "at"), CASES, ids=[case[0][:60] or "empty" for case in CASES])
def test_the_error_is_typed_and_points_at_its_place(sql, kind, message, at, shared: World):
    before = shared.state()
    with pytest.raises(e.StatementError) as found:
        shared.session.execute(sql)
    assert type(found.value) is kind, found.value
    assert message in found.value.problem
    assert marked(found.value, sql).startswith(at)
    assert shared.state() == before


# Definitions that the index refuses: statement, error, part of the message
DEFINITIONS: list[tuple[str, type[e.PromisingError], str]] = [
    (SUMMARY.replace("(2, 3)", "(1, 3)"), e.BadCollapse, "rate of at least 2"),
    (SUMMARY.replace("(2, 3)", "(0, 3)"), e.BadCollapse, "rate of at least 2"),
    (SUMMARY.replace("(2, 3)", "(-2, 3)"), e.BadCollapse, "rate of at least 2"),
    (SUMMARY.replace("(2, 3)", "(2, 0)"), e.BadCollapse, "depth of at least 1"),
    (SUMMARY.replace("(2, 3)", "(2, 300)"), e.BadCollapse, "further than time goes"),
    (SUMMARY.replace("(2, 3)", "(99999999999999999999, 3)"), e.BadCollapse, "further than time goes"),
    (SUMMARY.replace("10 SECONDS", "0 SECONDS"), e.BadGranularity, "must be positive"),
    (SUMMARY.replace("10 SECONDS", "-1 SECONDS"), e.BadGranularity, "must be positive"),
    (SUMMARY + " OPTIONS (buckets = 3)", e.BadOptions, "power of two"),
    (SUMMARY + " OPTIONS (buckets = -4)", e.BadOptions, "power of two"),
    (SUMMARY + " OPTIONS (ceiling = 1)", e.CeilingTooLow, "ceiling"),
    (SUMMARY.replace("(k)", "(price)"), e.BadSchema, "must be of type int or string"),
    (SUMMARY.replace("SUMMARY c", "SUMMARY by_k"), e.DuplicateName, "is a summary already"),
    (STREAM.replace("STREAM c", "STREAM Fact"), e.DuplicateName, "is a stream already"),
    (STREAM.replace("STREAM c", "STREAM watch"), e.DuplicateName, "is a query already"),
    (STREAM.replace("ts TIMESTAMP", "ts INT"), e.BadSchema, "timestamp"),
    (STREAM + " LATENESS -1 SECONDS", e.BadOptions, "not negative"),
    (STREAM + " OPTIONS (max_tuples = 0)", e.BadOptions, "max_tuples"),
    (STREAM + " OPTIONS (max_tuples = 99999999999999999999)", e.BadOptions, "max_tuples"),
    (STREAM + " OPTIONS (max_future_seconds = -1)", e.BadOptions, "not negative"),
    (STREAM + " OPTIONS (max_string_bytes = -5)", e.BadOptions, "max_string_bytes"),
]


@pytest.mark.parametrize(("sql", "kind", "message"), DEFINITIONS, ids=[case[0][-60:] for case in DEFINITIONS])
def test_a_definition_that_cannot_be_is_refused_with_its_place(sql, kind, message, shared: World):
    before = shared.state()
    with pytest.raises(kind, match=message) as found:
        shared.session.execute(sql)
    assert str(found.value).endswith("^")
    assert shared.state() == before


def test_a_summary_cannot_be_made_on_a_column_with_nulls(world: World):
    tuples = {"ts": [60 * SECOND], "k": [1], "name": [None], "n": [1], "price": [0.0]}
    assert world.session.ingest("fact", tuples).accepted == 1
    before = world.state()
    with pytest.raises(e.NullKey, match="name"):
        world.session.execute("CREATE SUMMARY c ON fact (name) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3)")
    assert world.state() == before


def test_an_error_in_a_late_slice_ends_the_answer_for_good(world: World):
    answer = world.session.query("SELECT 10 / (k - 6) FROM fact WHERE k < 6 OR price > 500")
    for _ in range(2):
        with pytest.raises(e.DivisionByZero):
            answer.run()
    assert world.session.query("SELECT count(*) AS n FROM fact").to_arrow().to_pydict() == {"n": [TUPLES]}


# --- budgets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [-1, -0.001, float("nan"), float("inf"), 3601, True, "1", timedelta(seconds=-1)])
def test_a_budget_out_of_range_is_refused(budget: Any, shared: World):
    with pytest.raises(e.BadClause, match="budget"):
        shared.session.query("SELECT k FROM fact", budget=budget)


def test_a_bad_budget_does_not_use_up_a_token(shared: World):
    token = cut(shared, "SELECT k FROM fact")
    with pytest.raises(e.BadClause, match="budget"):
        shared.session.resume(token, budget=-1)
    assert shared.session.resume(token).to_arrow().num_rows == TUPLES


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM fact",
        "SELECT k FROM fact ORDER BY k",
        "SELECT k FROM fact WHERE k = 3",
        "SELECT k, count(*) FROM fact GROUP BY k",
        "SELECT k FROM fact WITH PREFERENCE ASC SUMMARY.Estimate.Count(k)",
        JOIN,
        JOIN + " " + DESC,
        JOIN + " " + DESC.replace("DESC", "WEIGHTED"),
    ],
)
def test_zero_budget_gives_no_rows_and_estimates(sql: str, shared: World):
    in_words = shared.session.query(sql + " BUDGET 0 SECONDS")
    for answer in (in_words, shared.session.query(sql, budget=0), shared.session.query(sql, budget=timedelta(0))):
        assert answer.to_arrow().num_rows == 0
        progress = answer.progress
        assert (progress.complete, progress.cut, progress.read) == (False, "budget", 0)
        assert progress.coverage.lower == progress.coverage.value == 0
        whole = shared.session.query(sql).run().progress.total.value
        assert progress.total.lower <= whole <= progress.total.upper
        assert progress.total.value > 0
        assert progress.token is not None


def test_zero_budget_bounds_a_count(shared: World):
    answer = shared.session.query("SELECT count(*) AS n, avg(k) AS a FROM fact WHERE k > 2", budget=0)
    assert answer.bounds is not None
    lower, upper = answer.bounds
    assert lower["n"][0].as_py() <= TUPLES * 4 // 7 <= upper["n"][0].as_py()
    assert not answer.progress.complete
    whole = shared.session.query("SELECT count(*) AS n FROM fact", budget=0)
    assert whole.to_arrow()["n"].to_pylist() == [TUPLES], "the summaries know how many tuples there are"


# --- windows longer than what is kept ----------------------------------------------------------------------------


def test_a_window_longer_than_the_retention_warns_and_says_what_is_covered(world: World):
    # Watermark 63 s, KEEP 80 s, zones of 10 s: the oldest is floor((63 - 80) / 10) * 10 = -20 s, so 83 s are kept.
    world.session.advance("fact", 63 * SECOND)
    answer = world.session.query("SELECT count(*) AS n FROM fact WINDOW 84 SECONDS").run()
    (warning,) = answer.progress.warnings
    assert "84 s" in warning
    assert "fact keeps tuples of the last 83 s" in warning
    assert answer.progress.complete
    assert answer.to_arrow()["n"].to_pylist() == [TUPLES]
    assert world.session.query("SELECT count(*) FROM fact WINDOW 83 SECONDS").run().progress.warnings == ()
    assert world.session.query("SELECT count(*) FROM fact").run().progress.warnings == ()
    explained = str(world.session.explain("SELECT count(*) FROM fact WINDOW 84 SECONDS"))
    assert f"warning: {warning}" in explained


def test_a_join_warns_for_each_stream_that_the_window_outreaches(world: World):
    warnings = world.session.query(JOIN + " WINDOW 1 DAY").run().progress.warnings
    assert [w.split(";")[1].split()[0] for w in warnings] == ["fact", "other"]


# --- resume tokens -----------------------------------------------------------------------------------------------

CUT = [
    "SELECT ts, k FROM fact",
    "SELECT k, count(*) AS n FROM fact GROUP BY k",
    "SELECT k FROM fact ORDER BY price",
    "SELECT k FROM fact WHERE k = 3",
    JOIN,
    JOIN + " " + DESC,
    JOIN + " " + DESC.replace("DESC", "ASC"),
    JOIN + " " + DESC.replace("DESC", "WEIGHTED"),
]


def cut(world: World, sql: str) -> str:
    token = world.session.query(sql, budget=0).run().progress.token
    assert token is not None
    return token


def rows(table: Any) -> list[tuple[Any, ...]]:
    return sorted(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.parametrize("sql", CUT)
def test_a_token_is_good_once(sql: str, world: World):
    token = cut(world, sql)
    assert rows(world.session.resume(token).to_arrow()) == rows(world.session.query(sql).to_arrow())
    before = world.state()
    with pytest.raises(e.TokenExpired, match="it was used"):
        world.session.resume(token)
    assert world.state() == before


def test_a_forged_token_is_refused(world: World):
    token = cut(world, JOIN)
    name, _, signature = token.partition(".")
    last = "0" if token[-1] != "0" else "1"
    forged: list[Any] = [
        "",
        ".",
        "x",
        None,
        7,
        b"x",
        name,
        f"{name}.",
        f".{signature}",
        f"{signature}.{name}",
        token + "0",
    ]
    forged += [
        token[:-1],
        token[:-1] + last,
        token.upper(),
        "é." + signature,
        f"{name}.é",
        f"{'0' * 24}.{signature}",
        " " + token,
    ]
    before = world.state()
    for number, wrong in enumerate(forged):
        with pytest.raises(e.BadToken):
            world.session.resume(wrong)
            pytest.fail(f"number {number}: {wrong!r}")
    assert world.state() == before
    assert world.session.resume(token).to_arrow().num_rows > 0, "the true one is still good"


def test_a_token_of_another_session_is_refused(world: World):
    with pytest.raises(e.BadToken, match="made elsewhere"):
        World().session.resume(cut(world, JOIN))


def test_a_token_expires_by_the_clock(world: World):
    first, second = cut(world, JOIN), cut(world, JOIN)
    world.clock.tick(KEPT)
    assert world.session.resume(first).to_arrow().num_rows > 0
    world.clock.tick(1)
    with pytest.raises(e.TokenExpired, match="10 minutes"):
        world.session.resume(second)


def test_the_oldest_tokens_are_pushed_out(world: World):
    tokens = [cut(world, "SELECT k FROM fact") for _ in range(MOST + 1)]
    with pytest.raises(e.TokenExpired, match="evicted"):
        world.session.resume(tokens[0])
    assert world.session.resume(tokens[1]).to_arrow().num_rows == TUPLES


@pytest.mark.parametrize("sql", CUT)
def test_an_answer_whose_tuples_have_aged_out_cannot_go_on(sql: str, world: World):
    token = cut(world, sql)
    world.age()
    before = world.state()
    with pytest.raises(e.TokenExpired, match=r"stream 'fact' has removed the tuples before 19[0-9-]+"):
        world.session.resume(token).run()
    assert world.state() == before


@pytest.mark.parametrize("sql", CUT)
def test_tuples_that_arrive_later_are_not_in_an_answer_under_way(sql: str, world: World):
    expected = rows(world.session.query(sql).to_arrow())
    token = cut(world, sql)
    tuples = {"ts": [59 * SECOND] * 9, "k": [3] * 9, "name": ["new"] * 9, "n": [1] * 9, "price": [0.0] * 9}
    assert world.session.ingest("fact", tuples).accepted == 9
    assert rows(world.session.resume(token).to_arrow()) == expected


@pytest.mark.parametrize(
    "statement", ["DROP SUMMARY by_k CASCADE", "DROP STREAM fact CASCADE", "DROP STREAM other CASCADE"]
)
@pytest.mark.parametrize("sql", CUT)
def test_an_answer_under_way_outlives_what_it_reads(sql: str, statement: str, world: World):
    """It was asked of the streams as they stood: what is dropped meanwhile is still read, and only then let go."""
    expected = rows(world.session.query(sql).to_arrow())
    token = cut(world, sql)
    answer = world.session.query(sql)
    begun = list(itertools.islice(answer, 1))
    assert len(begun) == 1
    world.session.execute(statement)
    assert rows(answer.to_arrow()) == expected
    assert rows(world.session.resume(token).to_arrow()) == expected
    if "STREAM fact" in statement:
        with pytest.raises(e.NoSuchName):
            world.session.query(sql)


def test_query_takes_nothing_but_a_select(shared: World):
    before = shared.state()
    for sql in ("DROP STREAM other CASCADE", "SHOW STREAMS", "EXPLAIN " + JOIN, STREAM):
        with pytest.raises(e.Unsupported, match="takes a SELECT"):
            shared.session.query(sql)
    assert shared.state() == before
    for call in (shared.session.query, shared.session.execute, shared.session.explain):
        with pytest.raises(e.BadSyntax):
            call("SELECT k FROM fact WHERE (k > 1")


def test_unknown_names_outside_of_statements(shared: World):
    with pytest.raises(e.NoSuchName, match="did you mean fact"):
        shared.session.ingest("facts", {"ts": [1]})
    with pytest.raises(e.NoSuchName, match="did you mean by_k"):
        shared.session.estimate("by_kk", [1])
    with pytest.raises(e.NoSuchName, match="it is a stream"):
        shared.session.regions("fact", [1])
    with pytest.raises(e.NoSuchName):
        shared.session.advance("nothing", 1)
