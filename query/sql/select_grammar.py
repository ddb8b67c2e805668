"""The grammar of SELECT, its clauses, and set operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp

from promising.errors import BadSyntax, Unsupported
from promising.query.sql import nodes
from promising.query.sql.call_grammar import Calls
from promising.query.sql.expression_grammar import MATCHES
from promising.query.sql.token_cursor import END, HINT, NUMBER, QUOTED, STRING, placed
from promising.query.sql.words import keyword

T = TypeVar("T")

_UNION, _INTERSECT = range(2)  # precedence levels of set operators; a higher one binds tighter

SETS: dict[str, tuple[int, type[exp.SetOperation]]] = {
    "UNION": (_UNION, exp.Union),
    "EXCEPT": (_UNION, exp.Except),
    "INTERSECT": (_INTERSECT, exp.Intersect),
}
_JOINS = ("LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF", "POSITIONAL", "STRAIGHT_JOIN")
_AFTER_STREAM = ("TABLESAMPLE", "SAMPLE", "PIVOT", "UNPIVOT", "MATCH_RECOGNIZE", "LATERAL", "FOR", "INTO")
_AT_THE_END = ("QUALIFY", "OFFSET", "FETCH", "INTO", "FOR", "LOCK", "SAMPLE", "USING", "MINUS")
_CLAUSES = ("WITH", "FADE", "WINDOW", "BUDGET", "LIMIT", "PREFERENCE")
_NO_ALIAS = frozenset((*SETS, *_CLAUSES, *_JOINS, *_AFTER_STREAM, *_AT_THE_END))
"""Words that are not an alias after a stream's name, except after AS."""

_PLAIN = {"FROM": "FROM", "WHERE": "WHERE", "GROUP": "GROUP BY", "HAVING": "HAVING", "ORDER": "ORDER BY"}
_NAMES = {
    **{"from_": "FROM", "where": "WHERE", "group": "GROUP BY", "having": "HAVING", "order": "ORDER BY"},
    **{"preference": "PREFERENCE", "target": "ERROR", "fade": "FADE FACTOR", "half_life": "FADE HALF LIFE"},
    **{"window": "WINDOW", "budget": "BUDGET"},
    **{"limit_by": "LIMIT n BY", "limit": "LIMIT"},
}


