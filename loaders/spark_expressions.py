"""Scalar expressions in Spark SQL, with our semantics.

The counterpart of `query/scalar/expressions.py`: the same constructs and types. Where Spark's semantics differ, other
expressions are used; for values that Spark cannot treat alike, the expression raises an error.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from promising.errors import StatementError, Unsupported
from promising.query.scalar.casts import read_literal
from promising.query.scalar.compiled import value_of
from promising.query.scalar.expressions import compile_expression
from promising.query.scalar.positions import Place
from promising.query.scalar.scope import Input, Scope
from promising.query.scalar.string_functions import SPACES, reach
from promising.query.scalar.time_functions import unit_of
from promising.query.scalar.types import NAMES, NUMBERS, Kind, kind_of_type
from promising.query.sql.nodes import interval_micros

TYPES: Final[dict[Kind, str]] = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "string": "STRING",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP_NTZ",
    "interval": "INTERVAL DAY TO SECOND",
    "null": "VOID",
}
INFINITE: Final = "DOUBLE('Infinity')"
NAN: Final = "DOUBLE('NaN')"
WHOLE: Final = 2.0**52  # floats of this size have no fraction
PAST_ANY_STRING: Final = 1 << 30
LARGEST: Final = 1 << 20  # maximum characters of an expression: some parts are repeated

_ARITHMETIC: Final[dict[type[exp.Expression], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_COMPARISONS: Final[dict[type[exp.Expression], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True)
class Text:
    """An expression: its SQL, its type, and its text if it is a string literal."""

    sql: str
    kind: Kind
    literal: str | None = None


class Writer:
    """Writes expressions of one scope. `column` renders a column."""

    def __init__(self, scope: Scope, column: Callable[[Input], str]) -> None:
        self.scope = scope
        self._column = column

    def write(self, node: exp.Expression, null: Kind | None = None) -> Text:
        """The text of a checked expression. An untyped NULL gets the type `null`, if given."""
        made = self._write(node)
        if len(made.sql) > LARGEST:
            raise Place.of(node, self.scope.sql).error(Unsupported, "this is too long once it is written for Spark")
        return Text(f"CAST(NULL AS {TYPES[null]})", null) if made.kind == "null" and null is not None else made

    def condition(self, node: exp.Expression) -> str:
        return self.write(node, "bool").sql

    def refuse(self, what: str, node: exp.Expression) -> StatementError:
        place = Place.of(node, self.scope.sql)
        return place.error(Unsupported, f"{what} does not mean the same in Spark, and is not offered there")

    def _write(self, node: exp.Expression) -> Text:
        replaced = self.scope.replace(node)
        if replaced is not None:
            return Text(self._column(replaced), replaced.kind)
        kind = type(node)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            return handler(self, node)
        if kind in _COMPARISONS:
            a, b = self.unified([node.this, node.args["expression"]])[1]
            return Text(f"({a} {_COMPARISONS[kind]} {b})", "bool")
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], node)
        if kind in _FIELDS:
            return self._field(_FIELDS[kind], node.this, node)
        raise self.refuse(kind.__name__, node)

    # --- kinds -----------------------------------------------------------------------------------------------------

    def unified(self, nodes: Sequence[exp.Expression]) -> tuple[Kind, list[str]]:
        parts = [self._write(node) for node in nodes]
        kinds = {part.kind for part in parts if part.kind != "null" and part.literal is None}
        if not kinds:
            kind: Kind = "null" if all(part.kind == "null" for part in parts) else "string"
        else:
            kind = "float" if len(kinds) > 1 else next(iter(kinds))
        return kind, [self.as_kind(part, kind) for part in parts]

    def as_kind(self, part: Text, kind: Kind) -> str:
        if part.kind == kind:
            return part.sql
        if part.kind == "null":
            return f"CAST(NULL AS {TYPES[kind]})"
        if part.literal is not None:
            value = read_literal(part.literal, kind)
            assert value is not None, "it was read before"
            return constant(value.value if kind == "timestamp" else value.as_py(), kind)
        return f"CAST({part.sql} AS {TYPES[kind]})"

    def floats(self, node: exp.Expression, *names: str) -> list[str]:
        return [self.as_kind(self._write(node.args[name]), "float") for name in names]

    # --- literals, names -------------------------------------------------------------------------------------------

    def column(self, node: exp.Column) -> Text:
        found = self.scope.resolve(node)
        return Text(self._column(found), found.kind)

    def literal(self, node: exp.Literal) -> Text:
        if node.is_string:
            return Text(text_literal(node.name), "string", node.name)
        return self._number(node.name)

    def _number(self, text: str) -> Text:
        try:
            return Text(constant(int(text), "int"), "int")
        except ValueError:
            return Text(constant(float(text), "float"), "float")

    def negative(self, node: exp.Neg) -> Text:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return self._number("-" + inner.name)
        part = self.write(inner, "int")
        return Text(f"(- {part.sql})", part.kind)

    def interval(self, node: exp.Interval) -> Text:
        return Text(constant(interval_micros(node), "interval"), "interval")

    # --- conditions ------------------------------------------------------------------------------------------------

    def chain(self, node: exp.Expression) -> Text:
        word = " AND " if isinstance(node, exp.And) else " OR "
        parts, waiting = [], [node.args["expression"], node.this]
        while waiting:
            part = waiting.pop()
            if type(part) is type(node) and self.scope.replace(part) is None:
                waiting += [part.args["expression"], part.this]
            else:
                parts.append(self.condition(part))
        return Text(f"({word.join(parts)})", "bool")

    def between(self, node: exp.Between) -> Text:
        x, low, high = self.unified([node.this, node.args["low"], node.args["high"]])[1]
        return Text(f"({x} BETWEEN {low} AND {high})", "bool")

    def member(self, node: exp.In) -> Text:
        kind, (x, *others) = self.unified([node.this, *node.expressions])
        if kind == "float":  # a large set would distinguish 0.0 from -0.0
            return Text("(" + " OR ".join(f"{x} = {other}" for other in others) + ")", "bool")
        return Text(f"({x} IN ({', '.join(others)}))", "bool")

    def like(self, node: exp.Expression) -> Text:
        text, pattern = self.write(node.this, "string").sql, node.args["expression"]
        value = value_of(compile_expression(pattern, self.scope))
        if value is None or not value.is_valid:
            return Text("CAST(NULL AS BOOLEAN)", "bool")
        wanted = value.as_py()
        if isinstance(node, exp.ILike):
            text, wanted = _lower(text), pc.utf8_lower(value).as_py()
        escape = next(c for c in map(chr, range(1, 1 << 16)) if c not in wanted and c not in "%_'\\")
        return Text(f"({text} LIKE {text_literal(wanted)} ESCAPE '{escape}')", "bool")

    def test(self, node: exp.Is) -> Text:
        wanted = node.args["expression"]
        if isinstance(wanted, exp.Null):
            return Text(f"({self.write(node.this, 'int').sql} IS NULL)", "bool")
        return Text(f"({self.condition(node.this)} IS {'TRUE' if wanted.this else 'FALSE'})", "bool")

    def case(self, node: exp.Case) -> Text:
        conditions = []
        for arm in node.args["ifs"]:
            if node.this is None:
                conditions.append(self.condition(arm.this))
            else:
                a, b = self.unified([node.this, arm.this])[1]
                conditions.append(f"{a} = {b}")
        default = node.args.get("default") or exp.Null()
        kind, (other, *values) = self.unified([default, *(arm.args["true"] for arm in node.args["ifs"])])
        arms = "".join(f" WHEN {c} THEN {v}" for c, v in zip(conditions, values, strict=True))
        return Text(f"CASE{arms} ELSE {other} END", kind)

    # --- numbers ---------------------------------------------------------------------------------------------------

    def _arithmetic(self, sign: str, node: exp.Expression) -> Text:
        compiled = compile_expression(node, self.scope)
        left, right = (self._write(node.args[name]) for name in ("this", "expression"))
        if "null" in (left.kind, right.kind):
            return Text(f"CAST(NULL AS {TYPES[compiled.kind]})", compiled.kind)
        if compiled.kind in NUMBERS:
            return Text(
                f"({self.as_kind(left, compiled.kind)} {sign} {self.as_kind(right, compiled.kind)})", compiled.kind
            )
        return Text(f"({left.sql} {sign} {right.sql})", compiled.kind)

    def divide(self, node: exp.Div) -> Text:
        a, b = self.floats(node, "this", "expression")
        return Text(f"({a} / {b})", "float")

    def absolute(self, node: exp.Abs) -> Text:
        part = self.write(node.this, "int")
        if part.kind == "interval":
            raise self.refuse("abs of an interval", node)
        return Text(f"abs({part.sql})", part.kind)

    def whole(self, node: exp.Expression) -> Text:
        """floor and ceil: Spark's return integers, which have a smaller range."""
        part = self._write(node.this)
        x = self.as_kind(part, "float")
        if part.kind == "int":
            return Text(x, "float")
        word = "floor" if isinstance(node, exp.Floor) else "ceil"
        return Text(f"CASE WHEN abs({x}) < {WHOLE!r}D THEN CAST({word}({x}) AS DOUBLE) ELSE {x} END", "float")

    def round(self, node: exp.Round) -> Text:
        part = self.write(node.this, "int")
        digits = 0
        if node.args.get("decimals") is not None:
            value = value_of(compile_expression(node.args["decimals"], self.scope))
            if value is None or not value.is_valid:
                return Text(f"CAST(NULL AS {TYPES[part.kind]})", part.kind)
            digits = value.as_py()
        x = part.sql
        if part.kind == "int":
            if digits < -18:
                raise self.refuse("round to so many places before the point", node)
            return part if digits >= 0 else Text(f"round({x}, {digits})", "int")
        if digits == 0:
            return Text(f"round({x})", "float")
        if abs(digits) > 308:
            raise self.refuse("round to so many places", node)
        unit = f"{10.0 ** abs(digits)!r}D"
        made = f"(round({x} * {unit}) / {unit})" if digits > 0 else f"(round({x} / {unit}) * {unit})"
        beyond = x if digits > 0 else f"CASE WHEN abs({x}) < {INFINITE} THEN 0D ELSE {x} END"
        return Text(f"CASE WHEN abs({made}) < {INFINITE} THEN {made} ELSE {beyond} END", "float")

    def sign(self, node: exp.Sign) -> Text:
        (x,) = self.floats(node, "this")
        return Text(f"CAST(CASE WHEN isnan({x}) THEN 0D ELSE sign({x}) END AS BIGINT)", "int")

    def logarithm(self, node: exp.Ln) -> Text:
        """Spark returns NULL where the logarithm is undefined."""
        (x,) = self.floats(node, "this")
        made = f"CASE WHEN {x} > 0D THEN ln({x}) WHEN {x} = 0D THEN -{INFINITE} WHEN {x} < 0D THEN {NAN} END"
        return Text(made, "float")

    def power(self, node: exp.Pow) -> Text:
        """1 to any power and -1 to an infinite power are 1, as in C; Java returns NaN for some."""
        x, y = self.floats(node, "this", "expression")
        one = f"({x} = 1D AND {y} IS NOT NULL) OR ({x} = -1D AND abs({y}) = {INFINITE})"
        return Text(f"CASE WHEN {one} THEN 1D ELSE power({x}, {y}) END", "float")

    # --- any kind --------------------------------------------------------------------------------------------------

    def first(self, node: exp.Coalesce) -> Text:
        kind, parts = self.unified(_all(node))
        return Text(f"coalesce({', '.join(parts)})", kind)

    def unless(self, node: exp.Nullif) -> Text:
        part = self._write(node.this)
        a, b = self.unified([node.this, node.args["expression"]])[1]
        if part.kind == "null":
            return part
        return Text(f"CASE WHEN {a} = {b} THEN NULL ELSE {part.sql} END", part.kind)

    def extreme(self, node: exp.Expression) -> Text:
        kind, parts = self.unified(_all(node))
        if len(parts) == 1 or kind == "null":
            return Text(parts[0], kind)
        return Text(f"{'least' if isinstance(node, exp.Least) else 'greatest'}({', '.join(parts)})", kind)

    def cast(self, node: exp.Cast) -> Text:
        to = kind_of_type(node.to, self.scope.sql)
        part = self._write(node.this)
        if part.kind == to:
            return Text(part.sql, to)
        if part.kind == "null":
            return Text(f"CAST(NULL AS {TYPES[to]})", to)
        if part.literal is not None and (value := read_literal(part.literal, to)) is not None:
            return Text(constant(value.value if to == "timestamp" else value.as_py(), to), to)
        x = part.sql
        if to == "bool":
            return Text(_truth(x) if part.kind == "string" else f"({x} <> {constant(0, part.kind)})", to)
        if (part.kind, to) == ("float", "int"):
            return Text(f"CAST(rint({x}) AS BIGINT)", to)
        if (part.kind, to) == ("string", "int"):
            return Text(_whole(x), to)
        if (part.kind, to) in (("float", "string"), ("string", "float"), ("string", "timestamp")):
            raise self.refuse(f"the cast of {NAMES[part.kind]} to {NAMES[to]}", node)
        return Text(f"CAST({x} AS {TYPES[to]})", to)

    # --- strings ---------------------------------------------------------------------------------------------------

    def string(self, node: exp.Expression) -> str:
        return self.write(node, "string").sql

    def lower(self, node: exp.Lower) -> Text:
        return Text(_lower(self.string(node.this)), "string")

    def upper(self, node: exp.Upper) -> Text:
        x, (odd, before, after) = self.string(node.this), _several()
        why = text_literal("upper: Spark makes several letters of one here, and the service does not")
        made = f"upper(translate({x}, '{before}', '{after}'))"
        return Text(f"CASE WHEN {x} RLIKE '[{odd}]' THEN raise_error({why}) ELSE {made} END", "string")

    def length(self, node: exp.Length) -> Text:
        return Text(f"CAST(char_length({self.string(node.this)}) AS BIGINT)", "int")

    def trim(self, node: exp.Trim) -> Text:
        return Text(f"trim(BOTH {text_literal(SPACES)} FROM {self.string(node.this)})", "string")

    def substring(self, node: exp.Substring) -> Text:
        asked = [
            value_of(compile_expression(node.args[n], self.scope)) for n in ("start", "length") if node.args.get(n)
        ]
        if any(value is None or not value.is_valid for value in asked):
            return Text("CAST(NULL AS STRING)", "string")
        low, high = reach(*(value.as_py() for value in asked if value is not None))
        first = max(low, -PAST_ANY_STRING) + (1 if low >= 0 else 0)
        most = "" if high is None else f", {min(max(high - low, 0), PAST_ANY_STRING)}"
        return Text(f"substring({self.string(node.this)}, {min(first, PAST_ANY_STRING)}{most})", "string")

    def concat(self, node: exp.Concat) -> Text:
        parts = ", ".join(f"coalesce({text}, '')" for text in self._texts(_all(node), node))
        return Text(f"concat({parts})", "string")

    def joined(self, node: exp.DPipe) -> Text:
        return Text(f"concat({', '.join(self._texts([node.this, node.args['expression']], node))})", "string")

    def _texts(self, nodes: Sequence[exp.Expression], at: exp.Expression) -> list[str]:
        out = []
        for node in nodes:
            part = self.write(node, "string")
            if part.kind == "float":
                raise self.refuse("a float written as a string", at)
            out.append(part.sql if part.kind == "string" else f"CAST({part.sql} AS STRING)")
        return out

    def starts(self, node: exp.StartsWith) -> Text:
        return Text(f"startswith({self.string(node.this)}, {self.string(node.args['expression'])})", "bool")

    # --- time ------------------------------------------------------------------------------------------------------

    def truncate(self, node: exp.DateTrunc) -> Text:
        x, unit = self.write(node.this, "timestamp").sql, unit_of(node.text("unit"))
        return Text(x if unit == "MICROSECOND" else f"CAST(date_trunc('{unit}', {x}) AS TIMESTAMP_NTZ)", "timestamp")

    def extract(self, node: exp.Extract) -> Text:
        return self._field(node.text("this"), node.args["expression"], node)

    def _field(self, word: str, of: exp.Expression, node: exp.Expression) -> Text:
        part = self.write(of, "timestamp")
        x = part.sql
        if part.kind == "interval":
            x = f"(TIMESTAMP_NTZ'1970-01-01 00:00:00' + {x})"
        micros = f"unix_micros(CAST({x} AS TIMESTAMP))"
        if word.upper() == "EPOCH":
            return Text(f"(CAST({micros} AS DOUBLE) / 1000000D)", "float")
        unit = unit_of(word)
        if unit in _OF_MINUTE:
            return Text(f"(pmod({micros}, 60000000L) DIV {_OF_MINUTE[unit]}L)", "int")
        form = _FORMS.get(unit)
        if form is None:
            raise self.refuse(f"extract {unit.lower()}", node)
        return Text(f"CAST({form.format(x)} AS BIGINT)", "int")


