"""How results end, rule by rule, against a table made by hand; and what keeps them."""

from dataclasses import replace

import pytest

from promising.errors import BadClause
from promising.index import Stream
from promising.index.table import Table
from promising.query import Session
from promising.query.catalog import Catalog
from promising.query.sql import parse
from promising.query.standing import plan
from promising.query.standing.deltas import Mode
from promising.query.standing.explain_standing import explain_standing
from promising.query.standing.labels import Label, label, labelled, retracts, store_name
from promising.query.standing.standing_binder import bind_standing

SECOND = 1_000_000
MON, WKS, WK, STR = Label.MON, Label.WKS, Label.WK, Label.STR


@pytest.fixture
def catalog():
    made = Catalog()
    for name in ("a", "b", "c"):
        made.streams[name] = Stream(name, {"ts": "timestamp", "k": "int", "x": "float"}, "ts")
    made.tables["now"] = Table("now", {"id": "int", "name": "string"}, "id")
    made.tables["then"] = Table("then", {"id": "int", "name": "string"}, "id", retroactive=False)
    return made


def bound(sql: str, catalog: Catalog) -> plan.Standing:
    return bind_standing(parse(sql), sql, catalog)


NEITHER = "NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)"
RULES = [
    # Leaves, and rule 1: a selection or projection ends what it gives as it gets it.
    ("SELECT k FROM a", MON),
    ("SELECT k FROM a WHERE x > 1 WINDOW 5", WKS),
    ("SELECT k + 1 FROM a WINDOW 5", WKS),
    # Rule 1: so does a join with a table as it was.
    ('SELECT name FROM a, "then" WHERE a.k = id', MON),
    ('SELECT name FROM a, "then" WHERE a.k = id WINDOW 5', WKS),
    # Rule 2: UNION ALL is as the worst of its inputs, and weak over unequal windows.
    ("SELECT k FROM a UNION ALL SELECT k FROM b", MON),
    ("SELECT k FROM a WINDOW 5 UNION ALL SELECT k FROM b WINDOW 5", WKS),
    ("SELECT k FROM a WINDOW 5 UNION ALL SELECT k FROM b WINDOW 6", WK),
    ("SELECT k FROM a WINDOW 5 UNION ALL SELECT k FROM b", WK),
    ("SELECT k FROM a WINDOW 5 UNION ALL (SELECT k FROM b WINDOW 5 UNION ALL SELECT k FROM c WINDOW 7)", WK),
    ("SELECT k FROM a WINDOW 5 UNION ALL (SELECT k FROM b WINDOW 5 UNION ALL SELECT k FROM c WINDOW 5)", WKS),
    ("SELECT k FROM a WINDOW 5 UNION ALL SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 5", WK),
    (f"SELECT k FROM b WINDOW 5 UNION ALL SELECT k FROM a WHERE {NEITHER} WINDOW 5", STR),
    (
        'SELECT name FROM b, "then" WHERE k = id WINDOW 5 UNION ALL SELECT name FROM a, "then" WHERE k = id WINDOW 5',
        WKS,
    ),
    # Rule 3: joins, intersections and distinct rows are weak, or strict over what is.
    ("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 5", WK),
    ("SELECT DISTINCT k FROM a WINDOW 5", WK),
    ("SELECT k FROM a WINDOW 5 UNION SELECT k FROM b WINDOW 5", WK),
    ("SELECT k FROM a WINDOW 5 INTERSECT SELECT k FROM b WINDOW 5", WK),
    ("SELECT k FROM a WINDOW 5 INTERSECT ALL SELECT k FROM b WINDOW 9", WK),
    ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) WINDOW 5", WK),
    (f"SELECT DISTINCT k FROM a WHERE {NEITHER} WINDOW 5", STR),
    (f"SELECT k FROM c WINDOW 5 UNION SELECT k FROM a WHERE {NEITHER} WINDOW 5", STR),
    (f"SELECT k FROM a WHERE {NEITHER} WINDOW 5 INTERSECT SELECT k FROM c WINDOW 5", STR),
    # Rule 4: groups are weak, whatever is below.
    ("SELECT k, count(*) FROM a GROUP BY k WINDOW 5", WK),
    ("SELECT count(*) FROM a WINDOW 5", WK),
    (f"SELECT k, count(*) FROM a WHERE {NEITHER} GROUP BY k WINDOW 5", WK),
    ("SELECT k, count(*) FROM a, now WHERE k = id GROUP BY k WINDOW 5", WK),
    # But to what stands above, a value that is replaced is one that is retracted.
    ("SELECT DISTINCT count(*) FROM a GROUP BY k WINDOW 5", STR),
    ("SELECT count(*) FROM a WINDOW 5 UNION ALL SELECT k FROM b WINDOW 5", STR),
    ("SELECT count(*) FROM a WINDOW 5 UNION SELECT k FROM b WINDOW 5", STR),
    ("SELECT count(*) FROM a WINDOW 5 INTERSECT SELECT k FROM b WINDOW 5", STR),
    # Rule 5: negation, and a join with a table as it is, are strict.
    ("SELECT k FROM a WINDOW 5 EXCEPT SELECT k FROM b WINDOW 5", STR),
    ("SELECT k FROM a WINDOW 5 EXCEPT ALL SELECT k FROM b WINDOW 5", STR),
    (f"SELECT k FROM a WHERE {NEITHER} WINDOW 5", STR),
    ("SELECT name FROM a, now WHERE k = id WINDOW 5", STR),
]


