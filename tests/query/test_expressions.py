"""Expressions: names, kinds, errors at their place, and parts that must not run where they are not needed."""

from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from promising.errors import (
    Ambiguous,
    BadCast,
    BadClause,
    DivisionByZero,
    NoSuchName,
    Overflow,
    StatementError,
    TypeMismatch,
    Unsupported,
)
from promising.query.scalar.compiled import ColumnFrame, Compiled
from promising.query.scalar.expressions import compile_expression, compile_predicate, conjuncts
from promising.query.scalar.scope import Input, StreamScope
from promising.query.scalar.types import ARROW, Kind, kind_of_type
from promising.query.sql import generate, parse

SHOP: dict[str, Kind] = {"item": "int", "Price": "float", "name": "string", "sold": "bool", "ts": "timestamp"}
ORDERS: dict[str, Kind] = {"item": "int", "amount": "int", "part": "int"}
NAN = float("nan")

ROWS: dict[tuple[int, str], list[Any]] = {
    (0, "item"): [1, 2, 3, None],
    (0, "Price"): [1.5, NAN, None, -2.5],
    (0, "name"): ["a", "", None, "é"],
    (0, "sold"): [True, False, None, True],
    (0, "ts"): [0, -1, None, 1_600_000_000_123_456],
    (1, "item"): [5, 6, 7, 8],
    (1, "amount"): [10, 0, None, 2**63 - 1],
    (1, "part"): [2, 0, 0, 1],
}
COLUMNS = {
    Input(source, name, kind): pa.array(ROWS[source, name], ARROW[kind])
    for source, kinds in enumerate((SHOP, ORDERS))
    for name, kind in kinds.items()
}


def scope(sql: str) -> StreamScope:
    return StreamScope(sql, [("s", "shop", SHOP), ("orders", "orders", ORDERS)])


def compiled(text: str) -> Compiled:
    sql = f"SELECT {text} FROM shop s, orders"
    return compile_expression(parse(sql).expressions[0], scope(sql))


def values(text: str) -> list[Any]:
    found = compiled(text).evaluate(COLUMNS, 4)
    assert len(found) == 4
    return found.to_pylist()  # type: ignore[no-any-return]  # Arrow comes without types


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["s.Price", "S.PRICE", "price", '"pRiCe"', '"S"."price"'])
def test_names_are_case_insensitive(text: str):
    made = compiled(text)
    assert made.inputs == {Input(0, "Price", "float")}
    assert made.kind == "float"


def test_a_bare_name_of_one_stream_is_found_in_it():
    assert compiled("amount + s.item").inputs == {Input(1, "amount", "int"), Input(0, "item", "int")}


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("item", Ambiguous, "column 'item' is in more than one stream: write s.item or orders.item"),
        ("pricee", NoSuchName, "no column 'pricee' in shop s, orders; did you mean Price?"),
        ("s.amount", NoSuchName, "no column 'amount' in shop s"),
        ("orders.amuont", NoSuchName, "no column 'amuont' in orders; did you mean amount?"),
        ("order.item", NoSuchName, "no stream 'order' in this query; did you mean orders?"),
        ("shop.item", NoSuchName, "no stream 'shop' in this query; it goes by s here"),
        ("zzz", NoSuchName, "no column 'zzz' in shop s, orders"),
        ("flor(price)", NoSuchName, "no function flor; did you mean floor?"),
        ("xyzzy(price)", NoSuchName, "no function xyzzy"),
    ],
)
def test_names_that_are_not_there(text: str, error: type[StatementError], says: str):
    text = text.replace("order.", '"order".')
    with pytest.raises(error) as caught:
        compiled(f"1 + {text}")
    assert caught.value.problem == says
    assert caught.value.column == len("SELECT 1 + ") + 1


