"""Compiles scalar expressions over Arrow arrays; DuckDB's semantics, except that float division by zero fails."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow.compute as pc
from sqlglot import exp

from promising.errors import BadClause, NoSuchName, Overflow, TypeMismatch, Unsupported
from promising.query.scalar import arithmetic, branches, comparisons
from promising.query.scalar.casts import cast
from promising.query.scalar.coercion import to_kind, unify
from promising.query.scalar.compiled import Compiled, apply, column, literal
from promising.query.scalar.functions import FUNCTIONS, Call
from promising.query.scalar.positions import Place
from promising.query.scalar.scope import Scope, suggest
from promising.query.scalar.types import NAMES, NUMBERS, Kind, kind_of_type
from promising.query.sql.nodes import interval_micros
from promising.query.sql.words import CALLS

__all__ = ["Compiled", "compile_expression", "compile_predicate", "conjuncts"]

_ARITHMETIC: Final[dict[type[exp.Expression], arithmetic.Operator]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_COMPARISONS: Final[dict[type[exp.Expression], comparisons.Comparison]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


def compile_expression(node: exp.Expression, scope: Scope) -> Compiled:
    """Compile an expression; raises TypeMismatch, NoSuchName, Ambiguous, Overflow (of a literal) or Unsupported."""
    return _Compiler(scope).compile(node)


def compile_predicate(node: exp.Expression, scope: Scope) -> Compiled:
    """`compile_expression` for a condition; NULL becomes a bool."""
    return _Compiler(scope).condition(node)


def conjuncts(node: exp.Expression) -> list[exp.Expression]:
    """The conditions joined by AND, left to right, without enclosing parentheses."""
    return list(_flatten(node, exp.And))


def _flatten(node: exp.Expression, connector: type[exp.Expression]) -> Iterator[exp.Expression]:
    """The operands of a chain of one connector; iterative, because a chain may have thousands."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Paren):
            waiting.append(part.this)
        elif isinstance(part, connector):
            waiting += [part.args["expression"], part.this]
        else:
            yield part


ELSEWHERE = {
    "strftime": "CAST(time AS STRING), or extract(part FROM time)",
    "to_char": "CAST(value AS STRING), or extract(part FROM time)",
    "date_format": "CAST(time AS STRING), or extract(part FROM time)",
    "len": "length(text)",
    "nvl": "coalesce(value, other)",
    "ifnull": "coalesce(value, other)",
    "isnull": "value IS NULL",
    "unix_timestamp": "extract(epoch FROM time)",
}
"""Functions of other dialects, and how to write them here."""


def _instead(name: str) -> str:
    """What to write instead of an unknown function; empty if nothing is near."""
    if name.lower() in ELSEWHERE:
        return f"; write {ELSEWHERE[name.lower()]}"
    return suggest(name, [call.name for call in CALLS], 0.7)


