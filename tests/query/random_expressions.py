"""Random tables, and random expressions over them in two spellings: ours, and DuckDB's for the same meaning.

DuckDB needs another spelling where its types are finer (a literal 5 is 32 bits, 1.5 a decimal), where it divides floats
by zero without a failure, and where it works out both sides of AND and OR before it joins them.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from promising.query.scalar.types import ARROW, Kind

COLUMNS: dict[str, Kind] = {
    "i": "int",
    "j": "int",
    "big": "int",
    "f": "float",
    "g": "float",
    "wild": "float",
    "s": "string",
    "u": "string",
    "digits": "string",
    "b": "bool",
    "c": "bool",
    "t": "timestamp",
    "v": "timestamp",
}
TYPES: dict[Kind, str] = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "interval": "INTERVAL",
}
# DuckDB sees a constant NULL coming and then does not work out what stands beside it, so it must not see it.
NULLS: dict[Kind, str] = {
    "int": "nullif(i, i)",
    "float": "nullif(f, f)",
    "string": "nullif(s, s)",
    "bool": "nullif(b, b)",
    "timestamp": "nullif(t, t)",
    "interval": "nullif(t - t, t - t)",
}
MACROS = (
    "CREATE MACRO written(a) AS CASE WHEN isnan(a) THEN 'nan' ELSE a::VARCHAR END",
    "CREATE MACRO quotient(a, b) AS CASE WHEN a IS NOT NULL AND b = 0 THEN error('zero')::DOUBLE ELSE a / b END",
    "CREATE MACRO rest(a, b) AS CASE WHEN a IS NOT NULL AND b = 0 THEN error('zero')::DOUBLE ELSE a % b END",
    "CREATE MACRO land(a, b) AS CASE WHEN a IS NOT DISTINCT FROM FALSE THEN FALSE ELSE a AND b END",
    "CREATE MACRO lor(a, b) AS CASE WHEN a IS NOT DISTINCT FROM TRUE THEN TRUE ELSE a OR b END",
)

CALLED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
EXTRACTED = ("millisecond", "microsecond", "dow", "isodow", "doy", "isoyear")
WORDS = [
    "",
    "a",
    "A",
    "ab",
    "abc",
    "b%",
    "a_c",
    "ß",
    "É",
    "é",
    "日本",
    "😀x",
    "a\\b",
    " x ",
    "a.c",
    "zz\n",
    "K",
    "\u3000y",
]
DIGITS = ["0", "-1", "12", "+7", " 42 ", "2.5", "-2.5", ".5", "7.", "9223372036854775807", "007"]
BAD_DIGITS = ["", "x", "1 2", "9223372036854775808", "-", "."]
INTS = [0, 1, -1, 2, 3, -5, 7, 10, 15, -25, 100, 12345]
BIG = [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 2**62, 5 * 10**18, 10**17 + 5]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 3.25, -7.75, 100.0, 1e-3, 123.456]
WILD = [
    float("nan"),
    float("inf"),
    float("-inf"),
    1e300,
    -1e300,
    1e-300,
    1e16,
    9.3e18,
    -9.3e18,
    2.0**63,
    0.285,
    1e15,
    1e-5,
]
DAYS = [-2_208_988_800, -1, 0, 1, 951_782_400, 1_577_836_799, 1_609_459_200, 1_767_225_600, 4_102_444_800]


class Pair(NamedTuple):
    ours: str
    theirs: str
    fails: bool = False


def table(rng: random.Random, rows: int) -> pa.Table:
    """Nulls in about a fifth of the cells, many ties. The columns are slices: no kernel may ignore an offset."""

    def pick(kind: Kind, name: str) -> object:
        if rng.random() < 0.2:
            return None
        if name == "big":
            return rng.choice(BIG + INTS)
        if name == "wild":
            return rng.choice(WILD + FLOATS)
        if name == "digits":
            return rng.choice(DIGITS if rng.random() < 0.97 else BAD_DIGITS)
        if kind == "int":
            return rng.choice(INTS)
        if kind == "float":
            return rng.choice(FLOATS) if rng.random() < 0.8 else rng.gauss(0, 10)
        if kind == "string":
            return rng.choice(WORDS)
        if kind == "bool":
            return rng.random() < 0.5
        return rng.choice(DAYS) * 1_000_000 + rng.choice([0, 0, 1, 500_000, 59_123_456, rng.randrange(10**11)])

    arrays = {
        name: pa.array([pick(kind, name) for _ in range(rows + 5)], ARROW[kind]).slice(3, rows)
        for name, kind in COLUMNS.items()
    }
    return pa.table(arrays)


class Generator:
    """Expressions of a kind, at most so deep."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def of_any_kind(self, depth: int) -> tuple[Kind, Pair]:
        kind: Kind = self.rng.choice(
            ("int", "int", "float", "float", "string", "bool", "bool", "timestamp", "interval")
        )
        return kind, self.make(kind, depth)

    def make(self, kind: Kind, depth: int) -> Pair:
        if depth <= 0 or self.rng.random() < 0.1:
            return self.leaf(kind)
        if self.rng.random() < 0.2:
            return self.rng.choice((self.case, self.simple_case, self.coalesce, self.nullif, self.extreme))(kind, depth)
        makers: dict[Kind, Callable[[int], Pair]] = {
            "int": self.of_int,
            "float": self.of_float,
            "string": self.of_string,
            "bool": self.of_bool,
            "timestamp": self.of_timestamp,
            "interval": self.of_interval,
        }
        return makers[kind](depth - 1)

    def leaf(self, kind: Kind) -> Pair:
        rng = self.rng
        if rng.random() < 0.03:
            return Pair(
                "(CAST(NULL AS TIMESTAMP) - t)" if kind == "interval" else f"CAST(NULL AS {TYPES[kind]})", NULLS[kind]
            )
        if kind == "interval":
            if rng.random() < 0.5:
                return self.apply("({} - {})", self.leaf("timestamp"), self.leaf("timestamp"))
            text = f"INTERVAL '{rng.choice((-3, 0, 1, 90, 12345))}' {rng.choice(('SECOND', 'MINUTE', 'DAY'))}"
            return Pair(text, text)
        if rng.random() < 0.7:
            names = [name for name, has in COLUMNS.items() if has == kind]
            # The extreme columns make most expressions fail: enough, not always.
            name = rng.choice(names)
            name = rng.choice(names) if name in ("big", "wild", "digits") else name
            return Pair(name, name)
        return self.literal(kind)

    def literal(self, kind: Kind) -> Pair:
        rng = self.rng
        if kind == "int":
            number = rng.choice(INTS if rng.random() < 0.9 else BIG)
            return Pair(f"({number})" if number < 0 else str(number), f"CAST({number} AS BIGINT)")
        if kind == "float":
            text = repr(rng.choice(FLOATS))
            return Pair(f"({text})", f"({text}e0)" if "e" not in text else f"({text})")
        if kind == "string":
            return Pair(*(quote(rng.choice(WORDS)),) * 2)
        if kind == "bool":
            return Pair(*(rng.choice(("TRUE", "FALSE")),) * 2)
        return Pair(*(f"TIMESTAMP '{rng.choice(('1969-12-31 23:59:59.5', '2021-01-03', '2026-06-30T10:20:30'))}'",) * 2)

    def or_null(self, kind: Kind, depth: int) -> Pair:
        """For places where a bare NULL takes its kind from what stands beside it."""
        return self.make(kind, depth) if self.rng.random() < 0.95 else Pair("NULL", NULLS[kind])

    def apply(self, pattern: str, *parts: Pair, theirs: str | None = None, fails: bool = False) -> Pair:
        return Pair(
            pattern.format(*(part.ours for part in parts)),
            (theirs or pattern).format(*(part.theirs for part in parts)),
            fails or any(part.fails for part in parts),
        )

    def number(self, depth: int) -> Pair:
        return self.make(self.rng.choice(("int", "float")), depth)

    def of_int(self, depth: int) -> Pair:
        rng = self.rng
        pick = rng.randrange(10)
        if pick < 4:
            operator = rng.choice(("+", "-", "*", "%"))
            return self.apply(f"({{}} {operator} {{}})", self.make("int", depth), self.make("int", depth), fails=True)
        if pick == 4:
            part = self.make("int", depth)
            if rng.random() < 0.5:
                return self.apply("abs({})", part, fails=True)
            # Minus the least integer is an integer of 128 bits there, if it is a constant.
            return self.apply("(- {})", part, theirs="(CAST(0 AS BIGINT) - {})", fails=True)
        if pick == 5:
            return self.apply(
                f"round({{}}, {rng.choice((-21, -19, -18, -2, -1, 0, 3))})", self.make("int", depth), fails=True
            )
        if pick == 6:
            return self.apply("sign({})", self.number(depth), theirs="sign({})::BIGINT")
        if pick == 7:
            return self.apply("length({})", self.make("string", depth))
        if pick == 8:
            source: Kind = rng.choice(("float", "bool", "int"))
            return self.apply("CAST({} AS BIGINT)", self.make(source, depth), fails=source == "float")
        if rng.random() < 0.3:
            return self.apply("({}::BIGINT)", Pair("digits", "digits"), fails=True)
        unit = rng.choice(CALLED + EXTRACTED)
        form = f"{unit}({{}})" if unit in CALLED and rng.random() < 0.5 else f"extract({unit} FROM {{}})"
        return self.apply(form, self.make("timestamp", depth))

    def of_float(self, depth: int) -> Pair:
        rng = self.rng
        pick = rng.randrange(9)
        if pick < 2:
            return self.apply(
                f"({{}} {rng.choice('+-*')} {{}})", self.make("float", depth), self.number(depth), fails=True
            )
        if pick == 2:
            return self.apply(
                "({} / {})", self.number(depth), self.number(depth), theirs="quotient({}, {})", fails=True
            )
        if pick == 3:
            parts = self.make("float", depth), self.number(depth)
            return self.apply("({} % {})", *parts, theirs="rest({}, {})", fails=True)
        if pick == 4:
            return self.apply(rng.choice(("(- {})", "abs({})")), self.make("float", depth))
        if pick == 5:
            name = rng.choice(("floor", "ceil", "sqrt", "ln", "exp"))
            return self.apply(f"{name}({{}})", self.number(depth))
        if pick == 6:
            digits = rng.choice(("", ", -400", ", -2", ", -1", ", 0", ", 1", ", 2", ", 17", ", 400"))
            return self.apply(f"round({{}}{digits})", self.make("float", depth))
        if pick == 7:
            return self.apply("power({}, {})", self.number(depth), self.literal(rng.choice(("int", "float"))))
        if rng.random() < 0.3:
            what = self.make(rng.choice(("timestamp", "interval")), depth)
            return self.apply("extract(epoch FROM {})", what)
        return self.apply("CAST({} AS DOUBLE)", self.make(rng.choice(("int", "bool")), depth))

    def of_string(self, depth: int) -> Pair:
        rng = self.rng
        pick = rng.randrange(6)
        if pick == 0:
            return self.apply(f"{rng.choice(('lower', 'upper', 'trim'))}({{}})", self.make("string", depth))
        if pick == 1:
            length = rng.choice(("", f", {rng.randint(-4, 5)}"))
            return self.apply(f"substring({{}}, {rng.randint(-5, 6)}{length})", self.make("string", depth))
        if pick == 2:
            return self.apply("({} || {})", self.make("string", depth), self.printable(depth))
        if pick == 3:
            return self.apply("concat({}, {}, {})", *(self.printable(depth - 1) for _ in range(3)))
        if pick == 4:
            return self.apply("CAST({} AS VARCHAR)", self.printable(depth))
        return self.leaf("string")

    def printable(self, depth: int) -> Pair:
        kind: Kind = self.rng.choice(("int", "float", "string", "bool", "timestamp"))
        made = self.make(kind, depth)
        # A NaN has a sign in DuckDB's texts.
        return made._replace(theirs=f"written({made.theirs})") if kind == "float" else made

    def of_timestamp(self, depth: int) -> Pair:
        rng = self.rng
        if rng.random() < 0.4:
            units = (
                "microsecond",
                "millisecond",
                "second",
                "minute",
                "hour",
                "day",
                "week",
                "month",
                "quarter",
                "year",
            )
            return self.apply(f"date_trunc('{rng.choice(units)}', {{}})", self.make("timestamp", depth))
        if rng.random() < 0.2:
            return self.apply(
                "CAST({} AS TIMESTAMP)", self.apply("CAST({} AS VARCHAR)", self.leaf("timestamp")), fails=True
            )
        parts = self.make("timestamp", depth), self.leaf("interval")
        if rng.random() < 0.3:
            return self.apply("({1} + {0})", *parts, fails=True)
        return self.apply(f"({{}} {rng.choice('+-')} {{}})", *parts, fails=True)

    def of_interval(self, depth: int) -> Pair:
        rng = self.rng
        pick = rng.randrange(4)
        if pick == 0:
            times = rng.choice((-2, 0, 1, 3))
            literal = Pair(f"({times})", f"({times})")
            return self.apply(rng.choice(("({0} * {1})", "({1} * {0})")), self.leaf("interval"), literal, fails=True)
        if pick == 1:
            return self.apply(f"({{}} {rng.choice('+-')} {{}})", *(self.leaf("interval") for _ in range(2)), fails=True)
        if pick == 2:
            return self.apply("(- {})", self.leaf("interval"), fails=True)
        return self.apply("({} - {})", self.make("timestamp", depth), self.make("timestamp", depth), fails=True)

    def same(self, kind: Kind, depth: int) -> tuple[Pair, Pair]:
        """Two values that can be compared; an integer may meet a float, a timestamp a text that says one."""
        other: Kind = self.rng.choice(("int", "float")) if kind in ("int", "float") else kind
        if kind == "timestamp" and self.rng.random() < 0.2:
            return self.make(kind, depth), Pair("'2021-01-03 00:00:01'", "'2021-01-03 00:00:01'")
        return self.make(kind, depth), self.or_null(other, depth)

    def of_bool(self, depth: int) -> Pair:
        rng = self.rng
        kind: Kind = rng.choice(("int", "float", "float", "string", "bool", "timestamp", "interval"))
        pick = rng.randrange(12)
        if pick < 3:
            return self.apply(f"({{}} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {{}})", *self.same(kind, depth))
        if pick < 5:
            left, right = self.make("bool", depth), self.make("bool", depth)
            word, macro = rng.choice((("AND", "land"), ("OR", "lor")))
            plain = f"({{}} {word} {{}})"
            return self.apply(plain, left, right, theirs=f"{macro}({{}}, {{}})" if right.fails else plain)
        if pick == 5:
            return self.apply("(NOT {})", self.make("bool", depth))
        if pick == 6:
            word = rng.choice(("", "NOT "))
            return self.apply(
                f"({{}} {word}BETWEEN {{}} AND {{}})", *self.same(kind, depth), self.or_null(kind, depth - 1)
            )
        if pick == 7:
            members = [self.or_null(kind, 0) for _ in range(rng.choice((1, 2, 3)))]
            if rng.random() < 0.3 and kind != "interval":
                # Enough constants for a set.
                members = [self.literal(kind) for _ in range(20)]
            parts = [self.make(kind, depth), *members]
            inner = ", ".join(["{}"] * (len(parts) - 1))
            return self.apply(f"({{}} {rng.choice(('', 'NOT '))}IN ({inner}))", *parts)
        if pick == 8:
            pattern = quote("".join(rng.choice("%_%_aAb.c\\ßÉé日😀 x\n") for _ in range(rng.randint(0, 4))))
            return self.apply(
                f"({{}} {rng.choice(('LIKE', 'NOT LIKE', 'ILIKE'))} {pattern})", self.make("string", depth)
            )
        if pick == 9:
            return self.apply(f"({{}} IS {rng.choice(('', 'NOT '))}NULL)", self.make(kind, depth))
        if pick == 10:
            what = rng.choice(("TRUE", "FALSE", "NOT TRUE", "NOT FALSE"))
            return self.apply(f"({{}} IS {what})", self.make("bool", depth))
        if rng.random() < 0.5:
            return self.apply("starts_with({}, {})", self.make("string", depth), self.leaf("string"))
        return self.apply("CAST({} AS BOOLEAN)", self.number(depth))

    def case(self, kind: Kind, depth: int) -> Pair:
        arms = self.rng.randint(1, 2)
        parts = [self.make("bool" if n % 2 == 0 else kind, depth - 1) for n in range(2 * arms)]
        text = "CASE" + " WHEN {} THEN {}" * arms
        if self.rng.random() < 0.7:
            text, parts = text + " ELSE {}", [*parts, self.or_null(kind, depth - 1)]
        return self.apply(f"({text} END)", *parts)

    def simple_case(self, kind: Kind, depth: int) -> Pair:
        subject: Kind = self.rng.choice(("int", "float", "string", "timestamp"))
        parts = self.leaf(subject), self.leaf(subject), self.make(kind, depth - 1), self.make(kind, depth - 1)
        return self.apply("(CASE {} WHEN {} THEN {} ELSE {} END)", *parts)

    def coalesce(self, kind: Kind, depth: int) -> Pair:
        return self.apply(
            "coalesce({}, {}, {})", self.make(kind, depth - 1), *(self.or_null(kind, depth - 1) for _ in range(2))
        )

    def nullif(self, kind: Kind, depth: int) -> Pair:
        return self.apply("nullif({}, {})", self.make(kind, depth - 1), self.or_null(kind, depth - 1))

    def extreme(self, kind: Kind, depth: int) -> Pair:
        if kind == "interval":
            # DuckDB's greatest looks at the days alone, against its own `>`.
            return self.of_interval(depth - 1)
        parts = [self.make(kind, depth - 1) for _ in range(self.rng.randint(1, 3))]
        inner = ", ".join(["{}"] * len(parts))
        return self.apply(f"{self.rng.choice(('least', 'greatest'))}({inner})", *parts)


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