# --- errors at their place ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "at", "error", "says"),
    [
        ("1 + s.item / part", "s.item /", DivisionByZero, "division by zero: 2 / 0"),
        ("1 + price % part", "price %", DivisionByZero, "division by zero: nan % 0"),
        ("s.item % part", "s.item", DivisionByZero, "division by zero: 2 % 0"),
        ("7 / 0", "7", DivisionByZero, "division by zero: 7 / 0"),
        ("NOT amount + 1 > 0", "amount", Overflow, "9223372036854775807 + 1 does not fit 64 bits"),
        ("0 - (-2 - amount)", "-2", Overflow, "-2 - 9223372036854775807 does not fit 64 bits"),
        ("part + amount * 2 * part", "amount", Overflow, "9223372036854775807 * 2 does not fit 64 bits"),
        ("1 + -(-9223372036854775807 - 1)", "-(", Overflow, "-(-9223372036854775808) does not fit 64 bits"),
        ("1 + abs(-9223372036854775808)", "abs", Overflow, "abs(-9223372036854775808) does not fit 64 bits"),
        ("round(amount, -1)", "round", Overflow, "9223372036854775807 rounded to -1 decimals does not fit 64 bits"),
        ("INTERVAL 7 DAY * amount", "INTERVAL", Overflow, None),
        ("ts + INTERVAL 7 DAY * 15250000", "ts", Overflow, None),
        ("1 + CAST(name AS BIGINT)", "CAST", BadCast, "'a' cannot be cast to an integer"),
        ("1 = 2 OR name::BOOLEAN", "name", BadCast, "'a' cannot be cast to a boolean"),
        ("CAST(price AS INT)", "CAST", BadCast, "nan cannot be cast to an integer"),
        ("TIMESTAMP '2026-02-30'", "TIMESTAMP", BadCast, "'2026-02-30' cannot be cast to a timestamp"),
        ("CAST('1e5' AS INT)", "CAST", BadCast, "'1e5' cannot be cast to an integer"),
        ("CAST('0x10' AS INT)", "CAST", BadCast, "'0x10' cannot be cast to an integer"),
    ],
)
def test_failures_of_rows(text: str, at: str, error: type[StatementError], says: str | None):
    made = compiled(text)
    assert made.can_fail
    with pytest.raises(error) as caught:
        made.evaluate(COLUMNS, 4)
    assert caught.value.problem == says or says is None
    assert caught.value.column == len("SELECT ") + text.index(at) + 1
    assert made.evaluate({source: column.slice(0, 0) for source, column in COLUMNS.items()}, 0).to_pylist() == []


@pytest.mark.parametrize(
    ("text", "at", "error", "says"),
    [
        ("1 + (name = part)", "name", TypeMismatch, "cannot compare a string and an integer"),
        ("1 + sold", "1", TypeMismatch, "+ does not work on an integer and a boolean"),
        ("ts + ts", "ts", TypeMismatch, "+ does not work on a timestamp and a timestamp"),
        ("INTERVAL 1 DAY * 1.5", "INTERVAL", TypeMismatch, "* does not work on an interval and a float"),
        ("TRUE AND part", "part", TypeMismatch, "a condition is true or false, not an integer"),
        ("NOT name", "name", TypeMismatch, "a condition is true or false, not a string"),
        ("CASE WHEN part THEN 1 END", "part", TypeMismatch, "a condition is true or false, not an integer"),
        (
            "CASE WHEN sold THEN name ELSE part END",
            "CASE",
            TypeMismatch,
            "cannot choose between an integer and a string",
        ),
        ("coalesce(sold, ts)", "coalesce", TypeMismatch, "cannot choose between a boolean and a timestamp"),
        ("ts > 'yesterday'", "ts", TypeMismatch, "'yesterday' is not a timestamp"),
        ("part IN (1, 'two')", "part", TypeMismatch, "'two' is not an integer"),
        ("ts - ts < 'x'", "ts", TypeMismatch, "'x' is not an interval"),
        ("-name", "-", TypeMismatch, "- needs a number, not a string"),
        ("abs(ts)", "abs", TypeMismatch, "abs needs a number, not a timestamp"),
        ("sqrt(name)", "sqrt", TypeMismatch, "sqrt takes a number, not a string"),
        ("lower(part)", "lower", TypeMismatch, "lower takes a string, not an integer"),
        ("part LIKE '1'", "part", TypeMismatch, "LIKE needs strings, not an integer"),
        ("hour(part)", "hour", TypeMismatch, "hour takes a timestamp, not an integer"),
        ("CAST(ts AS BIGINT)", "CAST", TypeMismatch, "a timestamp cannot be cast to an integer"),
        ("name || (ts - ts)", "name", TypeMismatch, "|| takes strings, not an interval"),
        ("9223372036854775808", "9", Overflow, "9223372036854775808 does not fit 64 bits"),
        ("1 + 1e999", "1e999", Overflow, "1e999 is too large for a float"),
        ("name LIKE name", "name", Unsupported, "LIKE with a pattern that is no constant is not offered"),
        ("round(price, part)", "round", Unsupported, "the decimals of round must be a constant"),
        ("substring(name, part)", "substring", Unsupported, "the start of substring must be a constant"),
        ("date_trunc('century', ts)", "date_trunc", Unsupported, "date_trunc to 'century' is not offered"),
        ("extract(hour FROM ts - ts)", "extract", Unsupported, "hour of an interval is not offered"),
        ("1 + sum(part)", "sum", BadClause, "sum is an aggregate and has no place here"),
    ],
)
def test_what_cannot_be_compiled(text: str, at: str, error: type[StatementError], says: str):
    with pytest.raises(error) as caught:
        compiled(text)
    assert caught.value.problem == says
    assert caught.value.column == len("SELECT ") + text.index(at) + 1


