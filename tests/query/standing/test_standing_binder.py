"""The inside of CREATE CONTINUOUS QUERY becomes a plan, or is refused with the reason, at its place.

In the refused texts ‸ stands before the place that the error must point at.
"""

import re
from typing import TypeVar

import pyarrow as pa
import pytest
from sqlglot import exp

from promising.errors import Ambiguous, BadClause, NoSuchName, NoSummary, StatementError, TypeMismatch, Unsupported
from promising.index import Stream
from promising.index.table import Table
from promising.query.binder import bind
from promising.query.bound import RESULT
from promising.query.catalog import Catalog, SummaryEntry
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW
from promising.query.sql import generate, nodes, parse
from promising.query.standing import plan
from promising.query.standing.standing_binder import bind_standing, budgeted, standing_budget

B = TypeVar("B", plan.Window, plan.Join, plan.TableJoin, plan.Exists)

SECOND = 1_000_000
TYPES = {"ts": "timestamp", "k": "int", "x": "float", "s": "string", "f": "bool"}


@pytest.fixture
def catalog():
    made = Catalog()
    for name in ("a", "b", "Clicks"):
        made.streams[name.lower()] = Stream(name, dict(TYPES), "ts")
    for name in ("ranked", "other"):
        stream = Stream(name, dict(TYPES), "ts")
        stream.create_summary(f"{name}_k", "k", granularity=SECOND, collapse=(2, 3))
        made.streams[name] = stream
        made.summaries[f"{name}_k"] = SummaryEntry(name, stream.summaries[f"{name}_k"])
    made.tables["names"] = Table("names", {"id": "int", "name": "string", "k": "float"}, "id")
    made.tables["fixed"] = Table("fixed", {"word": "string", "n": "int"}, "word", retroactive=False)
    return made


def bound(sql: str, catalog: Catalog) -> plan.Standing:
    return bind_standing(parse(sql), sql, catalog)


def selected(sql: str, catalog: Catalog) -> plan.StandingSelect:
    root = bound(sql, catalog).root
    assert isinstance(root, plan.StandingSelect)
    return root


def body_of(kind: type[B], made: plan.Standing) -> B:
    assert isinstance(made.root, plan.StandingSelect) and isinstance(made.root.body, kind)
    return made.root.body


def inputs(*parts: Compiled | None) -> set[tuple[int, str]]:
    return {(i.source, i.name) for part in parts if part is not None for i in part.inputs}


def texts(window: plan.Window) -> list[str]:
    assert len(window.conditions) == len(window.predicates)
    return [generate(condition) for condition in window.conditions]


def pairs(keys: tuple[tuple[Compiled, Compiled], ...]) -> list[tuple[set[tuple[int, str]], set[tuple[int, str]], str]]:
    assert all(left.kind == right.kind for left, right in keys)
    return [(inputs(left), inputs(right), left.kind) for left, right in keys]


# --- one SELECT ------------------------------------------------------------------------------------------------------


def test_a_selection(catalog):
    made = bound("select K, x * 2 as twice from A where x > 1 and s = 'q' and 1 / k > 0 window 5 seconds", catalog)
    root = made.root
    assert isinstance(root, plan.StandingSelect) and isinstance(root.body, plan.Window)
    window = root.body
    assert (window.stream, window.length, window.place, window.alias) == (catalog.streams["a"], 5 * SECOND, 0, "A")
    assert texts(window) == ["x > 1", "s = 'q'", "1 / k > 0"]
    assert (made.names, made.kinds) == (("k", "twice"), ("int", "float"))
    assert made.statement == "SELECT K, x * 2 AS twice FROM A WHERE x > 1 AND s = 'q' AND 1 / k > 0 WINDOW 5 SECONDS"
    assert made.reads == {"a"}
    assert (made.preference, made.budget, made.warnings) == (None, None, ())
    assert not (root.distinct or root.grouped)
    (column, doubled) = root.outputs
    values = {i: pa.array([3.0], ARROW["float"]) for i in doubled.inputs}
    assert doubled.evaluate(values, 1).to_pylist() == [6.0]
    assert column.inputs == {Input(0, "k", "int")}


