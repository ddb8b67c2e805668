"""The paper's statements, as its Figures 3 and 6 print them, with names and numbers put in."""

import itertools

import pytest
from sqlglot import exp

from promising.query.sql import generate, nodes, parse

FIGURE_3A = "CREATE SUMMARY {name} ON {stream} ({attr}) WITH GRANULARITY {T_1} AND COLLAPSE({rate}, {depth})"
FIGURE_3B = (
    "SELECT {attr_1}, {attr_2} FROM {stream_1}, {stream_2} WHERE {conditions} "
    "WITH PREFERENCE {direction} {P_q} FADE FACTOR {a} WINDOW {w}"
)
FIGURE_6 = (
    "SELECT S1.ItemNo, S1.TimeStamp, S2.TimeStamp FROM Store1 S1, Store2 S2 WHERE S1.ItemNo= S2.ItemNo "
    "WITH PREFERENCE {direction} SUMMARY.Estimate.Count(S1.ItemNo), SUMMARY.Estimate.Count(S2.ItemNo) "
    "FADE FACTOR {a} WINDOW {w}"
)


def lettered(text: str) -> list[str]:
    """The text as it is, in other cases of its letters, and over several lines."""
    return [text, text.upper(), text.lower(), text.swapcase(), text.title(), "\n".join(text.split(" "))]


@pytest.mark.parametrize(
    ("length", "micros"), [("60 SECONDS", 60_000_000), ("60", 60_000_000), ("1 minute", 60_000_000)]
)
def test_figure_3a(length, micros):
    text = FIGURE_3A.format(name="s1", stream="Store1", attr="ItemNo", T_1=length, rate=4, depth=5)
    for spelling in lettered(text):
        tree = parse(spelling)
        assert isinstance(tree, nodes.CreateSummary)
        names = [tree.args[part].name.lower() for part in ("this", "stream", "key")]
        assert names == ["s1", "store1", "itemno"]
        assert tree.args["granularity"].micros == micros
        assert (tree.args["rate"].to_py(), tree.args["depth"].to_py()) == (4, 5)
        assert tree.text("structure") == ""
        assert parse(generate(tree)) == tree


def test_figure_3a_word_for_word():
    text = "CREATE SUMMARY s1 ON Store1 (ItemNo) WITH GRANULARITY 60 SECONDS AND COLLAPSE(4, 5)"
    assert generate(parse(text)) == text
    for other in (
        text.replace("COLLAPSE(", "COLLAPSE ("),
        text.replace(" (ItemNo", "(ItemNo"),
        text.replace(", ", ","),
    ):
        assert parse(other) == parse(text)


@pytest.mark.parametrize(
    ("direction", "meant"), [("asc", "ASC"), ("desc", "DESC"), ("weighted", "WEIGHTED"), ("", "DESC")]
)
def test_figure_3b(direction, meant):
    text = FIGURE_3B.format(
        attr_1="a",
        attr_2="s2.b",
        stream_1="s1",
        stream_2="s2",
        conditions="s1.k = s2.k AND a > 5",
        direction=direction,
        P_q="SUMMARY.Estimate.Count(s1.k)",
        a="0.8",
        w="60",
    )
    tree = parse(text)
    assert tree.args["preference"].args["direction"] == meant
    assert tree.args["fade"].name == "0.8"
    assert tree.args["window"].micros == 60_000_000
    assert parse(generate(tree)) == tree