def test_a_predicate_is_true_or_false():
    sql = "SELECT 1 FROM shop s, orders WHERE amount + 1"
    with pytest.raises(TypeMismatch) as caught:
        compile_predicate(parse(sql).args["where"].this, scope(sql))
    assert caught.value.column == sql.index("amount") + 1
    assert compile_predicate(exp.Null(), scope("")).kind == "bool"


def test_long_chains():
    assert values(" AND ".join(["part = part"] * 2000)) == [True] * 4
    assert values(" + ".join(["part"] * 60)) == [120, 0, 0, 60]


# --- parts that do not run ---------------------------------------------------------------------------------------

MANY = 1000
DIVISORS = pa.array([n % 5 - 1 if n % 11 else None for n in range(MANY)], pa.int64())
NUMBERS = pa.array([n if n % 7 else None for n in range(MANY)], pa.int64())
TEXTS = pa.array([("x" if n % 3 else str(n)) if n % 13 else None for n in range(MANY)], pa.large_string())
WORK = {Input(0, "d", "int"): DIVISORS, Input(0, "n", "int"): NUMBERS, Input(0, "w", "string"): TEXTS}


def guarded(text: str) -> list[Any]:
    sql = f"SELECT {text} FROM r"
    made = compile_expression(
        parse(sql).expressions[0], StreamScope(sql, [("r", "r", {"d": "int", "n": "int", "w": "string"})])
    )
    return made.evaluate(WORK, MANY).to_pylist()  # type: ignore[no-any-return]  # Arrow comes without types


def kleene_and(*parts: bool | None) -> bool | None:
    return False if False in parts else None if None in parts else True


@pytest.mark.parametrize("rare", [False, True], ids=["many rows left", "few rows left"])
def test_a_part_runs_only_on_undecided_rows(rare: bool):
    few = "n < 40" if rare else "n >= 0"
    rows = list(zip(NUMBERS.to_pylist(), DIVISORS.to_pylist(), strict=True))
    keeps = [None if n is None else (n < 40 if rare else n >= 0) for n, _ in rows]
    nonzero = [None if d is None else d != 0 for _, d in rows]
    above = [None if n is None or not d else n / d > 1 for n, d in rows]
    three = [kleene_and(*parts) for parts in zip(keeps, nonzero, above, strict=True)]
    assert guarded(f"{few} AND d <> 0 AND n / d > 1") == three
    assert guarded(f"{few} AND (d <> 0 AND n / d > 1)") == three
    assert guarded(f"NOT (NOT {few} OR d = 0 OR n / d <= 1)") == three
    never = [kleene_and(*parts, None if not d else False) for *parts, (_, d) in zip(keeps, nonzero, rows, strict=True)]
    assert guarded(f"{few} AND d <> 0 AND 1 / d > 1000") == never
    assert guarded(f"NOT (NOT {few} OR d = 0 OR 1 / d <= 1000)") == never
    quotients = [n / d if n is not None and d else None for n, d in rows]
    assert guarded("CASE WHEN d <> 0 THEN n / d END") == quotients
    assert guarded("CASE d WHEN 0 THEN NULL ELSE n / d END") == quotients
    assert guarded("n / nullif(d, 0)") == quotients
    assert guarded("CASE WHEN d = 0 THEN -1 WHEN n / d > 1 THEN 1 ELSE 0 END") == [
        -1 if d == 0 else 1 if yes else 0 for (_, d), yes in zip(rows, above, strict=True)
    ]