def test_without_window_selections_and_unions_of_them_stand(catalog):
    assert body_of(plan.Window, bound("SELECT * FROM a WHERE x > 1", catalog)).length is None
    made = bound("SELECT k FROM a UNION ALL SELECT k FROM b WHERE k > 1 UNION ALL SELECT k FROM Clicks", catalog)
    assert [window.length for window in plan.windows(made.root)] == [None, None, None]
    assert made.reads == {"a", "b", "clicks"}


def test_a_join_is_split_by_what_its_conditions_look_at(catalog):
    root = selected(
        "SELECT l.k, r.x FROM a l JOIN b AS r ON l.k = r.x AND r.f WHERE r.s = l.s AND l.x > 1 AND l.ts < r.ts"
        " AND 1 / r.k > 0 AND l.k = l.x AND TRUE AND r.k + 1 = l.k WINDOW 1 MINUTE",
        catalog,
    )
    join = root.body
    assert isinstance(join, plan.Join)
    # What can fail is asked of pairs only, as in a query that is asked once.
    assert pairs(join.keys) == [({(0, "k")}, {(1, "x")}, "float"), ({(0, "s")}, {(1, "s")}, "string")]
    assert texts(join.left) == ["l.x > 1", "l.k = l.x", "TRUE"]
    assert texts(join.right) == ["r.f"]
    assert [inputs(part) for part in join.residual] == [{(0, "ts"), (1, "ts")}, {(1, "k")}, {(1, "k"), (0, "k")}]
    assert [(w.stream.name, w.place, w.alias, w.length) for w in (join.left, join.right)] == [
        ("a", 0, "l", 60 * SECOND),
        ("b", 1, "r", 60 * SECOND),
    ]
    assert inputs(*root.outputs) == {(0, "k"), (1, "x")}


def test_integers_beside_floats_are_joined_as_floats(catalog):
    (pair,) = body_of(plan.Join, bound("SELECT a.k FROM a, b WHERE b.x = a.k WINDOW 5", catalog)).keys
    assert [side.kind for side in pair] == ["float", "float"]
    assert pair[0].evaluate({Input(0, "k", "int"): pa.array([3])}, 1).to_pylist() == [3.0]


def test_a_key_that_can_fail_is_one_only_if_there_is_no_other(catalog):
    join = body_of(plan.Join, bound("SELECT a.k FROM a, b WHERE a.k = b.k + 1 WINDOW 5", catalog))
    assert pairs(join.keys) == [({(0, "k")}, {(1, "k")}, "int")]
    assert not join.residual


def test_a_stream_with_itself(catalog):
    sql = "SELECT l.k, r.k FROM a l, a r WHERE l.k = r.k AND l.x < r.x WINDOW 5"
    join = body_of(plan.Join, bound(sql, catalog))
    assert join.left.stream is join.right.stream
    assert (join.left.place, join.right.place) == (0, 1)


def test_groups_are_as_in_queries_that_are_asked_once(catalog):
    root = selected(
        "SELECT k % 10 AS d, count(*), sum(x) / count(*) AS mean, quantile(x, 0.9), count(DISTINCT s) FROM a"
        " GROUP BY d HAVING max(x) > 1 WINDOW 5",
        catalog,
    )
    assert root.grouped and len(root.keys) == 1
    assert [a.function for a in root.aggregates] == ["count", "sum", "quantile", "count_distinct", "max"]
    assert root.arguments[0] is None and inputs(root.arguments[1]) == {(0, "x")}
    assert inputs(*root.outputs) == {(RESULT, "k0"), (RESULT, "a0"), (RESULT, "a1"), (RESULT, "a2"), (RESULT, "a3")}
    assert root.having is not None and inputs(root.having) == {(RESULT, "a4")}


def test_one_group_and_distinct(catalog):
    root = selected("SELECT count(*) FROM a WINDOW 5", catalog)
    assert root.grouped and root.keys == ()
    assert selected("SELECT DISTINCT k FROM a WINDOW 5", catalog).distinct


