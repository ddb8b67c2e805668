"""Trees of all kinds, made from nodes and not from text, are written and read back equal."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from promising.query.sql import generate, nodes, parse
from promising.query.sql.words import CALL_BY_NAME, CALLS, RESERVED, TYPES, keyword
from tests.tiers import examples

WORDS = ["a", "b", "Price", "_x1", "TimeStamp", "Window", "Budget", "Count", "Summary", "Estimate", "Stream", "Options"]
WORDS += ["interval", "weighted", "fade", "error", "symmetric", "nulls", "top", "größe", "商品", "ſelect", "İx", "ǰ"]
ODD = ["select", "Limit", "a b", 'a"b', "1a", "", "--", "/*", "'", ";", "a.b", "\n", "😀", "NOT"]


letters = st.characters(exclude_categories=["Cs"])


def identifiers(after_dot: bool = False) -> st.SearchStrategy[exp.Identifier]:
    """A name: in quotes wherever it must be, and sometimes where it need not."""
    plain = st.sampled_from([*WORDS, *(["order", "Select", "AS"] if after_dot else [])])
    odd = st.sampled_from(ODD) | st.text(letters, min_size=1, max_size=8)
    return st.builds(lambda name: exp.Identifier(this=name, quoted=False), plain) | st.builds(
        lambda name: exp.Identifier(this=name, quoted=True), (plain | odd).filter(bool)
    )


numbers = st.builds(
    lambda text: exp.Literal(this=text, is_string=False),
    st.from_regex(r"\A(?:[0-9]{1,20}(?:\.[0-9]{0,5})?|\.[0-9]{1,5})(?:[eE][+-]?[0-9]{1,3})?\Z", fullmatch=True).filter(
        str.isascii
    ),
)
strings = st.builds(lambda text: exp.Literal(this=text, is_string=True), st.text(letters, max_size=10))
signed = numbers | st.builds(lambda number: exp.Neg(this=number), numbers)
columns = st.builds(lambda this: exp.Column(this=this), identifiers()) | st.builds(
    lambda this, table: exp.Column(this=this, table=table), identifiers(after_dot=True), identifiers()
)
types = st.sampled_from(sorted(set(TYPES.values()), key=str)).map(lambda kind: exp.DataType(this=kind, nested=False))
intervals = st.builds(
    lambda amount, unit: exp.Interval(this=exp.Literal(this=str(amount), is_string=True), unit=exp.Var(this=unit)),
    st.integers(-(10**6), 10**6),
    st.sampled_from(sorted(nodes.MICROS)),
)
units = st.sampled_from(["YEAR", "HOUR", "MINUTE", "EPOCH"])
leaves = (
    columns
    | numbers
    | strings
    | intervals
    | st.builds(exp.Null)
    | st.builds(lambda this: exp.Boolean(this=this), st.booleans())
)
estimates = st.builds(
    lambda this, what: nodes.SummaryEstimate(this=this, what=what),
    columns,
    st.sampled_from(["COUNT", "LOWER", "UPPER", "CONFIDENCE"]),
) | st.builds(
    lambda this, what, bound, rank: nodes.SummaryEstimate(
        this=this, what=what, bound=bound, rank=rank if what == "QUANTILE" else None
    ),
    columns,
    st.sampled_from(["SUM", "AVG", "MIN", "MAX", "QUANTILE", "DISTINCT", "FREQUENCY"]),
    st.sampled_from([None, "LOWER", "UPPER"]),
    signed,
)
BINARY: list[type[exp.Expression]] = [
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.DPipe,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Mod,
]
OTHER_NAMES = ["foo", "left", "now", "approx_distinct", "count_if", "ǰ"]


def calls(inner: st.SearchStrategy[exp.Expression]) -> st.SearchStrategy[exp.Expression]:
    """Calls of every function that has a node, with as many arguments as it may have."""

    @st.composite
    def one(draw: st.DrawFn) -> exp.Expression:
        call = draw(st.sampled_from(CALLS))
        most = max(len(call.args), call.least) + (2 if call.rest else 0)
        found = draw(st.lists(inner, min_size=call.least, max_size=most))
        args: dict[str, object] = dict(zip(call.args, found, strict=False))
        if call.rest:
            args[call.rest] = found[len(call.args) :]
        if call.node is exp.DateTrunc:
            args["unit"] = exp.Literal(this=draw(units), is_string=True)
        return call.node(**args)

    return one()


def connected(kind: type[exp.And] | type[exp.Or], found: list[exp.Expression]) -> exp.Expression:
    return nodes.connect(
        kind, [part for one in found for part in (nodes.operands(one) if type(one) is kind else [one])]
    )


def larger(inner: st.SearchStrategy[exp.Expression]) -> st.SearchStrategy[exp.Expression]:
    """Every node that holds others."""
    some = st.lists(inner, min_size=1, max_size=3)
    maybe = st.none() | inner
    likes = st.sampled_from([exp.Like, exp.ILike])
    conditions = st.lists(
        st.builds(lambda this, true: exp.If(this=this, true=true), inner, inner), min_size=1, max_size=2
    )
    options: list[st.SearchStrategy[exp.Expression]] = [
        st.builds(lambda kind, this, other: kind(this=this, expression=other), st.sampled_from(BINARY), inner, inner),
        st.builds(connected, st.sampled_from([exp.And, exp.Or]), st.lists(inner, min_size=2, max_size=5)),
        st.builds(lambda this: exp.Not(this=this), inner),
        st.builds(lambda this: exp.Neg(this=this), inner),
        st.builds(
            lambda this, what: exp.Is(this=this, expression=what),
            inner,
            st.builds(exp.Null) | st.builds(lambda this: exp.Boolean(this=this), st.booleans()),
        ),
        st.builds(lambda this, low, high: exp.Between(this=this, low=low, high=high), inner, inner, inner),
        st.builds(lambda this, found: exp.In(this=this, expressions=found), inner, some),
        st.builds(lambda kind, this, other: kind(this=this, expression=other), likes, inner, inner),
        st.builds(lambda this, to: exp.Cast(this=this, to=to), inner, types),
        st.builds(lambda this, ifs, last: exp.Case(this=this, ifs=ifs, default=last), maybe, conditions, maybe),
        st.builds(lambda unit, this: exp.Extract(this=exp.Var(this=unit), expression=this), units, inner),
        st.builds(lambda name, found: exp.Anonymous(this=name, expressions=found), st.sampled_from(OTHER_NAMES), some),
        st.builds(lambda this: exp.Count(this=this), inner | st.builds(exp.Star)),
        st.builds(lambda this: exp.Count(this=exp.Distinct(expressions=[this])), inner),
        calls(inner),
    ]  # fmt: skip
    return st.one_of(options)


expressions = st.recursive(leaves, larger, max_leaves=12)
small = st.recursive(leaves, larger, max_leaves=3)
preferences = st.recursive(leaves | estimates, larger, max_leaves=3)


@st.composite
def spans(draw: st.DrawFn) -> nodes.Span:
    number = exp.Literal(this=str(draw(st.integers(0, 10**6))), is_string=False)
    amount = exp.Neg(this=number) if draw(st.booleans()) else number
    return nodes.Span(amount=amount, unit=draw(st.none() | st.sampled_from(sorted(nodes.MICROS))))


@st.composite
def streams(draw: st.DrawFn) -> exp.Table:
    alias = draw(st.none() | identifiers())
    table = exp.Table(this=draw(identifiers()))
    if alias is not None:
        table.set("alias", exp.TableAlias(this=alias))
    return table


@st.composite
def projections(draw: st.DrawFn) -> exp.Expression:
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return exp.Star()
    if kind == 1:
        return exp.Column(this=exp.Star(), table=draw(identifiers()))
    node = draw(small)
    return exp.Alias(this=node, alias=draw(identifiers())) if kind < 5 else node


@st.composite
def selects(draw: st.DrawFn) -> exp.Expression:
    def maybe(strategy: st.SearchStrategy[exp.Expression]) -> exp.Expression | None:
        return draw(strategy) if draw(st.integers(0, 3)) == 0 else None

    def wrapped(kind: type[exp.Expression], found: object, key: str = "this") -> exp.Expression | None:
        return kind(**{key: found}) if found else None

    args: dict[str, object] = {
        "expressions": draw(st.lists(projections(), min_size=1, max_size=3)),
        "from_": exp.From(this=draw(streams())),
        "distinct": draw(st.booleans()) or None,
        "where": wrapped(exp.Where, maybe(small | existence)),
        "group": wrapped(exp.Group, draw(st.lists(small, max_size=2)), "expressions"),
        "having": wrapped(exp.Having, maybe(small)),
        "window": maybe(spans()),
        "budget": maybe(spans()),
        "limit": wrapped(exp.Limit, maybe(signed), "expression"),
    }
    fading = draw(st.sampled_from(["fade", "half_life"]))  # one of the two at most
    args[fading] = maybe(signed if fading == "fade" else spans())
    if draw(st.booleans()):
        args["joins"] = [exp.Join(this=draw(streams()), on=maybe(small))]
    if ordered := draw(st.lists(small, max_size=2)):
        args["order"] = exp.Order(
            expressions=[
                exp.Ordered(this=one, desc=draw(st.booleans()), nulls_first=draw(st.booleans())) for one in ordered
            ]
        )
    if by := draw(st.lists(columns, max_size=2)):
        args["limit_by"] = nodes.LimitBy(this=draw(signed), expressions=by)
    if found := draw(st.lists(preferences, max_size=2)):
        direction = draw(st.sampled_from(["ASC", "DESC", "WEIGHTED"]))
        args["preference"] = nodes.Preference(direction=direction, expressions=found)
    if draw(st.integers(0, 3)) == 0:
        args["target"] = nodes.ErrorTarget(error=draw(signed), confidence=maybe(signed))
    return nodes.Select(**args)


@st.composite
def inner_selects(draw: st.DrawFn) -> exp.Expression:
    where = draw(st.none() | small)
    return nodes.Select(
        expressions=[draw(projections())],
        from_=exp.From(this=draw(streams())),
        where=None if where is None else exp.Where(this=where),
        window=draw(st.none() | spans()),
    )


exists = st.builds(lambda this: exp.Exists(this=this), inner_selects())
existence = st.recursive(exists | columns, larger, max_leaves=3)


def put_together(inner: st.SearchStrategy[exp.Expression]) -> st.SearchStrategy[exp.Expression]:
    return st.builds(
        lambda kind, left, right, distinct: kind(this=left, expression=right, distinct=distinct),
        st.sampled_from([exp.Union, exp.Intersect, exp.Except]),
        inner,
        inner,
        st.booleans(),
    )


def queries() -> st.SearchStrategy[exp.Expression]:
    return selects() | st.recursive(inner_selects() | selects(), put_together, max_leaves=4)


constants = st.recursive(
    strings | signed | intervals | st.builds(exp.Null) | st.builds(lambda this: exp.Boolean(this=this), st.booleans()),
    lambda inner: (
        st.builds(lambda kind, a, b: kind(this=a, expression=b), st.sampled_from(BINARY), inner, inner)
        | st.builds(lambda this, to: exp.Cast(this=this, to=to), inner, types)
        | st.builds(lambda this: exp.Not(this=this), inner)
        | st.builds(lambda this, found: exp.In(this=this, expressions=[found]), inner, inner)
    ),
    max_leaves=3,
)


@st.composite
def changes(draw: st.DrawFn) -> exp.Expression:
    name, kind = draw(identifiers()), draw(st.sampled_from(["INSERT", "UPSERT", "UPDATE", "DELETE"]))
    if kind in ("INSERT", "UPSERT"):
        width = draw(st.integers(1, 3))
        row = st.builds(lambda found: nodes.Row(expressions=found), st.lists(constants, min_size=width, max_size=width))
        named = draw(st.just([]) | st.lists(identifiers(), min_size=width, max_size=width))
        rows = draw(st.lists(row, min_size=1, max_size=3))
        return nodes.TableChange(kind=kind, this=name, columns=named, rows=rows)
    most = 3 if kind == "DELETE" else 1
    keys = draw(st.lists(constants, min_size=1, max_size=most))
    key = draw(identifiers())
    if kind == "DELETE":
        return nodes.TableChange(kind=kind, this=name, key=key, keys=keys)
    assignment = st.builds(lambda this, value: nodes.Assignment(this=this, value=value), identifiers(), constants)
    assignments = draw(st.lists(assignment, min_size=1, max_size=2))
    return nodes.TableChange(kind=kind, this=name, assignments=assignments, key=key, keys=keys)


option_values = (
    signed
    | strings
    | st.builds(lambda this: exp.Boolean(this=this), st.booleans())
    | st.builds(lambda word: exp.Var(this=word), st.sampled_from(WORDS))
)
option_lists = st.lists(
    st.builds(lambda this, value: nodes.Option(this=this, value=value), identifiers(), option_values), max_size=3
)
measure_lists = st.lists(
    st.builds(
        lambda kind, column, numbers: nodes.Measure(this=exp.Var(this=kind), column=column, expressions=numbers),
        st.sampled_from(["MOMENTS", "DISTINCT", "SAMPLE", "TEA"]),
        identifiers(),
        st.lists(signed, max_size=2),
    ),
    min_size=1,
    max_size=3,
)
column_lists = st.lists(
    st.builds(lambda this, kind: exp.ColumnDef(this=this, kind=kind), identifiers(), types), min_size=1, max_size=4
)


@st.composite
def definitions(draw: st.DrawFn) -> exp.Expression:
    kind = draw(st.integers(0, 11))
    name, exists = draw(identifiers()), draw(st.booleans())
    if kind == 0:
        return nodes.CreateStream(
            this=name,
            exists=exists,
            columns=draw(column_lists),
            time=draw(identifiers()),
            lateness=draw(st.none() | spans()),
            options=draw(option_lists),
        )
    if kind == 1:
        structure = draw(st.none() | st.sampled_from(["none", "time", "grid", "adaptive", "order"]))
        return nodes.CreateSummary(
            this=name,
            exists=exists,
            stream=draw(identifiers()),
            key=draw(identifiers()),
            using=draw(st.none() | st.sampled_from([exp.Var(this=name) for name in ("COUNT_MIN", "EXACT", "TOY")])),
            measures=draw(st.none() | st.just(exp.Var(this="NONE")) | measure_lists),
            granularity=draw(spans()),
            rate=draw(signed),
            depth=draw(signed),
            structure=exp.Var(this=structure) if structure else None,
            options=draw(option_lists),
        )
    if kind == 2:
        return nodes.CreateContinuousQuery(this=name, exists=exists, query=draw(queries()))
    if kind == 3:
        return nodes.Explain(this=draw(queries()), analyze=exists)
    if kind == 4:
        what = draw(st.sampled_from(["STREAM", "SUMMARY", "TABLE", "QUERY"]))
        return nodes.Drop(kind=what, this=name, exists=exists, cascade=draw(st.booleans()))
    if kind == 5:
        return nodes.Show(kind=draw(st.sampled_from(["STREAMS", "SUMMARIES", "TABLES", "QUERIES"])))
    if kind == 6:
        return nodes.AlterQuery(this=name, budget=draw(st.none() | spans()))
    if kind == 7:
        return nodes.CreateTable(
            this=name,
            exists=exists,
            columns=draw(column_lists),
            key=draw(identifiers()),
            retroactive=draw(st.booleans()),
        )
    if kind == 8:
        return nodes.Explain(this=nodes.CreateContinuousQuery(this=name, exists=exists, query=draw(queries())))
    if kind == 9:
        return draw(changes())
    if kind == 10:
        return nodes.AlterSummary(this=name, kind="ADD" if exists else "DROP", measures=draw(measure_lists))
    return nodes.Describe(this=name)


def holes() -> Iterator[tuple[str, Callable[[exp.Expression], exp.Expression]]]:
    """Every node that holds others, with one place left open; the rest is columns and words."""

    def column() -> exp.Expression:
        return exp.Column(this=exp.Identifier(this="a", quoted=False))

    def left(kind: type[exp.Expression]) -> Callable[[exp.Expression], exp.Expression]:
        return lambda x: kind(this=x, expression=column())

    def right(kind: type[exp.Expression]) -> Callable[[exp.Expression], exp.Expression]:
        return lambda x: kind(this=column(), expression=x)

    for kind in (*BINARY, exp.Like, exp.ILike):
        yield f"{kind.__name__} left", left(kind)
        yield f"{kind.__name__} right", right(kind)
    yield "And first", lambda x: connected(exp.And, [x, column(), column()])
    yield "And last", lambda x: connected(exp.And, [column(), x])
    yield "Or first", lambda x: connected(exp.Or, [x, column(), column()])
    yield "Or last", lambda x: connected(exp.Or, [column(), x])
    yield "Not", lambda x: exp.Not(this=x)
    yield "Neg", lambda x: exp.Neg(this=x)
    yield "Is", lambda x: exp.Is(this=x, expression=exp.Null())
    yield "Is not", lambda x: exp.Not(this=exp.Is(this=x, expression=exp.Boolean(this=True)))
    yield "Between", lambda x: exp.Between(this=x, low=column(), high=column())
    yield "Between low", lambda x: exp.Between(this=column(), low=x, high=column())
    yield "Between high", lambda x: exp.Not(this=exp.Between(this=column(), low=column(), high=x))
    yield "In", lambda x: exp.In(this=x, expressions=[column()])
    yield "In list", lambda x: exp.Not(this=exp.In(this=column(), expressions=[column(), x]))
    yield "Not like", lambda x: exp.Not(this=exp.Like(this=x, expression=column()))
    yield "Cast", lambda x: exp.Cast(this=x, to=exp.DataType(this=exp.DType.TIMESTAMP, nested=False))
    yield "Case", lambda x: exp.Case(this=x, ifs=[exp.If(this=column(), true=column())])
    yield "Case when", lambda x: exp.Case(ifs=[exp.If(this=x, true=column())])
    yield "Case then", lambda x: exp.Case(ifs=[exp.If(this=column(), true=x)], default=column())
    yield "Case else", lambda x: exp.Case(ifs=[exp.If(this=column(), true=column())], default=x)
    yield "Abs", lambda x: exp.Abs(this=x)
    yield "Extract", lambda x: exp.Extract(this=exp.Var(this="HOUR"), expression=x)
    yield "Count", lambda x: exp.Count(this=exp.Distinct(expressions=[x]))
    yield "Alias", lambda x: exp.Alias(this=x, alias=exp.Identifier(this="b", quoted=False))


HOLES = dict(holes())
LEAVES = [
    exp.Column(this=exp.Identifier(this="a", quoted=False), table=exp.Identifier(this="t", quoted=False)),
    exp.Literal(this="1", is_string=False),
    exp.Literal(this="x", is_string=True),
    exp.Interval(this=exp.Literal(this="5", is_string=True), unit=exp.Var(this="MINUTE")),
    exp.Exists(
        this=nodes.Select(
            expressions=[exp.Literal(this="1", is_string=False)],
            from_=exp.From(this=exp.Table(this=exp.Identifier(this="u", quoted=False))),
        )
    ),
]


@pytest.mark.parametrize("outer", HOLES)
def test_every_node_inside_of_every_other(outer):
    """Where parentheses are needed, and where not, for each pair of nodes, and for each leaf in the inner one."""
    for inner, hole in HOLES.items():
        if inner != "Alias":
            for leaf in LEAVES:
                tree = selected(HOLES[outer](hole(leaf.copy())))
                assert parse(generate(tree)) == tree, generate(tree)


def selected(node: exp.Expression) -> exp.Expression:
    return nodes.Select(expressions=[node], from_=exp.From(this=exp.Table(this=exp.to_identifier("s"))))


def assert_round_trip(tree: exp.Expression) -> None:
    text = generate(tree)
    assert parse(text) == tree, text
    assert generate(parse(text)) == text
    assert parse(generate(tree, pretty=True)) == tree


def random_trees(count: int) -> settings:
    return settings(
        max_examples=examples(count),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@random_trees(200)
@given(expressions)
@example(exp.Neg(this=exp.Neg(this=exp.Literal.number("1"))))
def test_expressions(node):
    assert_round_trip(selected(node))


@random_trees(80)
@given(queries())
def test_queries(tree):
    assert_round_trip(tree)


@random_trees(80)
@given(changes())
def test_changes_of_tables(tree):
    assert_round_trip(tree)
    assert all(len(row) == len(tree.args["rows"][0]) == len(list(row)) for row in tree.args.get("rows") or [])
    for column, value in tree.args.get("assignments") or []:
        assert isinstance(column, exp.Identifier) and isinstance(value, exp.Expression)


def test_a_query_knows_the_selects_it_is_put_together_from():
    tree = parse("SELECT a FROM s UNION (SELECT b FROM s EXCEPT SELECT c FROM s) INTERSECT SELECT d FROM s")
    assert [one.expressions[0].name for one in nodes.selects(tree)] == list("abcd")
    assert nodes.word_of(tree) == tree.meta["word"] == 16
    assert nodes.word_of(parse("SELECT  DISTINCT a FROM s")) == 8
    assert nodes.word_of(next(nodes.selects(tree))) is None


@random_trees(120)
@given(definitions())
def test_other_statements(tree):
    assert_round_trip(tree)


def test_the_names_used_here_mean_what_they_should():
    assert not any(keyword(word) in RESERVED for word in WORDS)
    assert not any(keyword(name) in CALL_BY_NAME for name in OTHER_NAMES)