class Queries(Calls):
    def combined(self, floor: int = _UNION) -> exp.Expression:
        """Queries and set operators, left to right; INTERSECT binds tighter than the others."""
        start = self.start
        left = self.branch()
        while self.word in SETS and SETS[self.word][0] >= floor:
            level, kind = SETS[self.word]
            word = self.advance().start
            distinct = not self.take("ALL")
            if distinct:
                self.take("DISTINCT")
            if self.word in ("BY", "CORRESPONDING"):
                self.refuse("UNION BY NAME" if self.word == "BY" else self.word, word)
            left = placed(kind(this=left, expression=self.combined(level + 1), distinct=distinct), start)
            left.meta["word"] = word
        return left

    def branch(self) -> exp.Expression:
        """One SELECT, or a query in parentheses."""
        start = self.start
        if self.take("("):
            self.inside()
            node = self.combined()
            self.expect(")")
            self.nested -= 1
            if self.word in _PLAIN or self.word in _CLAUSES:
                self.misplaced(f"{self.word} after a query in parentheses: each SELECT has its own clauses")
            return node
        if self.word == "WITH":
            self.refuse("WITH before a query (a common table expression)")
        if self.word != "SELECT":
            self.unexpected("SELECT")
        return placed(self.select(), start)

    def select(self) -> exp.Expression:
        """A SELECT: SQL's clauses in their order, then ours in any order."""
        start = self.advance().start
        word, distinct = self.start, False
        if self.word == "ALL":
            self.refuse("SELECT ALL")
        if self.take("DISTINCT"):
            distinct = True
            if self.word == "ON":
                self.refuse("SELECT DISTINCT ON", word)
        if self.word == "TOP" and self.peek() == NUMBER:
            self.refuse("TOP")
        args: dict[str, object] = {"expressions": self.several(self.projection)}
        if distinct:
            args["distinct"] = True
        if self.word != "FROM":
            self.refuse_end()
            ends = self.word in (END, ";") or (self.word == ")" and self.nested > 0)
            if ends or self.word in _PLAIN or self.word in _CLAUSES or self.word in SETS:
                self.refuse("a query without FROM", start)
            self.unexpected(", or FROM")
        self.sources(args)
        place = self.start
        if self.take("WHERE"):
            args["where"] = placed(exp.Where(this=self.expression()), place)
        place = self.start
        if self.take("GROUP"):
            args["group"] = placed(self.group(), place)
        place = self.start
        if self.take("HAVING"):
            args["having"] = placed(exp.Having(this=self.expression()), place)
        place = self.start
        if self.take("ORDER"):
            args["order"] = placed(self.order(), place)
        while self.clause(args):
            pass
        if self.word in _PLAIN:
            given = [_NAMES[key] for key in args if key in _NAMES]
            wrong = "is given twice" if _PLAIN[self.word] in given else f"comes before {given[-1]}"
            self.misplaced(f"{_PLAIN[self.word]} {wrong}")
        self.refuse_end()
        node = nodes.Select(**args)
        if distinct:
            node.meta["word"] = word
        return node

    def subquery(self) -> exp.Expression:
        start, preferring = self.start, self.preferring
        if self.word == "WITH":
            self.refuse("WITH before a query (a common table expression)")
        if self.word != "SELECT":
            self.unexpected("SELECT")
        self.preferring = False
        node = placed(self.select(), start)
        self.preferring = preferring
        if self.word in SETS:
            self.refuse(f"{self.word} inside of EXISTS")
        return node

    def several(self, one: Callable[[], T]) -> list[T]:
        found = [one()]
        while self.take(","):
            found.append(one())
        return found

    def projection(self) -> exp.Expression:
        """An item of the select list: `*`, `stream.*`, or an expression with an optional name."""
        start = self.start
        if self.take("*"):
            self.refuse_star()
            return placed(exp.Star(), start)
        if self.peek() == "." and self.peek(2) == "*" and self.at_name():
            table = self.identifier()
            self.advance()
            star = placed(exp.Star(), self.advance().start)
            self.refuse_star()
            return placed(exp.Column(this=star, table=table), start)
        node = self.expression()
        if self.take("AS"):
            return placed(exp.Alias(this=node, alias=self.name("a name")), start)
        if self.at_name() and not (self.word == "INTO" and self.peek() not in (",", "FROM")):
            return placed(exp.Alias(this=node, alias=self.identifier()), start)
        return node

    def refuse_star(self) -> None:
        """Fails at what other systems allow after a star."""
        if self.word in ("EXCEPT", "EXCLUDE", "REPLACE", "RENAME", "ILIKE", "LIKE"):
            self.refuse(f"* {self.word}")
        if self.word == "AS" or self.at_name():
            self.fail(BadSyntax, "* has no other name")

    def sources(self, args: dict[str, object]) -> None:
        place = self.advance().start
        args["from_"] = placed(exp.From(this=self.stream()), place)
        joins: list[exp.Expression] = []
        while True:
            place, comma = self.start, self.take(",")
            if not comma and not self.joined():
                break
            if joins:
                self.refuse("a query over more than two streams")
            stream = self.stream()
            on = None
            if not comma:
                if self.word == "USING":
                    self.refuse("JOIN ... USING")
                self.expect("ON", "and a condition")
                on = self.expression()
            joins.append(placed(exp.Join(this=stream, on=on), place))
        if joins:
            args["joins"] = joins

    def joined(self) -> bool:
        """Whether an inner join follows; if so, consumes its keywords."""
        if self.word in _JOINS:
            words = [self.peek(i) for i in range(3)]
            self.refuse(" ".join(words[: words.index("JOIN") + 1]) if "JOIN" in words else self.word)
        if self.take("INNER"):
            self.expect("JOIN")
            return True
        return self.take("JOIN")

    def stream(self) -> exp.Table:
        start = self.start
        if self.word == "(":
            self.refuse("a subquery" if self.peek() in ("SELECT", "WITH", "VALUES", "FROM") else "( ) in FROM")
        if self.word in ("LATERAL", "VALUES", "UNNEST", "TABLE", "ONLY") and self.peek() in ("(", "SELECT", QUOTED):
            self.refuse(f"{self.word} in FROM")
        if self.word == STRING:
            self.refuse("a file in FROM")
        node = exp.Table(this=self.name("the name of a stream"))
        if self.word == ".":
            self.refuse("a stream's name of several parts", start)
        if self.word == "(":
            self.refuse("a function in FROM", start)
        alias = None
        if self.take("AS"):
            alias = self.name("an alias")
        elif self.word == QUOTED or (self.word not in _NO_ALIAS and self.at_name()):
            alias = self.identifier()
        if alias is not None:
            if self.word == "(":
                self.refuse("a list of columns after an alias")
            node.set("alias", placed(exp.TableAlias(this=alias), alias.meta["start"]))
        if self.word in _AFTER_STREAM:
            self.refuse(self.word)
        return placed(node, start)

    def group(self) -> exp.Group:
        self.expect("BY")
        if self.word in ("ALL", "DISTINCT"):
            self.refuse(f"GROUP BY {self.word}")
        return exp.Group(expressions=self.several(self.grouping))

    def grouping(self) -> exp.Expression:
        if self.word == "GROUPING" and self.peek() == "SETS":
            self.refuse("GROUPING SETS")
        node = self.expression()
        if self.word == "WITH" and self.peek() in ("ROLLUP", "CUBE", "TOTALS"):
            self.refuse(f"GROUP BY ... WITH {self.peek()}")
        return node

    def order(self) -> exp.Order:
        self.expect("BY")
        if self.word == "ALL":
            self.refuse("ORDER BY ALL")
        return exp.Order(expressions=self.several(self.ordered))

    def ordered(self) -> exp.Expression:
        """An item of ORDER BY. Nulls are last unless NULLS FIRST is given, in either direction."""
        start = self.start
        node = self.expression()
        if self.word == "USING":
            self.refuse("ORDER BY ... USING")
        desc = self.take("DESC")
        if not desc:
            self.take("ASC")
        first = False
        if self.take("NULLS"):
            if self.word not in ("FIRST", "LAST"):
                self.unexpected("FIRST or LAST")
            first = self.word == "FIRST"
            self.advance()
        return placed(exp.Ordered(this=node, desc=desc, nulls_first=first), start)

    def refuse_end(self) -> None:
        """Fails, by name, at what other systems allow at the end of a query."""
        if self.word in _AT_THE_END:
            self.refuse(self.word)
        if self.word == HINT:
            self.refuse("a hint")
        if self.word == "PREFERENCE":
            self.fail(BadSyntax, "PREFERENCE is written WITH PREFERENCE")

    # --- our clauses ----------------------------------------------------------------------------------------------

    def clause(self, args: dict[str, object]) -> bool:
        """PREFERENCE, FADE, WINDOW, BUDGET, ERROR, LIMIT BY or LIMIT, each once; False if none follows."""
        start, word, following = self.start, self.word, self.peek()
        if word == "LIMIT":
            self.limits(args)
            return True
        if word == "WITH":
            key = {"PREFERENCE": "preference", "ERROR": "target"}.get(following)
            if key is None:
                self.advance()
                self.unexpected("PREFERENCE or ERROR after WITH")
        elif word == "FADE":
            key = "half_life" if following == "HALF" else "fade"
        elif word in ("WINDOW", "BUDGET"):
            key = word.lower()
        else:
            return False
        if key in args:
            self.misplaced(f"{_NAMES[key]} is given twice", start)
        if word == "FADE" and not {"fade", "half_life"}.isdisjoint(args):
            self.misplaced("FADE FACTOR and FADE HALF LIFE exclude each other: leave one of them out", start)
        if word == "WINDOW" and self.peek(2) == "AS":
            self.refuse("a named WINDOW")
        self.advance()
        if word == "WITH":
            self.advance()
        if key == "fade":
            if self.word != "FACTOR":
                self.unexpected("FACTOR or HALF LIFE")
            self.advance()
            args[key] = self.number("a number after FADE FACTOR")
        elif key == "half_life":
            self.advance()
            self.expect("LIFE")
            args[key] = self.span("FADE HALF LIFE")
        elif key in ("window", "budget"):
            args[key] = self.span(word)
        else:
            args[key] = placed(self.preference() if key == "preference" else self.target(), start)
        return True

    def preference(self) -> exp.Expression:
        direction = "DESC"
        if self.word in ("ASC", "DESC") or (self.word == "WEIGHTED" and self.weighs()):
            direction = keyword(self.advance().text)
        self.preferring = True
        expressions = self.several(self.expression)
        self.preferring = False
        if self.word in ("ASC", "DESC"):
            self.misplaced(f"{self.word} comes before the expressions of PREFERENCE")
        return nodes.Preference(direction=direction, expressions=expressions)

    def weighs(self) -> bool:
        """Whether WEIGHTED is the direction, not a column: then an expression must follow."""
        if self.peek() == "NOT":
            return self.peek(2) not in MATCHES
        return self.operand_follows() or self.peek() in ("(", "-", ";", END)

    def target(self) -> exp.Expression:
        error = self.number("a number after ERROR")
        confidence = self.number("a number after CONFIDENCE") if self.take("CONFIDENCE") else None
        return nodes.ErrorTarget(error=error, confidence=confidence)

    def limits(self, args: dict[str, object]) -> None:
        """`LIMIT n BY column, ...` or `LIMIT m`, in this order."""
        start = self.advance().start
        if self.word in ("ALL", "NULL", "("):
            self.refuse("LIMIT ALL" if self.word == "ALL" else "LIMIT of an expression")
        number = self.number("a number after LIMIT")
        if self.word in ("%", "PERCENT"):
            self.refuse("LIMIT of a percentage")
        if self.word == ",":
            self.refuse("LIMIT with an offset")
        key = "limit_by" if self.take("BY") else "limit"
        if key in args:
            self.misplaced(f"{_NAMES[key]} is given twice", start)
        if key == "limit":
            args[key] = placed(exp.Limit(expression=number), start)
            return
        if "limit" in args:
            self.misplaced("LIMIT n BY comes before LIMIT, which counts the rows that are left", start)
        args[key] = placed(nodes.LimitBy(this=number, expressions=self.several(self.limited_by)), start)

    def limited_by(self) -> exp.Expression:
        start, node = self.start, self.expression()
        if not isinstance(node, exp.Column):
            self.fail(
                Unsupported,
                "LIMIT n BY takes columns; name the expression in the select list (... AS name), then LIMIT n BY name",
                start,
            )
        return node