def test_coalesce_runs_only_where_all_before_is_null():
    rows = zip(NUMBERS.to_pylist(), DIVISORS.to_pylist(), strict=True)
    wanted = [n if n is not None else 1000 % abs(d) if d else None for n, d in rows]
    assert guarded("coalesce(n, CASE WHEN d <> 0 THEN 1000 % d END)") == wanted
    assert guarded("coalesce(n, 0, 1 / 0)") == [0 if n is None else n for n in NUMBERS.to_pylist()]
    assert guarded("coalesce(CASE WHEN w <> 'x' THEN 0 END, CASE WHEN w = 'x' THEN 1 ELSE CAST(w AS INT) END)") == [
        None if w is None else int(w == "x") for w in TEXTS.to_pylist()
    ]


def test_what_no_row_reaches_does_not_fail():
    assert guarded("FALSE AND 1 / 0 > 1") == [False] * MANY
    assert guarded("TRUE OR 1 / 0 > 1") == [True] * MANY
    assert guarded("CASE WHEN TRUE THEN 1 ELSE 1 % 0 END") == [1] * MANY
    assert guarded("CASE WHEN n < 0 THEN CAST(w AS INT) ELSE 5 END") == [5] * MANY
    with pytest.raises(DivisionByZero):
        guarded("1 / 0 > 1 AND FALSE")
    with pytest.raises(DivisionByZero):
        guarded("TRUE AND n / d > 1")


def test_nested_guards_cost_no_more_than_their_number(monkeypatch: pytest.MonkeyPatch):
    """Twelve levels, each of which rules out one row and leaves those that fail; were each tried first, 4,096 runs."""
    text = "n / d > 1"
    for level in range(6):
        text = f"n <> {2 * level} AND (n = {2 * level + 1} OR {text})"
    picked = 0
    plain = ColumnFrame.filter

    def counting(frame: ColumnFrame, mask: pa.Array, inputs: frozenset[Input]) -> ColumnFrame:
        nonlocal picked
        picked += 1
        return plain(frame, mask, inputs)

    monkeypatch.setattr(ColumnFrame, "filter", counting)
    guarded(f"d <> 0 AND (n = 500 OR {text})")
    assert picked < 50


# --- kinds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", "int"),
        ("1.0", "float"),
        ("1e3", "float"),
        ("'x'", "string"),
        ("TRUE", "bool"),
        ("NULL", "null"),
        ("INTERVAL '5' MINUTE", "interval"),
        ("TIMESTAMP '2026-01-01 10:00:00'", "timestamp"),
        ("part + 1", "int"),
        ("part + price", "float"),
        ("part / part", "float"),
        ("part % 2", "int"),
        ("NULL + 1", "int"),
        ("NULL / 1", "float"),
        ("NULL + ts", "timestamp"),
        ("ts - ts", "interval"),
        ("ts - INTERVAL 1 DAY", "timestamp"),
        ("2 * INTERVAL 1 DAY", "interval"),
        ("NULL = NULL", "bool"),
        ("NULL AND NULL", "bool"),
        ("name || part", "string"),
        ("floor(part)", "float"),
        ("round(part)", "int"),
        ("sign(price)", "int"),
        ("power(2, 3)", "float"),
        ("length(name)", "int"),
        ("CASE WHEN sold THEN 1 ELSE price END", "float"),
        ("CASE WHEN sold THEN NULL END", "null"),
        ("coalesce(NULL, NULL)", "null"),
        ("coalesce(NULL, part, 1.5)", "float"),
        ("nullif(part, price)", "int"),
        ("least(1, 2.5)", "float"),
        ("extract(epoch FROM ts)", "float"),
        ("year(ts)", "int"),
        ("date_trunc('hour', ts)", "timestamp"),
        ("CAST(NULL AS VARCHAR)", "string"),
    ],
)
def test_kinds(text: str, kind: Kind):
    made = compiled(text)
    assert made.kind == kind
    assert made.evaluate(COLUMNS, 0).type == ARROW[kind]
    if not made.can_fail:
        assert made.evaluate(COLUMNS, 4).type == ARROW[kind]


