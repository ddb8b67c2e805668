"""query_many answers every statement as query does, whether its reading is shared with others or not."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

import promising.query.bulk_selections
from promising.errors import DivisionByZero, NoSuchName, Unsupported
from promising.query import Answer, Session
from promising.testing import ManualClock

SECOND = 1_000_000
INT64 = (1 << 63) - 1
FLOATS = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.5, -2.5, 3.0, 3.0, 3.0, 2.0**53, 1e300, 5e-324]
INTS = [None, 0, 1, -1, 3, 3, 3, 7, INT64, -INT64, -INT64 - 1, 1 << 53, (1 << 53) + 1]
WORDS = [None, "", "tea", "Tea", "jam", "jam %"]

FEWEST = 8
"""As the tests have it: enough to share a reading."""

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promising.query.bulk_selections, "FEWEST", FEWEST)


@pytest.fixture(scope="module")
def session() -> Session:
    """Stream a with all kinds of values over 40 seconds, and an empty one, b. a lets old tuples go."""
    made = Session(clock=ManualClock(1_000 * SECOND), seed=5)
    for name in ("a", "b"):
        made.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, k INT, x DOUBLE, n BIGINT, w VARCHAR, f BOOLEAN)"
            " TIMESTAMP BY ts"
        )
    made.execute("CREATE SUMMARY by_k ON a (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 3) STRUCTURE adaptive")
    rng = random.Random(1)
    size = 400
    made.ingest(
        "a",
        {
            "ts": [i * SECOND // 10 for i in range(size)],
            "id": list(range(size)),
            "k": [rng.randrange(9) for _ in range(size)],
            "x": [rng.choice(FLOATS) for _ in range(size)],
            "n": [rng.choice(INTS) for _ in range(size)],
            "w": [rng.choice(WORDS) for _ in range(size)],
            "f": [rng.choice([None, True, False]) for _ in range(size)],
        },
    )
    return made


def rows(table: pa.Table) -> Counter[Row]:
    """Rows in no order; NaN and -0.0 as words, for they do not count as equals."""
    as_said = [[repr(v) if isinstance(v, float) else v for v in c.to_pylist()] for c in table.columns]
    return Counter(zip(*as_said, strict=True))


def shared_by(session: Session, statements: list[str]) -> int:
    """How many of the answers come from a shared reading; checks that all are as they are one by one."""
    asked: list[str] = []
    alone = session._answer

    def counted(node: exp.Expression, sql: str, *how: Any, **more: Any) -> Iterator[Answer | None]:
        asked.append(sql)
        return alone(node, sql, *how, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_answer", counted)
        found = session.query_many(statements)
    assert len(found) == len(statements)
    for sql, table in zip(statements, found, strict=True):
        expected = session.query(sql).to_arrow()
        assert table.schema == expected.schema, sql
        assert rows(table) == rows(expected), sql
        table.validate(full=True)
    return len(statements) - len(asked)


COMPARED = ["<", "<=", ">", ">=", "="]


@pytest.mark.parametrize("value", ["3", "0", "-2.5", "1e300", "9007199254740992", "-1", "2.5", "0.0"])
def test_open_and_closed_ranges_of_floats(session, value):
    """Nulls are in none; NaN is greater than every number."""
    one = [f"SELECT id, x FROM a WHERE x {op} {value}" for op in COMPARED]
    turned = [f"SELECT id, x FROM a WHERE {value} {op} x" for op in COMPARED]
    both = [
        f"SELECT id FROM a WHERE x {low} -2 AND x {high} {value}"
        for low, high in itertools.product((">", ">="), ("<", "<="))
    ]
    assert shared_by(session, one + turned + both) == 14


@pytest.mark.parametrize(
    "value", ["3", "0", "-1", str(INT64), str(-INT64), "9007199254740993", "9007199254740992", "4"]
)
def test_open_and_closed_ranges_of_whole_numbers(session, value):
    one = [f"SELECT id, n FROM a WHERE n {op} {value}" for op in COMPARED]
    turned = [f"SELECT id, n FROM a WHERE {value} {op} n" for op in COMPARED]
    assert shared_by(session, one + turned) == 10


def test_ranges_of_both_kinds_of_ends(session):
    """Of two conditions on one end the narrower counts, and of two at one value the open one."""
    ends = ["x > 1", "x >= 1", "x > 1.5", "x >= 0", "x BETWEEN 1 AND 3", "x = 3", "x < 3", "x <= 3", "x < 1e300"]
    conditions = [" AND ".join(c) for n in (1, 2, 3) for c in itertools.permutations(ends, n)]
    chosen = random.Random(2).sample(conditions, 60)
    assert shared_by(session, [f"SELECT id FROM a WHERE {c}" for c in chosen]) == 60


def test_ranges_that_contradict_themselves_are_empty(session):
    conditions = [
        "x > 3 AND x < 3",
        "x >= 3 AND x < 3",
        "x > 3 AND x <= 3",
        "x > 7 AND x < 1",
        "x = 1 AND x = 3",
        "x BETWEEN 3 AND 1",
        "x > 1e300 AND x < 2e300",
        "x >= 3 AND x <= 3",
    ]
    statements = [f"SELECT id, x FROM a WHERE {c}" for c in conditions]
    assert shared_by(session, statements) == len(statements)
    assert [t.num_rows for t in session.query_many(statements[:7])] == [0] * 7


def test_what_is_not_a_range_of_the_column_is_asked_for_as_well(session):
    """Conditions on other columns, on strings, with OR, NOT, IN and null, and with literals that compare inexactly."""
    rest = [
        "w = 'tea'",
        "w LIKE 'jam%'",
        "f",
        "n IS NULL",
        "(n > 2 OR w IS NULL)",
        "NOT k = 3",
        "k IN (1, 2, NULL)",
        "x <> 3",
        "n + 0.5 > 2",
        "n < 2.5",
        "x < id",
        "NULL",
        "x NOT BETWEEN 1 AND 2",
        "ts >= TIMESTAMP '1970-01-01 00:00:20'",
    ]
    statements = [f"SELECT id, w, n FROM a WHERE x >= 0 AND {c} AND x < 1e300" for c in rest]
    assert shared_by(session, statements) == len(statements)


def test_literals_that_do_not_compare_exactly_share_nothing(session):
    """A whole-number column with a decimal, and either with a number too large for it, go their own way."""
    statements = [f"SELECT id FROM a WHERE n >= {v}" for v in ("2.5", "3.0", "1e3", "-0.5") * 2]
    statements += [f"SELECT id FROM a WHERE x <= {v}" for v in (1 << 53, (1 << 53) + 1, (1 << 53) + 2) * 3]
    assert shared_by(session, statements) == 0


def test_outputs_of_every_kind(session):
    outputs = ["*", "id, x", "x, x AS again", "x + 1 AS y, upper(w) AS w", "1 AS one", "f, ts, k", "w", "NULL AS no"]
    statements = [f"SELECT {o} FROM a WHERE x > {v}" for o in outputs for v in (0, 3)]
    assert shared_by(session, statements) == len(statements)


def test_names_and_aliases(session):
    statements = [
        "SELECT q.ID FROM A q WHERE q.X > 1",
        'SELECT "id" FROM a WHERE a.x < 3',
        "SELECT id FROM a AS z WHERE Z.x = 3",
    ]
    assert shared_by(session, statements * 3) == 9


@pytest.mark.parametrize("window", [1, 7, 13, 100])
def test_windows_share_among_themselves(session, window):
    statements = [f"SELECT id, x FROM a WHERE x > {v} WINDOW {window} SECONDS" for v in range(-3, 5)]
    others = [f"SELECT id, x FROM a WHERE x > {v}" for v in range(-3, 4)]
    assert shared_by(session, statements + others) == 8


def test_a_limit_takes_some_rows_of_the_answer(session):
    plain = [f"SELECT id, x FROM a WHERE x >= {v} AND k < 7" for v in range(-3, 6)]
    for limit in (0, 1, 5, 1000):
        found = session.query_many([f"{sql} LIMIT {limit}" for sql in plain])
        for sql, table in zip(plain, found, strict=True):
            expected = rows(session.query(sql).to_arrow())
            assert table.num_rows == min(limit, expected.total())
            assert rows(table) <= expected


def test_shared_answers_come_in_the_order_of_the_column(session):
    for table in session.query_many([f"SELECT x FROM a WHERE x > {v}" for v in range(-3, 6)]):
        values = [math.inf if math.isnan(v) else v for v in table.column("x").to_pylist()]
        assert values == sorted(values)


def test_statements_of_all_kinds_side_by_side(session):
    """Answers come back in their places."""
    statements = []
    for v in range(FEWEST):
        statements += [
            f"SELECT id, {v} AS v FROM a WHERE x > {v}",
            f"SELECT id, {v} AS v FROM a WHERE n <= {v}",
            f"SELECT count(*) AS c FROM a WHERE x > {v}",
            f"SELECT id FROM b WHERE x > {v}",
            f"SELECT w FROM a WHERE w = 'tea' AND f AND id > {v} AND id < {v + 50}",
        ]
    statements += [
        "SELECT id FROM a",
        "SELECT k, sum(n) AS s FROM a WHERE n < 100 AND n > -100 GROUP BY k",
        "SELECT p.id FROM a p, a q WHERE p.k = q.k AND p.id < 5 AND q.id < 5",
        "SELECT id FROM a WHERE x > 1 WITH PREFERENCE DESC SUMMARY.Estimate.Count(k)",
    ]
    assert shared_by(session, statements) == 4 * FEWEST
    ordered = [f"SELECT id FROM a WHERE id > {v} ORDER BY id DESC LIMIT 5" for v in range(FEWEST)]
    found = [t.column("id").to_pylist() for t in session.query_many(ordered)]
    assert found == [[399, 398, 397, 396, 395]] * FEWEST


def test_it_takes_so_many_of_a_kind_to_share(session):
    statements = [f"SELECT id FROM a WHERE x > {v}" for v in range(FEWEST)]
    assert shared_by(session, statements[:-1]) == 0
    assert shared_by(session, statements) == FEWEST
    mixed = [*statements[: FEWEST // 2], *(s.replace("x >", "n >") for s in statements[: FEWEST // 2])]
    assert shared_by(session, mixed) == 0
    assert session.query_many([]) == []


def test_the_column_with_the_most_conditions_is_the_one_to_share(session):
    statements = [f"SELECT id FROM a WHERE n > 0 AND x > {v} AND x < 100" for v in range(FEWEST)]
    by_x = [f"SELECT id FROM a WHERE x > {v}" for v in range(FEWEST - 1)]
    assert shared_by(session, statements[:1] + by_x) == FEWEST


@pytest.mark.parametrize("seed", range(6))
def test_random_selections(session, seed):
    rng = random.Random(seed)
    numbers = ["-2.5", "0", "1", "1.5", "3", "-1", "7", "9007199254740992", "1e300", "0.25"]

    def condition() -> str:
        column = rng.choice(["x", "x", "n", "k"])
        kind = rng.randrange(4)
        if kind == 0:
            return f"{column} BETWEEN {rng.choice(numbers)} AND {rng.choice(numbers)}"
        if kind == 1:
            return f"({rng.choice(numbers)} {rng.choice(COMPARED)} {column})"
        return f"{column} {rng.choice(COMPARED)} {rng.choice(numbers)}"

    statements = [
        f"SELECT id, x, n, w FROM a WHERE {' AND '.join(condition() for _ in range(rng.randint(1, 4)))}"
        + rng.choice(["", "", " WINDOW 9 SECONDS"])
        for _ in range(80)
    ]
    assert shared_by(session, statements) > 40


def test_an_empty_stream_and_an_empty_window(session):
    assert shared_by(session, [f"SELECT * FROM b WHERE x > {v}" for v in range(9)]) == 9
    made = Session(clock=ManualClock(1_000 * SECOND), seed=5)
    made.execute("CREATE STREAM a (ts TIMESTAMP, x DOUBLE) TIMESTAMP BY ts")
    made.ingest("a", {"ts": [0, 1], "x": [None, None]})
    made.advance("a", 100 * SECOND)
    assert shared_by(made, [f"SELECT x FROM a WHERE x > {v} WINDOW 1 SECOND" for v in range(9)]) == 9
    assert shared_by(made, [f"SELECT x FROM a WHERE x > {v}" for v in range(9)]) == 9


def test_what_cannot_be_asked_alone_cannot_be_asked_with_others(session):
    good = [f"SELECT id FROM a WHERE x > {v}" for v in range(FEWEST)]
    with pytest.raises(Unsupported, match="takes SELECTs"):
        session.query_many([*good, "SHOW STREAMS"])
    with pytest.raises(NoSuchName, match="xx"):
        session.query_many([*good, "SELECT id FROM a WHERE xx > 1"])
    with pytest.raises(DivisionByZero):
        session.query_many([f"SELECT id / (n - n) AS y FROM a WHERE x > {v}" for v in range(FEWEST)])