def test_a_column_of_nothing_has_a_type(catalog):
    assert bound("SELECT NULL AS nothing FROM a", catalog).kinds == ("int",)


def test_names_are_as_in_queries_that_are_asked_once(catalog):
    made = bound("SELECT * FROM a l, b r WHERE l.k = r.k AND l.x = 2 WINDOW 5", catalog)
    assert made.names == ("ts", "k", "x", "s", "f", "ts_1", "k_1", "x_1", "s_1", "f_1")


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_table(catalog):
    made = bound(
        "SELECT * FROM a JOIN names n ON n.id = a.k WHERE name LIKE 'x%' AND x > 1 AND n.k < x WINDOW 5", catalog
    )
    body = body_of(plan.TableJoin, made)
    assert (body.table, body.place, body.window.place) == (catalog.tables["names"], 1, 0)
    assert inputs(body.key) == {(0, "k")} and body.key.kind == "int"
    assert texts(body.window) == ["x > 1"]
    assert [inputs(part) for part in body.residual] == [{(1, "name")}, {(1, "k"), (0, "x")}]
    assert made.reads == {"a", "names"}
    assert made.names == ("ts", "k", "x", "s", "f", "id", "name", "k_1")


def test_a_table_may_come_first_and_what_it_was_needs_no_window(catalog):
    sql = "SELECT n FROM fixed, a WHERE lower(a.s) = fixed.word AND 1 / k > 0"
    body = body_of(plan.TableJoin, bound(sql, catalog))
    assert (body.place, body.window.place, body.window.length) == (0, 1, None)
    assert inputs(body.key) == {(1, "s")}
    assert [inputs(part) for part in body.residual] == [{(1, "k")}]


# --- EXISTS ----------------------------------------------------------------------------------------------------------


def test_exists(catalog):
    made = bound(
        "SELECT k FROM a WHERE NOT EXISTS (SELECT 1 FROM b r WHERE r.k = a.x AND s = a.s AND r.x > 1 AND TRUE) AND f"
        " WINDOW 5",
        catalog,
    )
    body = body_of(plan.Exists, made)
    assert body.negated
    assert isinstance(body.left, plan.Window) and texts(body.left) == ["f"]
    assert (body.right.stream.name, body.right.place, body.right.alias, body.right.length) == ("b", 1, "r", 5 * SECOND)
    assert texts(body.right) == ["r.x > 1", "TRUE"]
    assert inputs(*body.right.predicates) == {(1, "x")}
    assert pairs(body.keys) == [({(0, "x")}, {(1, "k")}, "float"), ({(0, "s")}, {(1, "s")}, "string")]
    assert made.reads == {"a", "b"}
    assert [w.stream.name for w in plan.windows(made.root)] == ["a", "b"]


def test_exists_over_a_join(catalog):
    sql = "SELECT a.k FROM a, b WHERE a.k = b.k AND EXISTS (SELECT * FROM Clicks c WHERE a.k + b.k = c.k) WINDOW 5"
    body = body_of(plan.Exists, bound(sql, catalog))
    assert isinstance(body.left, plan.Join) and not body.negated
    assert body.right.place == 2
    assert pairs(body.keys) == [({(0, "k"), (1, "k")}, {(2, "k")}, "int")]


def test_names_inside_of_exists_are_its_own_first(catalog):
    sql = "SELECT k FROM a WHERE NOT NOT EXISTS (SELECT k FROM a i WHERE a.k = k) WINDOW 5"
    body = body_of(plan.Exists, bound(sql, catalog))
    assert pairs(body.keys) == [({(0, "k")}, {(1, "k")}, "int")]
    assert not body.negated


# --- queries put together --------------------------------------------------------------------------------------------