def constant(value: Any, kind: Kind) -> str:
    if kind == "int":
        return f"{value}L" if value > -(1 << 63) else f"CAST('{value}' AS BIGINT)"
    if kind == "float":
        if math.isnan(value):
            return NAN
        return f"{value!r}D" if math.isfinite(value) else f"({'-' if value < 0 else ''}{INFINITE})"
    if kind == "bool":
        return "TRUE" if value else "FALSE"
    if kind == "timestamp":
        try:
            when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        except OverflowError:
            return f"CAST(timestamp_micros({value}L) AS TIMESTAMP_NTZ)"
        return f"TIMESTAMP_NTZ'{when:%Y-%m-%d %H:%M:%S.%f}'" if when.year >= 1000 else _early(value)
    if kind == "interval":
        sign, (seconds, rest) = "-" if value < 0 else "", divmod(abs(value), 1_000_000)
        days, seconds = divmod(seconds, 86_400)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"
        return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"
    return text_literal(value)


def _early(micros: int) -> str:
    return f"CAST(timestamp_micros({micros}L) AS TIMESTAMP_NTZ)"


def _all(node: exp.Expression) -> list[exp.Expression]:
    return [*([node.this] if node.args.get("this") is not None else []), *node.expressions]


def _truth(x: str) -> str:
    true, false = ("', '".join(words) for words in (("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")))
    why = text_literal("a string cannot be cast to a boolean")
    return (
        f"CASE WHEN {x} IS NULL THEN NULL WHEN lower({x}) IN ('{true}') THEN TRUE WHEN lower({x}) IN ('{false}')"
        f" THEN FALSE ELSE raise_error({why}) END"
    )