@pytest.mark.parametrize(("sql", "expected"), RULES)
def test_rules(catalog, sql, expected):
    made = bound(sql, catalog)
    assert label(made.root) is expected
    edges = labelled(made)
    assert edges[0].label is expected
    assert edges[0].depth == 0 and all(edge.depth > 0 for edge in edges[1:])
    leaves = [edge for edge in edges if edge.label in (MON, WKS) and edge.text.split(",")[0].split()[0] in "abc"]
    assert len(leaves) == len(plan.windows(made.root))


def edges_of(sql: str, catalog: Catalog) -> list[tuple[int, str, Label]]:
    return [(edge.depth, edge.text, edge.label) for edge in labelled(bound(sql, catalog))]


def test_both_plans_of_the_figure(catalog):
    """negation(join(a, c), b) and join(negation(a, b), c)."""
    above = bound(f"SELECT a.k FROM a, c WHERE a.k = c.k AND {NEITHER} WINDOW 5", catalog)
    root = above.root
    assert isinstance(root, plan.StandingSelect)
    body = root.body
    assert isinstance(body, plan.Exists) and isinstance(body.left, plan.Join)
    assert (label(body.left), label(body), label(above.root)) == (WK, STR, STR)
    assert [(edge.depth, edge.label) for edge in labelled(above)] == [
        (0, STR),  # what is shown
        (1, STR),  # the negation
        (2, WK),  # the join
        (3, WKS),
        (3, WKS),
        (2, WKS),
    ]
    # The language has no negation below a join: by hand.
    negation = replace(body, left=body.left.left)
    below = replace(body.left, left=negation)  # type: ignore[arg-type]  # no plan of ours has it
    assert (label(negation), label(below)) == (STR, STR)
    pushed = replace(above, root=replace(root, body=below))
    assert [(edge.depth, edge.label) for edge in labelled(pushed)] == [
        (0, STR),
        (1, STR),  # the join
        (2, STR),  # the negation
        (3, WKS),
        (3, WKS),
        (2, WKS),
    ]
    # An intersection with the other query says the same with sets.
    assert (
        label(bound(f"SELECT k FROM a WHERE {NEITHER} WINDOW 5 INTERSECT SELECT k FROM c WINDOW 5", catalog).root)
        is STR
    )


def test_every_edge_is_told(catalog):
    assert edges_of(
        "SELECT DISTINCT l.k, r.x FROM a l, b r WHERE l.k = r.k AND l.x > 1 AND l.x < r.x WINDOW 1 MINUTE", catalog
    ) == [
        (0, "DISTINCT, two rows a value at most", WK),
        (1, "project k, x", WK),
        (2, "join on 1 equality and 1 condition", WK),
        (3, "a l, the last 60 s, 1 condition", WKS),
        (3, "b r, the last 60 s", WKS),
    ]
    assert edges_of(f"SELECT k FROM a WINDOW 5 EXCEPT SELECT k FROM a WHERE {NEITHER} WINDOW 0.5", catalog) == [
        (0, "EXCEPT", STR),
        (1, "project k", WKS),
        (2, "a, the last 5 s", WKS),
        (1, "project k", STR),
        (2, "NOT EXISTS on 1 equality", STR),
        (3, "a, the last 0.5 s", WKS),
        (3, "b, the last 0.5 s", WKS),
    ]
    assert edges_of("SELECT DISTINCT count(*) AS n FROM a, now WHERE k = id GROUP BY k, x WINDOW 5", catalog) == [
        (0, "DISTINCT", STR),
        (1, "GROUP BY of 2 keys: count", WK),
        (2, "join with the RETROACTIVE table now by id", STR),
        (3, "a, the last 5 s", WKS),
    ]
    assert edges_of("SELECT k FROM a UNION ALL SELECT k FROM b", catalog)[:3] == [
        (0, "UNION ALL", MON),
        (1, "project k", MON),
        (2, "a", MON),
    ]


def stores(sql: str, catalog: Catalog) -> list[str]:
    return [edge.store for edge in labelled(bound(sql, catalog))]


