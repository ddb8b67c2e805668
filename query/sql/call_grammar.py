"""The grammar of calls: functions, aggregates, CAST, EXTRACT and EXISTS."""

from __future__ import annotations

from sqlglot import exp

from promising.errors import BadSyntax
from promising.query.sql.expression_grammar import ENDS, Scalars
from promising.query.sql.token_cursor import STRING, placed
from promising.query.sql.words import CALL_BY_NAME

_REFUSED_CALLS: dict[str, str] = {
    **{word: f"{word} over a subquery" for word in ("ANY", "ALL", "SOME")},
    **{word: word for word in ("ROLLUP", "CUBE", "VALUES", "TRY_CAST", "SAFE_CAST")},
    **{"INTERVAL": "INTERVAL of an expression", "ROW": "a row of several values"},
}


class Calls(Scalars):
    def call(self) -> exp.Expression:
        word, token = self.word, self.advance()
        start = token.start
        if word in _REFUSED_CALLS:
            self.refuse(_REFUSED_CALLS[word], start)
        self.advance()
        self.inside()
        readers = {"COUNT": self.count, "CAST": self.cast, "EXTRACT": self.extract, "EXISTS": self.exists}
        reader = readers.get(word)
        node = reader() if reader is not None else self.function(token.text, word, start)
        if self.word == "OVER" and self.peek() not in ENDS:
            self.refuse("OVER (a window function)")
        if self.word == "FILTER" and self.peek() == "(":
            self.refuse("FILTER after an aggregate")
        if (self.word, self.peek()) in {("WITHIN", "GROUP"), ("IGNORE", "NULLS"), ("RESPECT", "NULLS")}:
            self.refuse(f"{self.word} {self.peek()}")
        return placed(node, start)

    def arguments(self, name: str) -> list[exp.Expression]:
        if self.word in ("DISTINCT", "ALL"):
            self.refuse(f"{self.word} in {name}()")
        self.refuse_query()
        found: list[exp.Expression] = []
        if self.word != ")":
            found.append(self.expression())
            while self.take(","):
                found.append(self.expression())
        if self.word in ("FROM", "FOR", "USING", "SEPARATOR", "ORDER", "LIMIT"):
            self.refuse(f"{self.word} inside of {name}()")
        if self.word != ")":
            self.unexpected(", or )")
        self.advance()
        self.nested -= 1
        return found

    def function(self, name: str, word: str, start: int) -> exp.Expression:
        if self.word == "*":
            self.refuse(f"{name}(*)", start)
        arguments = self.arguments(name)
        if word == "MOD" and len(arguments) == 2:
            return exp.Mod(this=arguments[0], expression=arguments[1])
        call = CALL_BY_NAME.get(word)
        if call is None:
            return exp.Anonymous(this=name, expressions=arguments)
        most = len(call.args)
        if len(arguments) < call.least or (len(arguments) > most and call.rest is None):
            self.fail(BadSyntax, f"{call.name} takes {call.takes}, not {len(arguments)}", start)
        args: dict[str, object] = dict(zip(call.args, arguments, strict=False))
        if call.rest is not None:
            args[call.rest] = arguments[most:]
        if call.node is exp.DateTrunc:
            unit = arguments[0]
            if not (isinstance(unit, exp.Literal) and unit.is_string and unit.this.isascii() and unit.this.isalpha()):
                self.fail(BadSyntax, "the first argument of date_trunc is a unit in quotes", unit.meta["start"])
            # By default sqlglot reads 'M' as minutes. It recreates the unit.
            args["unabbreviate"] = False
        node = call.node(**args)
        if isinstance(node, exp.DateTrunc):
            placed(node.args["unit"], arguments[0].meta["start"])
        return node

    def count(self) -> exp.Expression:
        """The argument of count: `*`, or an expression, optionally DISTINCT."""
        place = self.start
        if self.take("*"):
            self.expect(")")
            self.nested -= 1
            return exp.Count(this=placed(exp.Star(), place))
        distinct = self.take("DISTINCT")
        if self.word == "*":
            self.refuse("count(DISTINCT *)", place)
        if self.peek() == "." and self.peek(2) == "*":
            self.refuse("count of all columns of a stream", place)
        arguments = self.arguments("count")
        if not arguments:
            self.fail(BadSyntax, "count takes * or an expression", place)
        if len(arguments) > 1:
            self.refuse("count of several expressions", place)
        return exp.Count(this=placed(exp.Distinct(expressions=arguments), place) if distinct else arguments[0])

    def cast(self) -> exp.Expression:
        inner = self.expression()
        self.expect("AS", "and a type")
        to = self.type()
        if self.word == "FORMAT":
            self.refuse("CAST ... FORMAT")
        self.expect(")")
        self.nested -= 1
        return exp.Cast(this=inner, to=to)

    def extract(self) -> exp.Expression:
        place = self.start
        if self.word != STRING and not self.is_word():
            self.unexpected("a unit of time")
        unit = self.advance().text.upper()
        if not (unit.isascii() and unit.isidentifier()):
            self.fail(BadSyntax, "EXTRACT takes a unit of time", place)
        self.expect("FROM", "in EXTRACT")
        inner = self.expression()
        self.expect(")")
        self.nested -= 1
        return exp.Extract(this=placed(exp.Var(this=unit), place), expression=inner)

    def exists(self) -> exp.Expression:
        inner = self.subquery()
        self.expect(")")
        self.nested -= 1
        return exp.Exists(this=inner)

    def subquery(self) -> exp.Expression:
        """A query inside an expression; overridden by the grammar of queries."""
        return self.unexpected("an expression")