def test_set_operations(catalog):
    made = bound(
        "SELECT k, x AS y FROM a WINDOW 5 UNION ALL SELECT x, k FROM b WINDOW 6 EXCEPT"
        " (SELECT k, NULL FROM a WINDOW 7 INTERSECT ALL SELECT DISTINCT k, x FROM Clicks WINDOW 8)",
        catalog,
    )
    root = made.root
    assert isinstance(root, plan.SetOperation)
    assert (root.operator, root.all) == ("except", False)
    left, right = root.left, root.right
    assert isinstance(left, plan.SetOperation) and isinstance(right, plan.SetOperation)
    assert (left.operator, left.all, right.operator, right.all) == ("union", True, "intersect", True)
    assert [window.length for window in plan.windows(root)] == [5 * SECOND, 6 * SECOND, 7 * SECOND, 8 * SECOND]
    assert (made.names, made.kinds) == (("k", "y"), ("float", "float"))
    assert made.reads == {"a", "b", "clicks"}

    def kinds(query: plan.Query) -> list[tuple[str, ...]]:
        if isinstance(query, plan.SetOperation):
            return kinds(query.left) + kinds(query.right)
        return [tuple(output.kind for output in query.outputs)]

    assert kinds(root) == [("float", "float")] * 4


def test_columns_of_nothing_take_the_type_of_the_others(catalog):
    made = bound("SELECT NULL AS a, NULL AS b FROM a UNION ALL SELECT NULL, s FROM b", catalog)
    assert (made.names, made.kinds) == (("a", "b"), ("int", "string"))


def test_a_table_below_a_set_operation(catalog):
    made = bound(
        "SELECT name FROM a, names WHERE a.k = names.id WINDOW 5 EXCEPT"
        " SELECT s FROM b WHERE NOT EXISTS (SELECT 1 FROM a WHERE a.k = b.k) WINDOW 5",
        catalog,
    )
    assert made.reads == {"a", "b", "names"}


# --- preference and budget -------------------------------------------------------------------------------------------


def test_a_preference_reads_its_summaries(catalog):
    made = bound(
        "SELECT r.k FROM ranked r, other o WHERE r.k = o.k"
        " WITH PREFERENCE SUMMARY.Estimate.Count(r.k), SUMMARY.Estimate.Count(o.k)"
        " WINDOW 2 SECONDS BUDGET 50 MILLISECONDS",
        catalog,
    )
    assert made.preference is not None and made.preference.direction == "DESC"
    assert made.reads == {"ranked", "other", "ranked_k", "other_k"}
    assert made.budget == 50_000
    assert made.warnings == ()


RANKED = "SELECT r.k FROM ranked r, other o WHERE r.k = o.k WITH PREFERENCE {} WINDOW 2 SECONDS"
INSTEAD = "write WITH PREFERENCE {} SUMMARY.Estimate.Count(r.k), SUMMARY.Estimate.Count(o.k)"


@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED"])
@pytest.mark.parametrize(
    "expression",
    [
        "SUMMARY.Estimate.Count(r.k) * r.x",
        "SUMMARY.Estimate.Count(r.k), SUMMARY.Estimate.Count(o.k), o.x",
        "SUMMARY.Estimate.Count(r.k)",
        "SUMMARY.Estimate.Upper(r.k), SUMMARY.Estimate.Upper(o.k)",
        "SUMMARY.Estimate.Count(r.k) + SUMMARY.Estimate.Count(o.k)",
        "SUMMARY.Estimate.Count(r.k), SUMMARY.Estimate.Count(o.k), SUMMARY.Estimate.Count(o.k)",
    ],
)
def test_a_preference_that_a_join_does_not_honour_is_refused(catalog, direction, expression):
    """It was accepted, and ignored: all of them ranked by the number of partners."""
    sql = RANKED.format(f"{direction} {expression}")
    with pytest.raises(Unsupported, match=re.escape(INSTEAD.format(direction))) as refused:
        bound(sql, catalog)
    assert refused.value.column == sql.index("WITH PREFERENCE") + 1
    stored = bind_standing(parse(sql), sql, catalog, stored=True)
    assert stored.preference is None
    assert INSTEAD.format(direction) in stored.warnings[0]
    assert bound(RANKED.format(INSTEAD.format(direction).partition("PREFERENCE ")[2]), catalog).preference is not None