def test_stores(catalog):
    """The first is the view's; the others are what the step above an edge keeps of it."""
    assert stores("SELECT k FROM a WINDOW 5", catalog) == ["ring", ""]
    assert stores("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 5", catalog) == [
        "calendar",
        "",
        "keyed calendar",
        "keyed calendar",
    ]
    assert stores("SELECT DISTINCT k FROM a WINDOW 5", catalog) == ["calendar", "", ""]
    assert stores(f"SELECT DISTINCT k FROM a WHERE {NEITHER} WINDOW 5", catalog)[:2] == [
        "indexed calendar",
        "keyed calendar",
    ]
    assert stores("SELECT k, count(*) FROM a GROUP BY k WINDOW 5", catalog) == ["hash", "keyed calendar"]
    assert stores('SELECT name FROM a, "then" WHERE k = id WINDOW 5', catalog) == ["ring", "", ""]
    assert stores("SELECT name FROM a, now WHERE k = id WINDOW 5", catalog) == [
        "indexed calendar",
        "",
        "keyed calendar",
    ]
    assert stores("SELECT k FROM a WINDOW 5 UNION ALL SELECT k FROM b WINDOW 6", catalog) == [
        "calendar",
        "",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize("found", Label)
def test_the_store_of_a_view(found):
    expected = {MON: "ring", WKS: "ring", WK: "calendar", STR: "indexed calendar"}[found]
    for mode in (Mode.PIGGYBACK, Mode.TIME, Mode.ITA):
        assert store_name(found, mode, found is STR) == expected
    assert store_name(found, Mode.NTA, found is STR) == "hash"
    assert store_name(WK, Mode.PIGGYBACK, True) == "hash"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT k FROM a WINDOW 5", False),
        ("SELECT DISTINCT k FROM a WINDOW 5", False),
        ("SELECT k, count(*) FROM a GROUP BY k WINDOW 5", True),
        ("SELECT DISTINCT count(*) FROM a GROUP BY k WINDOW 5", True),
        ("SELECT k FROM a WINDOW 5 EXCEPT SELECT k FROM b WINDOW 5", True),
        ("SELECT count(*) FROM a WINDOW 5 UNION ALL SELECT count(*) FROM b WINDOW 5", True),
        ("SELECT count(*) FROM a WINDOW 5 UNION SELECT count(*) FROM b WINDOW 5", True),
    ],
)
def test_what_takes_results_back(catalog, sql, expected):
    assert retracts(bound(sql, catalog).root) is expected


def test_mode_changes_the_view_only(catalog):
    made = bound("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 5", catalog)
    assert [edge.store for edge in labelled(made, Mode.NTA)] == ["hash", "", "keyed calendar", "keyed calendar"]


def test_labels_have_names():
    assert [str(one) for one in Label] == ["monotonic", "weakest", "weak", "strict"]


def test_notes_say_why(catalog):
    (edge, *_) = labelled(bound("SELECT k FROM a WINDOW 5 UNION ALL SELECT k FROM b WINDOW 6", catalog))
    assert edge.note == "windows of unequal length"
    (edge, *_) = labelled(bound("SELECT k FROM a WINDOW 5 EXCEPT SELECT k FROM b WINDOW 6", catalog))
    assert "takes one on the left back" in edge.note


def test_explain_tells_labels_and_stores(catalog):
    told = explain_standing(bound(f"SELECT k FROM a WHERE {NEITHER} WINDOW 5 BUDGET 5 MS", catalog))
    assert str(told).splitlines() == [
        "project k [strict, view: indexed calendar]",
        "  NOT EXISTS on 1 equality [strict]: a tuple leaves when a partner arrives",
        "    a, the last 5 s [weakest, stored: keyed calendar]",
        "    b, the last 5 s [weakest, stored: keyed calendar]",
        "CPU time: 5 ms of each second",
    ]
    assert told.steps[0] == told.lines[0] and told.regions.num_rows == 0
    assert explain_standing(bound("SELECT k FROM a WINDOW 5", catalog)).lines[0] == "project k [weakest, view: slices]"
    assert "view: hash" in str(
        explain_standing(bound("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 5", catalog), Mode.NTA)
    )


def test_explain_in_a_session():
    session = Session()
    session.execute("CREATE STREAM a (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
    told = session.execute("EXPLAIN CREATE CONTINUOUS QUERY q AS SELECT DISTINCT k FROM a WINDOW 5 SECONDS")
    assert str(told).startswith("DISTINCT, two rows a value at most [weak, view: calendar]: a value stays")
    assert not session.catalog.queries
    with pytest.raises(BadClause, match="without WINDOW"):
        session.execute("EXPLAIN CREATE CONTINUOUS QUERY q AS SELECT DISTINCT k FROM a")
