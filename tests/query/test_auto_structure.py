"""`STRUCTURE auto` in queries: answers under way outlive every change, and it is told what was chosen and why."""

import random
from collections.abc import Callable

import pytest

from promising.index.auto_structure import Auto
from promising.index.options import STRUCTURES
from promising.query import Session
from tests.query.stores import Stores, filled, pieces, rows_of, tuples
from tests.query.test_resume import FADES, PREFERENCES, arriving, query


@pytest.fixture
def by_hand(monkeypatch):
    """No change but those that a test makes."""
    monkeypatch.setattr(Auto, "choice", lambda self, tuples, cold=0: None)


def change(made: Stores, structure: str) -> None:
    for name in "ab":
        made.session.stream(name).summaries[f"by_{name}"].change(structure)


def changing(made: Stores, rng: random.Random, arrive: bool) -> Callable[[int], None]:
    """The structure changes between pieces, before tuples arrive and after."""
    arrives = arriving(made)

    def between(piece: int) -> None:
        change(made, rng.choice(STRUCTURES))
        if arrive:
            arrives(piece)
            change(made, rng.choice(STRUCTURES))

    return between


@pytest.mark.deep("many changes of structure")
@pytest.mark.parametrize("first", STRUCTURES)
@pytest.mark.parametrize("preference", PREFERENCES)
def test_an_answer_under_way_outlives_every_change(by_hand, preference, first):
    rng = random.Random(f"{preference} {first}")
    join, arrive = rng.random() < 0.7, rng.random() < 0.8
    made = filled(360, 90, structure="auto")
    change(made, first)
    asked = query(join, preference, fade=rng.choice(FADES), window=rng.choice([None, 15]), where=False)
    truth, whole = asked.truth(made), rows_of(made.session.query(asked.sql, seed=3))
    budgets = [rng.choice((0.01, 0.02, 0.03)) for _ in range(12)]
    got, _ = pieces(
        made,
        asked.sql,
        lambda n: budgets[n] if n < len(budgets) else None,
        seed=3,
        between=changing(made, rng, arrive),
    )
    flat = [row for piece in got for row in piece]
    assert len(got) > 1 and len(set(flat)) == len(flat) and set(flat) == truth
    assert flat == whole, "the order of the beginning"


def test_an_answer_that_is_put_away_counts_the_postings_that_only_it_holds(by_hand):
    made = filled(360, 90, structure="auto")
    change(made, "grid")
    sql = "SELECT a.id, b.id FROM a, b WHERE a.k = b.k"
    cut = made.session.query(sql, budget=0).run()
    (cursors,) = made.session._shelf._clients.values()
    ((_, cursor),) = cursors.values()
    before = cursor.nbytes
    change(made, "none")
    assert cursor.nbytes > before
    assert len(made.session.stream("a")._summaries.left) + len(made.session.stream("b")._summaries.left) > 0
    assert cut.progress.token is not None
    assert set(rows_of(made.session.resume(cut.progress.token))) == made.pairs()


def test_explain_tells_that_zones_are_fixed_where_cuts_do_not_pay():
    made = filled(600, 30, structure="adaptive")
    sql = "SELECT id FROM a WHERE k = 7"
    assert made.session.explain(sql).steps[-1].endswith("from postings of summary by_a"), "no zone was full yet"
    made.session.execute(
        "CREATE SUMMARY short ON a (k) WITH GRANULARITY 1 DAYS AND COLLAPSE (4, 9) OPTIONS (maxlength = 256)"
    )
    told = made.session.explain(sql).steps[-1]
    assert told.endswith("summary short, zones have one length: behaviour has not jumped, so other cuts would not pay")


def test_queries_by_key_bring_about_a_structure_and_explain_tells_it():
    made = filled(3_000, 300, structure="auto")
    sql = "SELECT id FROM a WHERE k = 7"
    told = made.session.explain(sql)
    assert any("summary by_a is auto: none, because nothing was asked yet" in step for step in told.steps)
    truth = made.selected(where=lambda row: row[1] == 7)
    for _ in range(2_000):
        assert set(rows_of(made.session.query(sql))) == truth
        if made.session.stream("a").summaries["by_a"].structure != "none":
            break
    told = made.session.explain(sql)
    assert told.steps[-1].startswith("keys of a.k from postings of summary by_a, auto: time, because none has cost ")
    assert set(rows_of(made.session.query(sql))) == truth


def test_a_query_with_a_budget_is_not_held_up_by_a_change():
    made = filled(3_000, 300, structure="auto")
    summary = made.session.stream("a").summaries["by_a"]
    assert summary.auto is not None
    for _ in range(2_000):
        summary.auto.queried(3_000)
    made.session.query("SELECT id FROM a WHERE k = 7", budget=0.0001).run()
    assert summary.structure == "none"
    made.session.query("SELECT id FROM a WHERE k = 7", budget=100).run()
    assert summary.structure == "time"


def test_show_and_describe_tell_the_choice(by_hand):
    session = Session(clock=lambda: 1 << 60, seed=5)
    session.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
    for name, structure in (("x", " STRUCTURE AUTO"), ("y", "")):
        session.execute(f"CREATE SUMMARY {name} ON s (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 3){structure}")
    shown = session.execute("SHOW SUMMARIES")
    assert shown["structure"].to_pylist() == ["auto: none, because nothing was asked yet", "adaptive"]  # type: ignore[index]
    x = session.stream("s").summaries["x"]
    x.change("grid")
    told = session.describe("x")
    assert (told.structure, told.now, told.why) == ("auto", "grid", "it was asked for")
    assert told.structure_text == "auto: grid, because it was asked for"
    y = session.describe("y")
    assert (y.structure, y.now, y.why, y.structure_text) == ("adaptive", "adaptive", "", "adaptive")


@pytest.mark.deep("many changes of structure")
def test_arrivals_and_changes_by_itself_agree_with_brute_force():
    """Nobody decides but the policy, on the CPU time of this machine."""
    made = filled(300, 60, structure="auto")
    made.cpu.step = 1
    for piece in range(4):
        for number, name in enumerate("ab"):
            made.ingest(name, tuples(100, 60, seed=7_000 + 10 * piece + number, start=40 + 2.0 * piece, seconds=2))
        for _ in range(10):
            assert set(rows_of(made.session.query("SELECT a.id, b.id FROM a, b WHERE a.k = b.k"))) == made.pairs()