def test_fade_and_a_preference_without_a_join_are_refused(catalog):
    both = "SUMMARY.Estimate.Count(r.k), SUMMARY.Estimate.Count(o.k) FADE FACTOR 0.8"
    with pytest.raises(Unsupported, match="leave FADE FACTOR out"):
        bound(RANKED.format(both), catalog)
    with pytest.raises(Unsupported, match="leave FADE HALF LIFE out"):
        bound(RANKED.format(both.replace("FACTOR 0.8", "HALF LIFE 1 SECOND")), catalog)
    assert bound(RANKED.format(both.replace("0.8", "1")), catalog).preference is not None
    with pytest.raises(Unsupported, match="no join and computes every row: leave PREFERENCE out"):
        bound("SELECT k FROM ranked WITH PREFERENCE SUMMARY.Estimate.Count(k) WINDOW 2 SECONDS", catalog)


def test_a_window_longer_than_the_stream_keeps_is_refused(catalog):
    sql = "SELECT count(*) FROM ranked WINDOW 1 HOUR BUDGET 1 MS"
    assert bound(sql, catalog).warnings == (), "it keeps everything"
    catalog.streams["ranked"].set_keep(3_600 * SECOND)
    assert bound(sql, catalog).warnings == ()
    catalog.streams["ranked"].set_keep(3_600 * SECOND - 1)
    with pytest.raises(BadClause, match="ALTER STREAM ranked KEEP 1 hour"):
        bound(sql, catalog)


@pytest.mark.parametrize(
    ("sql", "warned"),
    [
        ("SELECT count(*) FROM a, b WHERE a.k = b.k WINDOW 5", True),
        ("SELECT k FROM a WINDOW 5 EXCEPT SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 5", True),
        (
            "SELECT 1 FROM a WINDOW 5 UNION (SELECT 2 FROM a WINDOW 5 EXCEPT"
            " SELECT 3 FROM a, b WHERE a.k = b.k WINDOW 5)",
            True,
        ),
        ("SELECT DISTINCT a.k FROM a, b WHERE a.k = b.k WINDOW 5", False),
        ("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 5 EXCEPT SELECT k FROM a WINDOW 5", False),
        ("SELECT k, count(*) FROM a GROUP BY k WINDOW 5", False),
    ],
)
def test_a_budget_that_can_mislead_is_warned_of(catalog, sql, warned):
    """A part of the pairs gives a part of the rows, unless they are counted or taken away."""
    assert bound(sql, catalog).warnings == ()
    bracket = sql.endswith(")")
    limited = sql[:-1] + " BUDGET 1 MS)" if bracket else sql + " BUDGET 1 MS"
    assert any("joined so far" in warning for warning in bound(limited, catalog).warnings) == warned


def test_the_budget_is_that_of_the_whole(catalog):
    sql = "SELECT k FROM a WINDOW 5 UNION ALL SELECT k FROM b WINDOW 5 BUDGET 7 MS"
    assert bound(sql, catalog).budget == 7_000
    other = budgeted(parse(sql), nodes.Span(amount=exp.Literal.number("1"), unit="SECOND"))
    assert generate(other) == "SELECT k FROM a WINDOW 5 UNION ALL SELECT k FROM b WINDOW 5 BUDGET 1 SECONDS"
    assert bound(generate(other), catalog).budget == SECOND
    assert generate(budgeted(other, None)) == "SELECT k FROM a WINDOW 5 UNION ALL SELECT k FROM b WINDOW 5"
    assert generate(parse(sql)).endswith("7 MILLISECONDS"), "the tree that was given is left as it was"


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ("0 MS", "no time at all"),
        ("-1 MS", "no time at all"),
        ("2 SECONDS", "1 SECOND at most"),
        ("50", "needs a unit"),
    ],
)
def test_a_budget_out_of_range(span, message):
    sql = f"ALTER QUERY q SET BUDGET {span}"
    with pytest.raises(BadClause, match=message) as caught:
        standing_budget(parse(sql).args["budget"], sql)
    assert caught.value.column == len("ALTER QUERY q SET BUDGET ") + 1


