"""The grammar of literals: numbers, constants, types, timestamps and intervals."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from promising.errors import BadClause, BadSyntax
from promising.query.sql import nodes, tokenizer
from promising.query.sql.token_cursor import NUMBER, STRING, TokenCursor, leaf, placed
from promising.query.sql.words import CALENDAR, OTHER_UNITS, TYPES, UNITS

_PART = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


class Literals(TokenCursor):
    def number(self, what: str) -> exp.Expression:
        """A number, optionally signed."""
        start = self.start
        if self.word == "-" and self.peek() == NUMBER:
            self.advance()
            return placed(exp.Neg(this=self.number(what)), start)
        if self.word == "+" and self.peek() == NUMBER:
            self.advance()
        if self.word != NUMBER:
            self.unexpected(what)
        return self.literal()

    def literal(self) -> exp.Expression:
        """A number or string: the next token."""
        token = self.advance()
        return leaf(exp.Literal, {"this": token.text, "is_string": token.kind == tokenizer.STRING}, token.start)

    def constant(self) -> exp.Expression:
        """NULL, TRUE or FALSE: the next word."""
        word, start = self.word, self.advance().start
        return placed(exp.Null() if word == "NULL" else exp.Boolean(this=word == "TRUE"), start)

    def type(self) -> exp.DataType:
        if not self.is_word():
            self.unexpected("a type")
        shown, word, start = self.shown(), self.word, self.advance().start
        if word not in TYPES:
            self.refuse(f"the type {shown}", start)
        if word == "DOUBLE":
            self.take("PRECISION")
        if self.word == "(":
            self.refuse(f"a size of the type {shown}")
        if self.word == "[":
            self.refuse("an array type", start)
        if word == "TIMESTAMP" and not self.take_all("WITHOUT", "TIME", "ZONE") and self.word in ("WITH", "WITHOUT"):
            self.refuse("TIMESTAMP WITH TIME ZONE", start)
        return placed(exp.DataType(this=TYPES[word], nested=False), start)

    def timestamp(self) -> exp.Expression:
        start = self.advance().start
        to = placed(exp.DataType(this=exp.DType.TIMESTAMP, nested=False), start)
        return placed(exp.Cast(this=self.literal(), to=to), start)

    def interval(self) -> exp.Interval:
        """INTERVAL '5' MINUTE, INTERVAL 5 MINUTES, INTERVAL '5 minutes' or INTERVAL '1 hour 5 minutes'."""
        start = self.advance().start
        token, place = self.advance(), self.tokens[self.at - 1].start
        parts = self.parts(token.text, place)
        if len(parts) == 1 and not parts[0][1]:
            if not self.is_word():
                self.unexpected("a unit of time")
            parts = [(parts[0][0], self.unit(self.word, self.start))]
            self.advance()
            if self.word == "TO" and self.is_word() and self.peek() in UNITS:
                self.refuse("an INTERVAL from one unit to another", start)
        try:
            total = sum(nodes.whole_micros(amount, unit) for amount, unit in parts)
            amount, unit = parts[0]
            if len(parts) > 1:
                unit = next(name for name, micros in reversed(nodes.MICROS.items()) if total % micros == 0)
                amount = str(total // nodes.MICROS[unit])
            nodes.whole_micros(amount, unit)
        except BadClause as problem:
            self.misplaced(problem.problem, place)
        literal = placed(exp.Literal(this=amount, is_string=True), place)
        node = placed(exp.Interval(this=literal, unit=exp.Var(this=unit)), start)
        # sqlglot recreates the unit.
        placed(node.args["unit"], place)
        return node

    def parts(self, text: str, place: int) -> list[tuple[str, str]]:
        """Numbers and units of an interval's text; a single number may lack a unit, which is then empty."""
        found, at = [], 0
        while (part := _PART.match(text, at)) is not None:
            found.append((part[1].removeprefix("+"), self.unit(part[2].upper(), place) if part[2] else ""))
            at = part.end()
        if at < len(text) or not found or (len(found) > 1 and not all(unit for _, unit in found)):
            self.fail(BadSyntax, "an INTERVAL is a number and a unit of time", place)
        return found

    def unit(self, word: str, place: int) -> str:
        if word in UNITS:
            return UNITS[word]
        if word in OTHER_UNITS:
            self.refuse(f"the unit {word}", place)
        return self.fail(BadSyntax, f"{word.lower()} is no unit of time", place)

    def span(self, clause: str, calendar: bool = False) -> nodes.Span:
        """The duration in a clause: `60 SECONDS`, `INTERVAL '1' HOUR`, or a bare number.

        calendar: months and years are units too, as the most days they may have.
        """
        start = self.start
        unit = None
        if self.word == "INTERVAL" and self.peek() in (NUMBER, STRING):
            interval = self.interval()
            text, unit, place = interval.this.this, interval.args["unit"].this, interval.this.meta["start"]
            amount: exp.Expression = placed(exp.Literal(this=text.removeprefix("-"), is_string=False), place)
            if text.startswith("-"):
                amount = placed(exp.Neg(this=amount), place)
        else:
            amount = self.number(f"a length of time after {clause}")
            if calendar and self.word in CALENDAR:
                days, unit = CALENDAR[self.word], "DAY"
                self.advance()
                number = amount.this if isinstance(amount, exp.Neg) else amount
                number.set("this", str(Decimal(number.this) * days))
            elif self.word in UNITS or self.word in OTHER_UNITS:
                unit = self.unit(self.word, self.start)
                self.advance()
        node = placed(nodes.Span(amount=amount, unit=unit), start)
        try:
            _ = node.micros
        except BadClause as problem:
            self.misplaced(f"{clause}: {problem.problem}", start)
        return node
