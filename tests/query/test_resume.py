"""An answer in pieces: tokens go on where it was cut, without duplicates, without gaps, in one fixed order."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from promising.errors import BadToken, TokenExpired
from promising.query import Session
from tests.query import skewed
from tests.query.stores import MS, UNPOSTED, Row, Stores, filled, pieces, rows_of, stores, tuples

STRUCTURES = ("none", "time", "grid", "adaptive", UNPOSTED)
FADES = "", " FADE FACTOR 0.5", " FADE HALF LIFE 5 SECONDS"
BUDGETS = (0, 0.02, 0.05, 0.1, 0.3)
"""Seconds, while a slice takes one hundredth of one or less."""

BOTH = "SUMMARY.Estimate.Count(a.k), SUMMARY.Estimate.Count(b.k)"
PREFERENCES = {
    "none": "",
    "DESC": f"DESC {BOTH}",
    "ASC": f"ASC {BOTH}",
    "WEIGHTED": f"WEIGHTED {BOTH}",
    "DESC, one side": "DESC SUMMARY.Estimate.Upper(b.k)",
    "DESC, falling": "DESC 0.0 - SUMMARY.Estimate.Count(a.k)",
    "DESC, tuples": "DESC SUMMARY.Estimate.Count(a.k) * a.price",
    "ASC, tuples": "ASC SUMMARY.Estimate.Count(a.k) * b.price",
    "WEIGHTED, tuples": "WEIGHTED SUMMARY.Estimate.Count(b.k) * a.price",
}


@dataclass(frozen=True)
class Query:
    """A query, and what is true of its answer."""

    sql: str
    truth: Callable[[Stores], set[Row]]
    limit: int | None


def query(
    join: bool, preference: str, *, fade: str, window: int | None, where: bool, limit: int | None = None
) -> Query:
    sql = "SELECT a.id, b.id FROM a, b WHERE a.k = b.k" if join else "SELECT a.id FROM a"
    if where:
        sql += " AND a.price > b.price" if join else " WHERE a.price > 8"
    asked = PREFERENCES[preference]
    if not join:
        asked = asked.replace(BOTH, "SUMMARY.Estimate.Count(a.k)").replace("b.", "a.")
    sql += f" WITH PREFERENCE {asked}" if asked else ""
    sql += fade if asked else ""
    sql += f" WINDOW {window} SECONDS" if window else ""
    sql += f" LIMIT {limit}" if limit is not None else ""

    def truth(made: Stores) -> set[Row]:
        if join:
            return set(made.pairs(window, (lambda x, y: x[3] > y[3]) if where else None))
        return set(made.selected(window, (lambda x: x[3] > 8) if where else None))

    return Query(sql, truth, limit)


def random_query(rng: random.Random, preference: str) -> Query:
    return query(
        rng.random() < 0.6,
        preference,
        fade=rng.choice(FADES),
        window=rng.choice([None, None, 15, 33]),
        where=rng.random() < 0.4,
        limit=rng.choice([None, None, None, 0, 1, 37, 300]),
    )


def budgets(rng: random.Random) -> Callable[[int], float | None]:
    """Random ones, and after a dozen pieces the rest at once."""
    return lambda number: rng.choice(BUDGETS) if number < 12 else None


def check(asked: Query, whole: list[Row], truth: set[Row], flat: list[Row]) -> None:
    assert len(set(flat)) == len(flat)
    assert set(flat) <= truth
    assert len(flat) == (len(truth) if asked.limit is None else min(asked.limit, len(truth)))
    assert flat == whole, "rows in another order"


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("preference", PREFERENCES)
def test_the_pieces_are_the_answer(preference, structure, strings):
    made = filled(360, 90, structure=structure, strings=strings)
    rng = random.Random(f"{preference} {structure} {strings}")
    for _ in range(3):
        asked = random_query(rng, preference)
        truth, whole = asked.truth(made), rows_of(made.session.query(asked.sql, seed=3))
        made.cpu.step = rng.choice([2, 5, 10]) * MS
        got, _ = pieces(made, asked.sql, budgets(rng), seed=3)
        check(asked, whole, truth, [row for piece in got for row in piece])
        assert got[0] == whole[: len(got[0])]


def arriving(made: Stores) -> Callable[[int], None]:
    """Tuples arrive between pieces; granularities collapse, keys appear, and others become the frequent ones."""

    def arrive(piece: int) -> None:
        if piece <= 8:
            for number, name in enumerate("ab"):
                more = tuples(60, 30, seed=9_000 + 10 * piece + number, start=38 + 2.0 * piece, seconds=2)
                more["k"] += 5 * piece
                made.ingest(name, more)

    return arrive


@pytest.mark.deep("many queries, each in pieces")
@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("preference", PREFERENCES)
def test_the_pieces_are_the_answer_of_the_beginning_while_tuples_arrive(preference, structure, join):
    rng = random.Random(f"{preference} {structure} {join}")
    made = filled(360, 90, structure=structure)
    asked = query(join, preference, fade=rng.choice(FADES), window=rng.choice([None, 15]), where=False)
    truth, whole = asked.truth(made), rows_of(made.session.query(asked.sql, seed=3))
    budgets = [rng.choice((0.01, 0.02, 0.03)) for _ in range(12)]
    got, progress = pieces(
        made, asked.sql, lambda n: budgets[n] if n < len(budgets) else None, seed=3, between=arriving(made)
    )
    assert len(got) > 1
    flat = [row for piece in got for row in piece]
    assert len(set(flat)) == len(flat) and set(flat) == truth
    assert flat == whole, "the order of the beginning"
    for each in progress:
        assert each.total.lower <= len(truth) <= each.total.upper


def test_late_tuples_that_arrive_meanwhile_are_not_in_the_answer():
    made = filled(360, 90)
    asked = query(True, "DESC", fade="", window=33, where=False)
    truth, whole = asked.truth(made), rows_of(made.session.query(asked.sql))

    def late(piece: int) -> None:
        if piece <= 4:
            for number, name in enumerate("ab"):
                made.ingest(name, tuples(40, 90, seed=8_000 + 10 * piece + number, start=20, seconds=19))

    got, _ = pieces(made, asked.sql, lambda n: 0.05 if n < 8 else None, between=late)
    assert len(got) > 4
    check(asked, whole, truth, [row for piece in got for row in piece])


# --- aggregates and sorted answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*), sum(n), avg(price), median(price) FROM a WHERE n > 3",
        "SELECT n, count(*), max(price), count(DISTINCT k) FROM a GROUP BY n ORDER BY n",
        "SELECT a.n, count(*), sum(b.n) FROM a, b WHERE a.k = b.k GROUP BY a.n HAVING count(*) > 10 ORDER BY 1",
        "SELECT id, price FROM a ORDER BY price DESC, id",
        "SELECT id, price FROM a ORDER BY price, id LIMIT 20",
        "SELECT a.id, b.id FROM a, b WHERE a.k = b.k ORDER BY a.price, a.id, b.id LIMIT 50",
    ],
)
def test_whole_answers_end_exact(sql):
    made = filled(900, 90)
    exact = made.session.query(sql).to_arrow()
    rng = random.Random(sql)
    answer = made.session.query(sql, budget=0.02).run()
    while (token := answer.progress.token) is not None:
        assert not answer.progress.complete
        answer = made.session.resume(token, budget=rng.choice([*BUDGETS, None])).run()
    assert answer.progress.complete
    assert [c.to_pylist() for c in answer.to_arrow().columns] == [
        pytest.approx(c.to_pylist()) if name.startswith("avg") else c.to_pylist()
        for name, c in zip(exact.column_names, exact.columns, strict=True)
    ]


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_good_once_and_only_in_its_session():
    made = filled(360, 90)
    token = made.session.query("SELECT id FROM a", budget=0).run().progress.token
    assert token is not None
    for wrong in (
        "",
        "x",
        token + "0",
        token[:-1] + ("0" if token[-1] != "0" else "1"),
        token.partition(".")[0],
        "é.é",
    ):
        with pytest.raises(BadToken):
            made.session.resume(wrong)
    with pytest.raises(BadToken):
        Session().resume(token)
    assert len(rows_of(made.session.resume(token))) == 360
    with pytest.raises(TokenExpired):
        made.session.resume(token)


def test_a_cancelled_answer_goes_on():
    made = filled(900, 90)
    whole = rows_of(made.session.query("SELECT id FROM a"))
    answer = made.session.query("SELECT id FROM a")
    rows: list[Row] = []
    for frame in answer:
        rows += list(zip(frame.rows.column(0).to_pylist(), strict=True))
        answer.cancel()
    assert answer.progress.cut == "cancelled" and 0 < len(rows) < 900
    assert answer.progress.token is not None
    rest = rows_of(made.session.resume(answer.progress.token))
    assert rows + rest == whole


def test_an_answer_whose_tuples_have_aged_out_expires():
    made = filled(360, 90, keep="60 SECONDS")
    token = made.session.query("SELECT id FROM a", budget=0).run().progress.token
    assert token is not None
    made.ingest("a", tuples(10, 90, seed=77, start=500, seconds=1))
    with pytest.raises(TokenExpired):
        made.session.resume(token).run()


# --- one order -------------------------------------------------------------------------------------------------------


@pytest.mark.deep("many queries, each asked again")
@pytest.mark.parametrize("window", [None, 15])
@pytest.mark.parametrize("preference", PREFERENCES)
def test_the_same_question_has_the_same_answer(preference, window):
    """Again, and in another session of the same seed that got the tuples in other batches."""
    made = filled(360, 90)
    again = stores()
    for name in "ab":
        columns = made.columns(name)
        for first in range(0, 360, 50):
            again.ingest(name, {c: v[first : first + 50] for c, v in columns.items()})
    again.cpu.step = 1
    for fade in FADES:
        asked = query(True, preference, fade=fade, window=window, where=False)
        rows = rows_of(made.session.query(asked.sql, seed=4))
        assert rows_of(made.session.query(asked.sql, seed=4)) == rows
        assert rows_of(again.session.query(asked.sql, seed=4)) == rows


@pytest.mark.parametrize("budget", [0.005, 0.05, 10.0])
@pytest.mark.parametrize("join", [False, True])
def test_aggregates_by_preference_over_a_part_of_the_stream(budget, join):
    session = skewed.filled()
    source = "a, b WHERE a.k = b.k" if join else "a"
    sql = f"SELECT sum(a.price) AS p, count(*) AS n FROM {source}"
    exact = session.query(f"{sql} WINDOW 500 SECONDS").to_arrow().to_pylist()[0]
    counts = "SUMMARY.Estimate.Count(a.k)" + (", SUMMARY.Estimate.Count(b.k)" if join else "")
    answer = session.query(f"{sql} WITH PREFERENCE DESC {counts} WINDOW 500 SECONDS", budget=budget).run()
    while answer.progress.token is not None:
        answer = session.resume(answer.progress.token).run()
    found = answer.to_arrow().to_pylist()[0]
    assert found["n"] == exact["n"] and found["p"] == pytest.approx(exact["p"])