# --- what is refused -------------------------------------------------------------------------------------------------

WINDOW = "without WINDOW would have to keep every tuple for ever"
REFUSED: list[tuple[type[StatementError], str, str]] = [
    # State that would only grow.
    (BadClause, "SELECT a.k FROM a, ‸b WHERE a.k = b.k", f"a join {WINDOW}"),
    (BadClause, "SELECT ‸DISTINCT k FROM a", f"SELECT DISTINCT {WINDOW}"),
    (BadClause, "SELECT k FROM a ‸GROUP BY k", f"GROUP BY {WINDOW}"),
    (BadClause, "SELECT 1, 2 + ‸count(*) FROM a", f"an aggregate {WINDOW}"),
    (BadClause, "SELECT k FROM a WHERE ‸EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", f"EXISTS {WINDOW}"),
    (BadClause, "SELECT k FROM a WHERE NOT ‸EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", f"EXISTS {WINDOW}"),
    (BadClause, "SELECT name FROM a, ‸names WHERE id = a.k", f"RETROACTIVE table {WINDOW}"),
    (BadClause, "SELECT name FROM ‸names, a WHERE id = a.k", f"RETROACTIVE table {WINDOW}"),
    (BadClause, "‸SELECT k FROM a UNION SELECT k FROM b WINDOW 5", f"UNION of a SELECT {WINDOW}"),
    (BadClause, "SELECT k FROM a WINDOW 5 EXCEPT ALL ‸SELECT k FROM b", f"EXCEPT ALL of a SELECT {WINDOW}"),
    (
        BadClause,
        "SELECT k FROM a WINDOW 5 INTERSECT (SELECT k FROM b WINDOW 5 UNION ALL ‸SELECT k FROM b)",
        f"INTERSECT of a SELECT {WINDOW}",
    ),
    # Clauses that a view has no use for.
    (Unsupported, "SELECT k FROM a ‸ORDER BY k", "a view has no order"),
    (Unsupported, "SELECT k FROM a ‸LIMIT 5", "cut its snapshot"),
    (Unsupported, "SELECT k FROM a WINDOW 5 ‸LIMIT 2 BY k", "LIMIT n BY in a continuous query"),
    (
        Unsupported,
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k ‸LIMIT 2 BY k) WINDOW 5",
        "LIMIT n BY inside of EXISTS",
    ),
    (Unsupported, "SELECT k FROM a UNION ALL SELECT k FROM b ‸LIMIT 5", "cut its snapshot"),
    (Unsupported, "SELECT sum(k) FROM a WINDOW 5 ‸WITH ERROR 0.1", "its aggregates are exact"),
    (BadClause, "SELECT k FROM a FADE FACTOR ‸0.5", "WITH PREFERENCE is missing"),
    (BadClause, "SELECT k FROM a WINDOW ‸0 SECONDS", "longer than nothing"),
    (BadClause, "SELECT k FROM a WINDOW ‸13200000 DAYS", "36,000 years at most"),
    (BadClause, "SELECT k FROM a BUDGET ‸2 SECONDS", "1 SECOND at most"),
    (BadClause, "SELECT k FROM a BUDGET ‸0 SECONDS", "no time at all"),
    (BadClause, "SELECT k FROM a BUDGET ‸1 MS UNION ALL SELECT k FROM b", "after the last SELECT"),
    (NoSummary, "SELECT k FROM a WITH PREFERENCE ‸SUMMARY.Estimate.Count(k)", "no summary"),
    (
        Unsupported,
        "SELECT k FROM ranked ‸WITH PREFERENCE SUMMARY.Estimate.Count(k) UNION ALL SELECT k FROM a",
        "stands alone",
    ),
    (
        Unsupported,
        "SELECT ranked.k FROM ranked, fixed WHERE s = word ‸WITH PREFERENCE SUMMARY.Estimate.Count(ranked.k)",
        "join with a table",
    ),
    # FROM.
    (NoSuchName, "SELECT k FROM ‸click", "no stream or table 'click'; did you mean Clicks?"),
    (NoSuchName, "SELECT k FROM a, ‸name WHERE a.k = id", "did you mean names?"),
    (NoSuchName, "SELECT k FROM ‸ranked_k", "it is a summary"),
    (NoSuchName, "SELECT ‸kk FROM a", "did you mean k?"),
    (Ambiguous, "SELECT ‸k FROM a, b WHERE a.k = b.k WINDOW 5", "write a.k or b.k"),
    (Ambiguous, "SELECT a.k FROM a, names WHERE a.k = id AND ‸k > 1 WINDOW 5", "write a.k or names.k"),
    (Unsupported, "SELECT a.k FROM a, b WHERE ‸a.k < b.k WINDOW 5", "cross joins are not offered"),
    (Unsupported, "‸SELECT a.k FROM a, b WINDOW 5", "cross joins are not offered"),
    (TypeMismatch, "SELECT a.k FROM a, b WHERE ‸a.k = b.s WINDOW 5", "compare"),
    (Unsupported, "SELECT name FROM ‸names", "at least one stream"),
    (Unsupported, "SELECT name FROM ‸names, fixed WHERE name = word", "at least one stream"),
    (Unsupported, "SELECT name FROM a JOIN names ON ‸name = s WINDOW 5", "by its primary key"),
    (Unsupported, "SELECT name FROM a, ‸names WINDOW 5", "names.id = a.column is missing"),
    (Unsupported, "SELECT name FROM a, names WHERE ‸id = 5 WINDOW 5", "by its primary key"),
    (TypeMismatch, "SELECT name FROM a, names WHERE id = ‸a.x WINDOW 5", "is an integer, and this is a float: cast it"),
    (TypeMismatch, "SELECT name FROM a, names WHERE ‸id = a.s WINDOW 5", "compare"),
    (BadClause, "SELECT a.k FROM a, ‸b AS a WHERE a.k = a.k WINDOW 5", "another alias"),
    # Conditions.
    (BadClause, "SELECT k FROM a WHERE ‸count(*) > 1 WINDOW 5", "cannot stand in WHERE"),
    (BadClause, "SELECT ‸k, count(*) FROM a WINDOW 5", "neither in GROUP BY"),
    # EXISTS.
    (
        Unsupported,
        "SELECT a.k FROM a, names WHERE a.k = id AND ‸EXISTS (SELECT 1 FROM b WHERE b.k = a.k) WINDOW 5",
        "beside a table",
    ),
    (Unsupported, "SELECT k FROM a WHERE f OR ‸EXISTS (SELECT 1 FROM b WHERE b.k = a.k) WINDOW 5", "that AND joins"),
    (Unsupported, "SELECT ‸EXISTS (SELECT 1 FROM b WHERE b.k = a.k) FROM a WINDOW 5", "that AND joins"),
    (
        Unsupported,
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AND"
        " NOT ‸EXISTS (SELECT 1 FROM b WHERE b.x = a.x) WINDOW 5",
        "a second EXISTS",
    ),
    (Unsupported, "SELECT k FROM a WHERE ‸EXISTS (SELECT 1 FROM b WHERE b.k = 1) WINDOW 5", "needs an equality"),
    (Unsupported, "SELECT k FROM a WHERE ‸EXISTS (SELECT 1 FROM b) WINDOW 5", "such as b.k = a.k"),
    (
        Unsupported,
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND ‸b.x < a.x) WINDOW 5",
        "or about b alone",
    ),
    (Unsupported, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND ‸a.f) WINDOW 5", "about b alone"),
    (Unsupported, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM ‸names WHERE id = a.k) WINDOW 5", "reads a stream"),
    (Unsupported, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b, ‸Clicks WHERE b.k = a.k) WINDOW 5", "one stream"),
    (NoSuchName, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM ‸bb WHERE b.k = a.k) WINDOW 5", "no stream 'bb'"),
    (NoSuchName, "SELECT k FROM a WHERE EXISTS (SELECT ‸z FROM b WHERE b.k = a.k) WINDOW 5", "no column 'z' in b"),
    (NoSuchName, "SELECT k FROM a WHERE EXISTS (SELECT z.* FROM b WHERE b.k = a.k) WINDOW 5", "no stream 'z'"),
    (NoSuchName, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE ‸b.z = a.k) WINDOW 5", "no column 'z' in b"),
    (NoSuchName, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = ‸a.kk) WINDOW 5", "did you mean k?"),
    (NoSuchName, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = ‸c.k) WINDOW 5", "no stream 'c'"),
    (BadClause, "SELECT k FROM a WHERE EXISTS (SELECT ‸count(*) FROM b WHERE b.k = a.k) WINDOW 5", "always true"),
    (
        BadClause,
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k WINDOW ‸5 SECONDS) WINDOW 5",
        "that of the query around it",
    ),
    (Unsupported, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k ‸LIMIT 1) WINDOW 5", "LIMIT inside"),
    (Unsupported, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k ‸GROUP BY x) WINDOW 5", "GROUP BY"),
    (Unsupported, "SELECT k FROM a WHERE EXISTS (SELECT ‸DISTINCT 1 FROM b WHERE b.k = a.k) WINDOW 5", "DISTINCT"),
    (
        Unsupported,
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND ‸EXISTS (SELECT 1 FROM a)) WINDOW 5",
        "EXISTS inside of EXISTS",
    ),
    (TypeMismatch, "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE ‸b.k = a.s) WINDOW 5", "compare"),
    # Queries put together.
    (BadClause, "SELECT k FROM a ‸UNION ALL SELECT k, x FROM b", "UNION ALL of 1 column and of 2"),
    (
        TypeMismatch,
        "SELECT k, s FROM a WINDOW 5 ‸EXCEPT SELECT k, ts FROM b WINDOW 5",
        "column 2, s, is a string on the left and a timestamp on the right",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "marked", "message"), REFUSED)