@pytest.mark.parametrize("direction", ["desc", "asc", "weighted"])
def test_figure_6(direction):
    text = FIGURE_6.format(direction=direction, a="0.8", w="60 SECONDS")
    for spelling in lettered(text):
        tree = parse(spelling)
        assert isinstance(tree, nodes.Select)
        assert [node.sql("promising").lower() for node in tree.expressions] == [
            "s1.itemno",
            "s1.timestamp",
            "s2.timestamp",
        ]
        sources = [tree.args["from_"].this, tree.args["joins"][0].this]
        assert [(one.name.lower(), one.alias.lower()) for one in sources] == [("store1", "s1"), ("store2", "s2")]
        assert isinstance(tree.args["where"].this, exp.EQ)
        preference = tree.args["preference"]
        assert preference.args["direction"] == direction.upper()
        assert [type(one) for one in preference.expressions] == [nodes.SummaryEstimate] * 2
        assert [one.args["what"] for one in preference.expressions] == ["COUNT", "COUNT"]
        assert [one.this.table.lower() for one in preference.expressions] == ["s1", "s2"]
        assert tree.args["fade"].name == "0.8"
        assert tree.args["window"].micros == 60_000_000
        assert parse(generate(tree)) == tree


def test_figure_6_canonical():
    assert generate(parse(FIGURE_6.format(direction="desc", a="0.8", w="60 SECONDS"))) == (
        "SELECT S1.ItemNo, S1.TimeStamp, S2.TimeStamp FROM Store1 AS S1, Store2 AS S2 WHERE S1.ItemNo = S2.ItemNo "
        "WITH PREFERENCE DESC SUMMARY.Estimate.Count(S1.ItemNo), SUMMARY.Estimate.Count(S2.ItemNo) "
        "FADE FACTOR 0.8 WINDOW 60 SECONDS"
    )


def test_its_clauses_in_any_order():
    head, clauses = (
        "SELECT a FROM s ",
        ["WITH PREFERENCE desc a", "FADE FACTOR 0.8", "WINDOW 60", "LIMIT 5", "BUDGET 1 s"],
    )
    trees = {parse(head + " ".join(order)) for order in itertools.permutations(clauses)}
    assert len(trees) == 1


def test_without_a_window_it_spans_all():
    assert parse("SELECT a FROM s WITH PREFERENCE desc SUMMARY.Estimate.Count(a)").args.get("window") is None


@pytest.mark.parametrize("sign", ["×", " × ", "*", " * "])
def test_the_preference_of_a_sum(sign):
    """Section 4.3 prints the sign of multiplication."""
    tree = parse(
        f"SELECT sum(S1.ItemNo) FROM Store1 S1 WITH PREFERENCE desc SUMMARY.Estimate.Count(S1.ItemNo){sign}S1.ItemNo"
    )
    (product,) = tree.args["preference"].expressions
    assert isinstance(product, exp.Mul)
    assert isinstance(product.this, nodes.SummaryEstimate)
    assert isinstance(product.expression, exp.Column)
    assert generate(product) == "SUMMARY.Estimate.Count(S1.ItemNo) * S1.ItemNo"


def test_the_preference_of_an_average():
    tree = parse("SELECT avg(S1.ItemNo) FROM Store1 S1 WITH PREFERENCE weighted SUMMARY.Estimate.Count(S1.ItemNo)")
    assert tree.args["preference"].args["direction"] == "WEIGHTED"


def test_the_names_of_the_papers_streams_are_names():
    """(StoreID, TransactionID, TimeStamp, ItemID, Price): one of its columns is called like a type."""
    text = (
        "CREATE STREAM Store1 (StoreID INT, TransactionID BIGINT, TimeStamp TIMESTAMP, ItemID BIGINT, Price DOUBLE) "
        "TIMESTAMP BY TimeStamp"
    )
    tree = parse(text)
    assert generate(tree) == text
    assert tree.args["time"].name == "TimeStamp"
    names = ["TimeStamp", "Window", "Budget", "Count", "Summary", "Stream", "Options"]
    for name in names:
        found = parse(
            f"SELECT {name}, S.{name} FROM S WHERE {name} > 1 GROUP BY {name} ORDER BY {name} WINDOW 5 SECONDS"
        )
        assert [node.name for node in found.find_all(exp.Column)].count(name) == 5
        defined = parse(f"CREATE STREAM {name} ({name} TIMESTAMP) TIMESTAMP BY {name}")
        assert defined.args["columns"][0].name == defined.args["time"].name == defined.name == name
