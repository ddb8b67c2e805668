"""One meaning of preference: the same questions to sessions, Spark and continuous queries, against brute force.

The *value* of a row is the preference with the true counts of its keys in the window. DESC is by falling value, ASC by
rising value. WEIGHTED draws entries (keys or, if the preference reads columns, tuples) in proportion to value.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from promising.errors import StatementError, Unsupported
from promising.query import Session
from promising.testing.service import running
from tests.conformance.sessions import Opened

ROWS, SECOND = 240, 1_000_000
WINDOW = 150  # seconds; tuples are a second apart
A, B = "SUMMARY.Estimate.Count(a.item)", "SUMMARY.Estimate.Count(b.item)"
Tuple = dict[str, Any]
Row = tuple[Tuple, ...]


def tuples(stream: str) -> list[Tuple]:
    """Two keys are frequent in different parts of the stream; the dearest tuple is of a rare one."""
    rng = np.random.default_rng(ord(stream))
    items = np.minimum(rng.zipf(1.4, ROWS), 40) + np.where(np.arange(ROWS) < 100, 0, 3)
    prices = np.round(rng.gamma(2.0, 5.0, ROWS), 3)
    prices[[int(np.flatnonzero(items == 4)[0]), 7]] = 0.001, 1_000_000.0
    made = zip(range(ROWS), items.tolist(), prices.tolist(), strict=True)
    return [{"ts": (n + 1) * SECOND, "id": n, "item": item, "price": price} for n, item, price in made]


TUPLES = {stream: tuples(stream) for stream in "ab"}


@pytest.fixture
def session(opened: Opened) -> Session:
    return filled(opened(seed=7, clock=lambda: 1 << 50))


def filled(session: Session) -> Session:
    for stream, rows in TUPLES.items():
        session.execute(f"CREATE STREAM {stream} (ts TIMESTAMP, id BIGINT, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
        session.execute(f"CREATE SUMMARY by_{stream} ON {stream} (item) WITH GRANULARITY 8 SECONDS AND COLLAPSE (2, 6)")
        session.ingest(stream, {name: [row[name] for row in rows] for name in rows[0]})
    return session


@dataclass(frozen=True)
class Question:
    """A preference over a selection of a, or a join of a and b on item, and the value of a row by brute force.

    value: of a row and the counts of its key in a and b. by_tuple: its entries are tuples, for it reads columns.
    """

    preference: str
    value: Callable[[Row, int, int], float]
    join: bool = False
    by_tuple: bool = False

    @property
    def sql(self) -> str:
        if self.join:
            return "SELECT a.item, a.id, b.id AS other FROM a, b WHERE a.item = b.item"
        return "SELECT item, id FROM a"

    def rows(self, *, window: bool) -> list[tuple[tuple[int, ...], float, int]]:
        """All rows of the answer, each with its value, and of how many its entry consists."""
        a, b = ([r for r in TUPLES[s] if not window or r["ts"] > (ROWS - WINDOW) * SECOND] for s in "ab")
        many = [Counter(r["item"] for r in rows) for rows in (a, b)]
        pairs: list[Row] = [(x,) for x in a]
        if self.join:
            pairs = [(x, y) for x in a for y in b if x["item"] == y["item"]]
        out = []
        for row in pairs:
            left, right = (counts[row[0]["item"]] for counts in many)
            units = (1 if self.by_tuple else left) * (right if self.join else 1)
            shown = (row[0]["item"], *(one["id"] for one in row))
            out.append((shown, self.value(row, left, right), units))
        return out


QUESTIONS = {
    "selection": Question(A, lambda row, n, _: n),
    "selection, an expression": Question(f"{A} * a.price", lambda row, n, _: n * row[0]["price"], by_tuple=True),
    "selection, several": Question(f"{A}, a.price, 2", lambda row, n, _: 2 * n * row[0]["price"], by_tuple=True),
    "selection, falling": Question(f"1.0 / {A}", lambda row, n, _: 1 / n),
    "join": Question(f"{A}, {B}", lambda row, n, m: n * m, join=True),
    "join, one side": Question(B, lambda row, n, m: m, join=True),
    "join, an expression": Question(f"{A} * a.price", lambda row, n, m: n * row[0]["price"], join=True, by_tuple=True),
    "join, a sum": Question(f"{A} + {B}", lambda row, n, m: n + m, join=True),
}
LIMITS: dict[str, tuple[int | None, int | None]] = {
    "": (None, None),
    "LIMIT 7": (None, 7),
    "LIMIT 2 BY item": (2, None),
    "LIMIT 2 BY item LIMIT 5": (2, 5),
}


def first_values(question: Question, direction: str, limit: str, *, window: bool) -> list[float]:
    """The values of the rows of an answer, in order."""
    most, every = LIMITS[limit]
    rows = sorted(question.rows(window=window), key=lambda row: -row[1] if direction == "DESC" else row[1])
    seen: Counter[int] = Counter()
    out = []
    for shown, value, _ in rows:
        seen[shown[0]] += 1
        if most is None or seen[shown[0]] <= most:
            out.append(value)
    return out[:every]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("direction", ["DESC", "ASC"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_order_of_rows(session: Session, name: str, direction: str, limit: str):
    question = QUESTIONS[name]
    for window in (False, True):
        span = f" WINDOW {WINDOW} SECONDS" if window else ""
        sql = f"{question.sql} WITH PREFERENCE {direction} {question.preference}{span} {limit}"
        sql = sql if question.join else sql.replace("a.", "")
        values = {shown: value for shown, value, _ in question.rows(window=window)}
        found = rows_of(session.query(sql).to_arrow())
        assert len(set(found)) == len(found)
        got = [values[row] for row in found]
        assert got == pytest.approx(first_values(question, direction, limit, window=window), rel=1e-12), sql


@pytest.mark.deep("300 draws for each question")
@pytest.mark.parametrize("name", [name for name in QUESTIONS if name != "selection, several"])
def test_the_chances_of_rows(session: Session, name: str):
    """The first row of a weighted answer: each in proportion to the value of its entry, divided among its rows.

    Without the dearest tuple, which would nearly always be the first.
    """
    question = QUESTIONS[name]
    sql = f"{question.sql} {'AND' if question.join else 'WHERE'} a.price < 1000"
    sql += f" WITH PREFERENCE WEIGHTED {question.preference} LIMIT 1"
    sql = sql if question.join else sql.replace("a.", "")
    draws = 300
    drawn: Counter[int] = Counter()
    for seed in range(draws):
        ((item, *_),) = rows_of(session.query(sql, seed=seed).to_arrow())
        drawn[item] += 1
    law = chances(question)
    apart = sum(abs(drawn[item] / draws - chance) for item, chance in law.items()) / 2
    assert apart < 0.2  # 300 fair draws are 0.07 to 0.11 apart on average, and in none of 20,000 simulations 0.2


def chances(question: Question) -> dict[int, float]:
    """By item, the probability of the first row."""
    weights: defaultdict[int, float] = defaultdict(float)
    dear = {row["id"] for row in TUPLES["a"] if row["price"] >= 1000}
    for (item, first, *_), value, units in question.rows(window=False):
        if first not in dear:
            weights[item] += value / units
    total = sum(weights.values())
    return {item: weight / total for item, weight in weights.items()}


def test_weighted_rows_are_limited_by_value_too(session: Session):
    sql = f"SELECT item, id FROM a WITH PREFERENCE WEIGHTED {A.replace('a.', '')}"
    whole = rows_of(session.query(sql, seed=3).to_arrow())
    seen: Counter[int] = Counter()
    wanted = []
    for row in whole:
        seen[row[0]] += 1
        if seen[row[0]] <= 2:
            wanted.append(row)
    assert rows_of(session.query(f"{sql} LIMIT 2 BY item", seed=3).to_arrow()) == wanted


@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED"])
def test_aggregates_are_the_same_in_any_order(session: Session, direction: str):
    sql = "SELECT item, count(*) AS n, max(price) FROM a GROUP BY item ORDER BY n DESC, item"
    wanted = session.query(sql).to_arrow()
    preferring = f"{sql} WITH PREFERENCE {direction} {A.replace('a.', '')}"
    assert session.query(preferring).to_arrow() == wanted
    one_of_each_count = rows_of(session.query(f"{preferring} LIMIT 1 BY n LIMIT 4").to_arrow())
    firsts = {row[1]: row for row in reversed(rows_of(wanted))}
    assert one_of_each_count == sorted(firsts.values(), key=lambda row: -row[1])[:4]


def test_pieces_of_an_answer_count_on(session: Session):
    """A token has the number of rows that each value has had."""
    sql = f"{QUESTIONS['join'].sql} AND a.price > b.price WITH PREFERENCE DESC {A}, {B} LIMIT 2 BY item"
    whole = rows_of(session.query(sql).to_arrow())
    answer = session.query(sql, budget=0.0002)
    found = rows_of(answer.run().to_arrow())
    for _ in range(10_000):
        if (token := answer.progress.token) is None:
            break
        answer = session.resume(token, budget=0.0002)
        found += rows_of(answer.run().to_arrow())
    assert answer.progress.token is None
    assert found == whole


# --- continuous queries ----------------------------------------------------------------------------------------------


def standing(direction: str, preference: str) -> str:
    return f"SELECT a.item FROM a, b WHERE a.item = b.item WITH PREFERENCE {direction} {preference} WINDOW 1 HOUR"


@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED"])
def test_a_continuous_join_honours_a_preference_or_refuses_it(session: Session, direction: str):
    for name, question in QUESTIONS.items():
        if not question.join:
            sql = f"SELECT item FROM a WITH PREFERENCE {direction} {question.preference} WINDOW 1 HOUR"
            told = "leave PREFERENCE out"
        else:
            sql = standing(direction, question.preference)
            told = f"write WITH PREFERENCE {direction} {A}, {B}"
        if name == "join":
            session.execute(f"EXPLAIN CREATE CONTINUOUS QUERY q AS {sql}")
            continue
        with pytest.raises(Unsupported) as refused:
            session.execute(f"CREATE CONTINUOUS QUERY q AS {sql}")
        assert told in str(refused.value)
    with pytest.raises(Unsupported, match="LIMIT n BY in a continuous query"):
        session.execute("CREATE CONTINUOUS QUERY q AS SELECT item FROM a WINDOW 1 HOUR LIMIT 2 BY item")


@pytest.mark.parametrize("direction", ["DESC", "ASC"])
def test_a_continuous_join_without_time_goes_key_by_key(direction: str, monkeypatch: pytest.MonkeyPatch):
    """As a SELECT does. Probes are done one by one here, so that the order of pairs is that of keys."""
    monkeypatch.setattr("promising.query.standing.operators.deferred_probes.CHUNK", 1)
    counts = {"a": {1: 9, 2: 2, 3: 4, 4: 1}, "b": {1: 2, 2: 12, 3: 5, 5: 7}}
    with Session(seed=1, clock=lambda: 1 << 50) as session:
        for stream in "ab":
            session.execute(f"CREATE STREAM {stream} (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts")
            session.execute(
                f"CREATE SUMMARY by_{stream} ON {stream} (item) WITH GRANULARITY 8 SECONDS AND COLLAPSE (2, 6)"
            )
        session.execute(f"CREATE CONTINUOUS QUERY q AS {standing(direction, f'{A}, {B}')}")
        feed = session.standing.subscribe("q")
        for stream, many in counts.items():
            items = [item for item, n in many.items() for _ in range(n)]
            session.ingest(stream, {"ts": [SECOND] * len(items), "item": items})
        session.standing.tick(capacity=0.0)  # all probes wait
        feed.take()
        session.standing.tick(capacity=1e9)
        delta = feed.take()
        assert delta is not None
        order = delta.inserts["item"].to_pylist()
        shared = {item: counts["a"][item] * counts["b"][item] for item in (1, 2, 3)}
        assert Counter(order) == shared
        keys = sorted(shared, key=lambda item: shared[item], reverse=direction == "DESC")
        assert list(dict.fromkeys(order)) == keys
        sql = f"SELECT a.item FROM a, b WHERE a.item = b.item WITH PREFERENCE {direction} {A}, {B}"
        assert order == session.query(sql).to_arrow()["item"].to_pylist()


def test_measures_and_ages_rank_the_same_here_and_there(both: Callable[..., tuple[Session, Session]]):
    sessions = both(seed=7, clock=lambda: 1 << 50)
    for session in sessions:
        filled(session)
        session.execute("ALTER SUMMARY by_a ADD MEASURES (MOMENTS(price), QUANTILES(price), FREQUENT(id))")
    estimate = "SUMMARY.Estimate"
    for preference in (
        f"{estimate}.Sum(price)",
        f"{estimate}.Max.Upper(price), {estimate}.Count(item) FADE HALF LIFE 20 SECONDS",
        f"price - {estimate}.Quantile.Lower(price, 0.9)",
        f"{estimate}.Frequency(id) * price WINDOW 30 SECONDS",
        f"SUMMARY.Confidence(item) * {estimate}.Count(item) FADE HALF LIFE 1 MINUTE",
    ):
        for direction in ("DESC", "ASC", "WEIGHTED"):
            if direction == "WEIGHTED" and "Quantile" in preference:
                continue  # its sketches are random, each of its own: the order by price is the same, a draw is not
            sql = f"SELECT item, id FROM a WITH PREFERENCE {direction} {preference}"
            here, there = (session.query(sql, seed=1).to_arrow().to_pylist() for session in sessions)
            assert here == there, sql
            assert len(here) == (30 if "WINDOW" in sql else ROWS)
    for wrong in ("Quantile(price, 2)", "Distinct(price)", "Frequency(price)", "Sum(nothing)"):
        told = []
        for session in sessions:
            with pytest.raises(StatementError) as refused:
                session.query(f"SELECT item FROM a WITH PREFERENCE {estimate}.{wrong}").to_arrow()
            told.append((type(refused.value), str(refused.value)))
        assert told[0] == told[1]


# --- Spark -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED"])
def test_the_data_source_of_spark_reads_the_rows_of_sql(session: Session, direction: str):
    """Its reader without Spark: what a task would return."""
    pytest.importorskip("pyspark.sql")
    from pyspark.sql.datasource import CaseInsensitiveDict  # noqa: PLC0415

    from promising.loaders.data_source import Source  # noqa: PLC0415

    class Here(Source):
        def connection(self) -> Callable[[], AbstractContextManager[Any]]:
            return lambda: nullcontext(session)

    made = Here(CaseInsensitiveDict({"stream": "a", "preference": f"{direction} item", "limit": "60"}))
    reader = made.reader(made.schema())
    found = [row["id"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    sql = f"SELECT id FROM a WITH PREFERENCE {direction} {A.replace('a.', '')} LIMIT 60"
    assert found == session.query(sql).to_arrow()["id"].to_pylist()


@pytest.mark.spark
@pytest.mark.deep("starts Spark")
def test_through_spark(spark: Any):
    from promising.spark import register  # noqa: PLC0415

    register(spark)
    with running(session=filled(Session(seed=7, clock=lambda: 1 << 50))) as address:
        source = spark.read.format("promising").option("address", address).option("stream", "a")
        for direction in ("DESC", "ASC"):
            found = source.option("preference", f"{direction} item").option("limit", 20).load()
            counts = Counter(row["item"] for row in TUPLES["a"])
            got = [counts[row["item"]] for row in found.select("item").collect()]
            assert got == first_values(QUESTIONS["selection"], direction, "", window=False)[:20]


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