def test_refused_with_the_reason_at_its_place(catalog, kind, marked, message):
    sql = "CREATE CONTINUOUS QUERY q AS\n" + marked.replace("‸", "")
    with pytest.raises(StatementError) as caught:
        bind_standing(parse(sql).args["query"], sql, catalog)
    error = caught.value
    assert type(error) is kind, error
    assert message in error.problem
    if "‸" in marked:
        assert (error.line, error.column) == (2, marked.index("‸") + 1), error


# --- a query that is asked once --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marked", "what"),
    [
        ("SELECT ‸DISTINCT k FROM a", "SELECT DISTINCT"),
        ("SELECT k FROM a ‸UNION SELECT k FROM b", "UNION"),
        ("SELECT k FROM a UNION SELECT k FROM b ‸EXCEPT ALL SELECT k FROM b", "EXCEPT"),
        ("SELECT k FROM a ‸INTERSECT SELECT k FROM b", "INTERSECT"),
        ("SELECT k FROM a WHERE ‸EXISTS (SELECT 1 FROM b WHERE a.k = b.k)", "EXISTS"),
        ("SELECT k FROM a WHERE NOT ‸EXISTS (SELECT 1 FROM b WHERE a.k = b.k)", "EXISTS"),
        ("SELECT name FROM ‸names", "a table in FROM"),
        ("SELECT name FROM a, ‸names WHERE a.k = id", "a table in FROM"),
    ],
)
def test_asked_once_it_is_refused(catalog, marked, what):
    sql = marked.replace("‸", "")
    with pytest.raises(Unsupported) as caught:
        bind(parse(sql), sql, catalog)
    assert caught.value.problem.startswith(f"{what} is offered in continuous queries")
    assert "CREATE CONTINUOUS QUERY name AS ..." in caught.value.problem
    assert caught.value.column == marked.index("‸") + 1