def _whole(x: str) -> str:
    """An integer in a string, with surrounding blanks; a fraction is rounded, ties away from zero."""
    text = f"trim(BOTH ' \t\n\v\f\r' FROM {x})"
    number = f"CAST(round(CAST({text} AS DECIMAL(38, 18)), 0) AS BIGINT)"
    why = text_literal("a string cannot be cast to an integer")
    good = f"{text} RLIKE '^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)$'"
    return f"CASE WHEN {x} IS NULL THEN NULL WHEN {good} THEN {number} ELSE raise_error({why}) END"


def _lower(x: str) -> str:
    """Per character: Java has another sigma at the end of a word, and maps a dotted I to two letters."""
    dotted = pc.utf8_lower("İ").as_py()
    return f"lower(translate({x}, 'Σİ', 'σ{dotted if len(dotted) == 1 else 'i'}'))"


@functools.cache
def _several() -> tuple[str, str, str]:
    """Letters whose upper case has several in Java; those that have one after replacement; and the replacements."""
    found = [c for c in map(chr, range(0x110000)) if len(c.upper()) > 1]
    ours: list[str] = pc.utf8_upper(pa.array(found)).to_pylist()
    safe = {c: made for c, made in zip(found, ours, strict=True) if made != c and made.upper() == made}
    return "".join(c for c in found if c not in safe), "".join(safe), "".join(safe.values())