def test_types_of_columns():
    for name, kind in {"INT": "int", "SMALLINT": "int", "REAL": "float", "TEXT": "string", "BOOL": "bool"}.items():
        assert kind_of_type(exp.DataType.build(name)) == kind
    for name in ("DECIMAL(10, 2)", "DATE", "TIMESTAMPTZ", "ARRAY<INT>", "VARCHAR(5)"):
        with pytest.raises(Unsupported):
            kind_of_type(exp.DataType.build(name))


def test_what_is_said_of_a_compiled_expression():
    assert compiled("1 + 2 * 3").constant
    assert not compiled("1 + 2 * 3").can_fail
    assert compiled("1 / 0").constant
    assert compiled("part / 2").can_fail
    assert not compiled("part > 2 AND price * 2.0 < 1").can_fail
    assert compiled("part + 1 > 2").can_fail
    assert compiled("price > 2 OR s.item IN (1, 2)").inputs == {Input(0, "Price", "float"), Input(0, "item", "int")}


# --- values that DuckDB has otherwise, or not at all -------------------------------------------------------------


def test_values():
    assert values("price > 0") == [True, True, None, False]
    assert values("price IN (1.5, 'nan')") == [True, True, None, False]
    assert values("name || '!'") == ["a!", "!", None, "é!"]
    assert values("ts >= '1970-01-01T00:00:00Z'") == [True, False, None, True]
    assert values("ts = '2020-09-13 12:26:40.1234567'") == [False, False, None, True]
    assert values("INTERVAL '1.5' HOUR = INTERVAL 90 MINUTES") == [True] * 4
    assert values("sold = 'yes'") == [True, False, None, True]
    assert values("part = '2'") == [True, False, False, False]
    assert values("CAST('TRUE' AS BOOLEAN)") == [True] * 4
    assert values(f"3 IN ({', '.join(map(str, range(20)))})") == [True] * 4
    others = ", ".join(f"{n}.5" for n in range(20))
    assert values(f"0.0 IN (-0.0, {others}) AND -0.0 IN (0.0, {others})") == [True] * 4
    assert values(f"NULL + 1 IN ({', '.join(map(str, range(20)))})") == [None] * 4
    assert values("-9223372036854775808") == [-(2**63)] * 4


class Replacing(StreamScope):
    """A scope that has sums and `part + 1` in columns already."""

    def replace(self, node: exp.Expression) -> Input | None:
        made = {"SUM(amount)": "a0", "part + 1": "k0", "sold OR part = 1": "k1"}.get(
            generate(node).replace("sum", "SUM")
        )
        return None if made is None else Input(-1, made, "bool" if made == "k1" else "int")


def test_the_scope_is_asked_first():
    sql = "SELECT sum(amount) * 2 + (part + 1) > 0 AND ((sold OR part = 1) OR name = 'a') FROM shop s, orders"
    made = compile_expression(
        parse(sql).expressions[0], Replacing(sql, [("s", "shop", SHOP), ("orders", "orders", ORDERS)])
    )
    name = Input(0, "name", "string")
    assert {source.name for source in made.inputs} >= {"a0", "k0"}
    assert name in made.inputs


def test_conjuncts():
    sql = "SELECT 1 FROM shop s, orders WHERE part = 1 AND (amount = 2 AND (sold OR part = 3)) AND NOT (sold AND sold)"
    found = conjuncts(parse(sql).args["where"].this)
    assert [generate(part) for part in found] == ["part = 1", "amount = 2", "sold OR part = 3", "NOT (sold AND sold)"]
    wrapped = exp.Paren(this=exp.And(this=exp.Paren(this=exp.column("a")), expression=exp.column("b")))
    assert [part.name for part in conjuncts(wrapped)] == ["a", "b"]