class _Compiler:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def place(self, node: exp.Expression) -> Place:
        return Place.of(node, self.scope.sql)

    def compile(self, node: exp.Expression) -> Compiled:
        replaced = self.scope.replace(node)
        if replaced is not None:
            return column(replaced)
        kind = type(node)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            return handler(self, node)
        if kind in _COMPARISONS:
            left, right = self.compile(node.this), self.compile(node.args["expression"])
            return comparisons.compare(_COMPARISONS[kind], left, right, self.place(node))
        if kind in _ARITHMETIC:
            left, right = self.compile(node.this), self.compile(node.args["expression"])
            return arithmetic.binary(_ARITHMETIC[kind], left, right, self.place(node))
        if kind in FUNCTIONS:
            return FUNCTIONS[kind](Call(node, self.place(node), self.compile))
        place = self.place(node)
        if isinstance(node, exp.AggFunc):
            raise place.error(BadClause, f"{node.sql_name().lower()} is an aggregate and has no place here")
        if isinstance(node, exp.Anonymous):
            raise place.error(NoSuchName, f"no function {node.name}{_instead(node.name)}")
        if isinstance(node, exp.Exists):
            raise place.error(
                Unsupported,
                "EXISTS is offered in continuous queries, as a condition of WHERE or one that AND joins:"
                " CREATE CONTINUOUS QUERY name AS ...",
            )
        raise place.error(Unsupported, f"{type(node).__name__} is not offered in an expression")

    def condition(self, node: exp.Expression) -> Compiled:
        made = self.compile(node)
        if made.kind not in ("bool", "null"):
            raise self.place(node).error(TypeMismatch, f"a condition is true or false, not {NAMES[made.kind]}")
        return to_kind(made, "bool")

    def column(self, node: exp.Column) -> Compiled:
        return column(self.scope.resolve(node))

    def literal(self, node: exp.Literal, sign: str = "") -> Compiled:
        if node.is_string:
            return literal(node.name, "string", text=node.name)
        text = sign + node.name
        try:
            number = int(text)
        except ValueError:
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise self.place(node).error(Overflow, f"{text} is too large for a float") from None
            return literal(value, "float")
        if not -(2**63) <= number < 2**63:
            raise self.place(node).error(Overflow, f"{text} does not fit 64 bits")
        return literal(number, "int")

    def negative(self, node: exp.Neg) -> Compiled:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            # The least integer has no positive counterpart, so the sign belongs to the number.
            return self.literal(inner, "-")
        return arithmetic.negate(self.compile(inner), self.place(node))

    def chain(self, node: exp.Expression) -> Compiled:
        parts = [self.condition(part) for part in self.operands(node)]
        return branches.conjunction(parts) if isinstance(node, exp.And) else branches.disjunction(parts)

    def operands(self, node: exp.Expression) -> Iterator[exp.Expression]:
        """`_flatten`, except for nodes that the scope replaces by a column."""
        waiting = [node.args["expression"], node.this]
        while waiting:
            part = waiting.pop()
            if isinstance(part, exp.Paren | type(node)) and self.scope.replace(part) is None:
                waiting += [part.this] if isinstance(part, exp.Paren) else [part.args["expression"], part.this]
            else:
                yield part

    def negation(self, node: exp.Not) -> Compiled:
        return apply("bool", [self.condition(node.this)], pc.invert)

    def between(self, node: exp.Between) -> Compiled:
        part, low, high = (self.compile(node.args[name]) for name in ("this", "low", "high"))
        return comparisons.between(part, low, high, self.place(node))

    def member(self, node: exp.In) -> Compiled:
        if not node.expressions:
            raise self.place(node).error(Unsupported, "IN takes a list of values")
        part = self.compile(node.this)
        if (values := self.constants(node.expressions, part.kind)) is not None:
            return comparisons.member_of(part, values)
        return comparisons.member(part, [self.compile(member) for member in node.expressions], self.place(node))

    def constants(self, members: Sequence[exp.Expression], kind: Kind) -> list[int] | list[float] | list[str] | None:
        """The values of a list of strings or of numbers, if it is long and of that kind; else None."""
        if len(members) < comparisons.SET_FROM or not all(type(one) is exp.Literal for one in members):
            return None
        texts = [one.args["this"] for one in members if one.args["is_string"] == (kind == "string")]
        if len(texts) < len(members) or kind not in ("string", *NUMBERS) or self.scope.replace(members[0]) is not None:
            return None
        if kind == "string":
            return texts
        try:
            values: list[int] = [int(text) for text in texts]
            return values if max(values) < 2**63 else None
        except ValueError:
            floats = [float(text) for text in texts]
            return floats if max(floats) < float("inf") else None

    def like(self, node: exp.Expression) -> Compiled:
        part, pattern = self.compile(node.this), self.compile(node.args["expression"])
        return comparisons.like(part, pattern, isinstance(node, exp.ILike), self.place(node))

    def test(self, node: exp.Is) -> Compiled:
        """IS NULL, IS TRUE, IS FALSE: never NULL."""
        wanted = node.args["expression"]
        if isinstance(wanted, exp.Null):
            return apply("bool", [self.compile(node.this)], pc.is_null)
        if not isinstance(wanted, exp.Boolean):
            raise self.place(node).error(Unsupported, "IS takes NULL, TRUE or FALSE")
        part = self.condition(node.this)
        if wanted.this:
            return apply("bool", [part], lambda value: pc.fill_null(value, False))
        return apply("bool", [part], lambda value: pc.invert(pc.fill_null(value, True)))

    def cast(self, node: exp.Cast) -> Compiled:
        kind = kind_of_type(node.to, self.scope.sql)
        return cast(self.compile(node.this), kind, self.place(node))

    def case(self, node: exp.Case) -> Compiled:
        place = self.place(node)
        subject = self.compile(node.this) if node.this else None
        conditions: list[Compiled] = []
        values = [self.compile(node.args["default"]) if node.args.get("default") else literal(None, "null")]
        for arm in node.args["ifs"]:
            if subject is None:
                conditions.append(self.condition(arm.this))
            else:
                conditions.append(comparisons.compare("=", subject, self.compile(arm.this), self.place(arm)))
            values.append(self.compile(arm.args["true"]))
        kind, (default, *values) = unify(values, "choose between", place)
        return branches.case(kind, list(zip(conditions, values, strict=True)), default)

    def interval(self, node: exp.Interval) -> Compiled:
        return literal(interval_micros(node), "interval")


_HANDLERS: Final[dict[type[exp.Expression], Callable[[_Compiler, Any], Compiled]]] = {
    exp.Column: _Compiler.column,
    exp.Literal: _Compiler.literal,
    exp.Boolean: lambda self, node: literal(node.this, "bool"),
    exp.Null: lambda self, node: literal(None, "null"),
    exp.Paren: lambda self, node: self.compile(node.this),
    exp.Neg: _Compiler.negative,
    exp.And: _Compiler.chain,
    exp.Or: _Compiler.chain,
    exp.Not: _Compiler.negation,
    exp.Between: _Compiler.between,
    exp.In: _Compiler.member,
    exp.Like: _Compiler.like,
    exp.ILike: _Compiler.like,
    exp.Is: _Compiler.test,
    exp.Cast: _Compiler.cast,
    exp.Case: _Compiler.case,
    exp.Interval: _Compiler.interval,
}