_OF_MINUTE: Final = {"SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1}
_FORMS: Final = {
    "YEAR": "year({})",
    "QUARTER": "quarter({})",
    "MONTH": "month({})",
    "WEEK": "weekofyear({})",
    "DAY": "dayofmonth({})",
    "HOUR": "hour({})",
    "MINUTE": "minute({})",
    "DOW": "dayofweek({}) - 1",
    "ISODOW": "weekday({}) + 1",
    "DOY": "dayofyear({})",
    "ISOYEAR": "extract(YEAROFWEEK FROM {})",
}
_FIELDS: Final[dict[type[exp.Expression], str]] = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Week: "WEEK",
    exp.Day: "DAY",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
    exp.Second: "SECOND",
}
_HANDLERS: Final[dict[type[exp.Expression], Callable[[Writer, Any], Text]]] = {
    exp.Column: Writer.column,
    exp.Literal: Writer.literal,
    exp.Boolean: lambda self, node: Text(constant(node.this, "bool"), "bool"),
    exp.Null: lambda self, node: Text("NULL", "null"),
    exp.Paren: lambda self, node: self.write(node.this),
    exp.Neg: Writer.negative,
    exp.And: Writer.chain,
    exp.Or: Writer.chain,
    exp.Not: lambda self, node: Text(f"(NOT {self.condition(node.this)})", "bool"),
    exp.Between: Writer.between,
    exp.In: Writer.member,
    exp.Like: Writer.like,
    exp.ILike: Writer.like,
    exp.Is: Writer.test,
    exp.Cast: Writer.cast,
    exp.Case: Writer.case,
    exp.Interval: Writer.interval,
    exp.Div: Writer.divide,
    exp.Abs: Writer.absolute,
    exp.Floor: Writer.whole,
    exp.Ceil: Writer.whole,
    exp.Round: Writer.round,
    exp.Sign: Writer.sign,
    exp.Sqrt: lambda self, node: Text(f"sqrt({self.floats(node, 'this')[0]})", "float"),
    exp.Ln: Writer.logarithm,
    exp.Exp: lambda self, node: Text(f"exp({self.floats(node, 'this')[0]})", "float"),
    exp.Pow: Writer.power,
    exp.Coalesce: Writer.first,
    exp.Nullif: Writer.unless,
    exp.Least: Writer.extreme,
    exp.Greatest: Writer.extreme,
    exp.Lower: Writer.lower,
    exp.Upper: Writer.upper,
    exp.Length: Writer.length,
    exp.Trim: Writer.trim,
    exp.Substring: Writer.substring,
    exp.Concat: Writer.concat,
    exp.DPipe: Writer.joined,
    exp.StartsWith: Writer.starts,
    exp.DateTrunc: Writer.truncate,
    exp.Extract: Writer.extract,
}
