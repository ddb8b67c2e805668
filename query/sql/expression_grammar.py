"""The grammar of expressions, by precedence climbing.

Ascending precedence, as in DuckDB and Postgres: OR, AND, NOT, IS, comparisons, BETWEEN IN LIKE, ||, + -, * / %, unary
minus, ::. Comparisons and BETWEEN, IN, LIKE do not chain. Parentheses leave no node.
"""

from __future__ import annotations

from sqlglot import exp

from promising.errors import BadSyntax
from promising.query.sql import nodes, tokenizer
from promising.query.sql.literal_grammar import Literals
from promising.query.sql.token_cursor import DEEPEST, END, NUMBER, QUOTED, STRING, leaf, placed
from promising.query.sql.words import CALLABLE, LITERALS, RESERVED

OR, AND, NOT, IS, COMPARE, MATCH, JOIN, SUM, PRODUCT, MINUS, CAST, ATOM = range(12)
"""Precedence levels; a higher one binds tighter."""

_BINARY: dict[str, tuple[int, type[exp.Expression]]] = {
    **dict.fromkeys(("=", "=="), (COMPARE, exp.EQ)),
    **dict.fromkeys(("<>", "!="), (COMPARE, exp.NEQ)),
    "<": (COMPARE, exp.LT),
    "<=": (COMPARE, exp.LTE),
    ">": (COMPARE, exp.GT),
    ">=": (COMPARE, exp.GTE),
    "||": (JOIN, exp.DPipe),
    "+": (SUM, exp.Add),
    "-": (SUM, exp.Sub),
    **dict.fromkeys(("*", "×"), (PRODUCT, exp.Mul)),
    "/": (PRODUCT, exp.Div),
    "%": (PRODUCT, exp.Mod),
}
MATCHES = ("IN", "LIKE", "ILIKE", "BETWEEN")
_LEVELS: dict[str, int] = {
    **{sign: level for sign, (level, _) in _BINARY.items()},
    **{"OR": OR, "AND": AND, "IS": IS, "::": CAST, "NOT": MATCH},
    **dict.fromkeys(MATCHES, MATCH),
}

_PARAMETER = "a parameter"
_REFUSED_SIGNS: dict[str, str] = {
    **{sign: f"the operator {sign}" for sign in ("^", "**", "//", "&", "|", "<<", ">>", "~", "!~", "!", "<=>")},
    **{"->": "-> (lambdas and JSON)", "->>": "->> (JSON)", ":": "a path into JSON", "#": "the operator #"},
    **{":=": "a named argument", "=>": "a named argument", "[": "an array", "{": "a struct"},
    **{"?": _PARAMETER, "@": _PARAMETER, "$": _PARAMETER},
}
_REFUSED_WORDS: dict[str, str] = {
    **{word: word for word in ("COLLATE", "REGEXP", "RLIKE", "GLOB", "OVERLAPS", "XOR", "DIV")},
    **{"SIMILAR": "SIMILAR TO", "AT": "AT TIME ZONE"},
}
_REFUSED_STARTS = _REFUSED_SIGNS | {":": _PARAMETER, "#": _PARAMETER}
ENDS = frozenset({",", ")", "FROM", "AS", ";", END})  # no operator precedes these, so a word before them is a name

_BOUNDS = ("LOWER", "UPPER")
_ESTIMATES = ("COUNT", *_BOUNDS, "SUM", "AVG", "MIN", "MAX", "QUANTILE", "DISTINCT", "FREQUENCY")


class Scalars(Literals):
    preferring = False  # whether inside a PREFERENCE: only there are estimates allowed
    nested = 0  # open parentheses, calls and the like
    recursion = 0  # nested calls of `expression`

    def expression(self, floor: int = OR) -> exp.Expression:
        """An expression whose operators bind at least as tightly as `floor`."""
        if self.words[self.at + 1] in ENDS and (lone := self.lone()) is not None:
            return lone
        self.recursion += 1
        # A tree of the allowed height, with as few parentheses as possible, needs no more than this.
        if self.recursion > 3 * DEEPEST:
            self.too_deep()
        start = self.start
        left = self.prefix(floor)
        chained = ATOM
        while (level := _LEVELS.get(self.word, -1)) >= floor:
            if level == chained:
                self.fail(BadSyntax, f"{self.word} after another comparison: use parentheses, or AND")
            if level <= AND:
                left = placed(self.connected(left, level), start)
            elif level == MATCH:
                if self.word == "NOT" and self.peek() not in MATCHES:
                    break
                left = placed(self.match(left, start), start)
            elif level == IS:
                left = placed(self.test(left, start), start)
            elif level == CAST:
                self.advance()
                left = placed(exp.Cast(this=left, to=self.type()), start)
            else:
                kind = _BINARY[self.word][1]
                self.advance()
                left = placed(kind(this=left, expression=self.expression(level + 1)), start)
            if level in (COMPARE, MATCH):
                chained = level
        self.refuse_infix()
        self.recursion -= 1
        return left

    def lone(self) -> exp.Expression | None:
        """The next token, if it is an expression by itself: a column, a number or a string."""
        kind, text, start, _ = self.tokens[self.at]
        if kind == tokenizer.WORD and self.word not in RESERVED:
            self.at += 1
            self.word = self.words[self.at]
            name = leaf(exp.Identifier, {"this": text, "quoted": False}, start)
            name.parent = node = leaf(exp.Column, {"this": name}, start)
            name.arg_key = "this"
            return node
        return self.literal() if kind in (tokenizer.NUMBER, tokenizer.STRING) else None

    def inside(self) -> None:
        """Enters a parenthesis, call or the like; the caller decrements `self.nested` when it closes."""
        self.nested += 1
        if self.nested > DEEPEST:
            self.too_deep()

    def too_deep(self) -> None:
        self.fail(BadSyntax, f"nested deeper than {DEEPEST} levels")

    def refuse_infix(self) -> None:
        """Fails at an operator of other systems."""
        if (sign := _REFUSED_SIGNS.get(self.word)) is not None:
            self.refuse(sign)
        if self.word in _REFUSED_WORDS and self.peek() not in ENDS:
            self.refuse(_REFUSED_WORDS[self.word])
        if self.word in ("ISNULL", "NOTNULL"):
            self.refuse(self.word)

    def connected(self, left: exp.Expression, level: int) -> exp.Expression:
        kind, word = (exp.And, "AND") if level == AND else (exp.Or, "OR")
        found = list(nodes.operands(left)) if type(left) is kind else [left]
        while self.take(word):
            right = self.expression(level + 1)
            found += nodes.operands(right) if type(right) is kind else [right]
        return nodes.connect(kind, found)

    def match(self, left: exp.Expression, start: int) -> exp.Expression:
        """[NOT] BETWEEN, IN, LIKE or ILIKE, and its operands."""
        negated = self.take("NOT")
        word, place = self.word, self.advance().start
        node: exp.Expression
        if word == "BETWEEN":
            if self.word in ("SYMMETRIC", "ASYMMETRIC") and self.operand_follows():
                self.refuse(f"BETWEEN {self.word}", place)
            low = self.expression(MATCH + 1)
            self.expect("AND", "and the upper end of BETWEEN")
            node = exp.Between(this=left, low=low, high=self.expression(MATCH + 1))
        elif word == "IN":
            if not self.take("("):
                self.refuse("IN without a list in parentheses", place)
            self.inside()
            node = exp.In(this=left, expressions=self.listed("a value"))
        else:
            if self.word in ("ANY", "ALL", "SOME") and self.peek() == "(":
                self.refuse(f"{word} {self.word}", place)
            node = (exp.Like if word == "LIKE" else exp.ILike)(this=left, expression=self.expression(MATCH + 1))
            if self.word == "ESCAPE" and self.peek() not in ENDS:
                self.refuse(f"{word} ... ESCAPE")
        return exp.Not(this=placed(node, start)) if negated else node

    def test(self, left: exp.Expression, start: int) -> exp.Expression:
        place = self.advance().start
        negated = self.take("NOT")
        if self.word not in ("NULL", "TRUE", "FALSE"):
            if self.word in ("DISTINCT", "UNKNOWN", "JSON", "NORMALIZED", "OF"):
                self.refuse(f"IS {self.word}" + (" FROM" if self.word == "DISTINCT" else ""), place)
            self.unexpected("NULL, TRUE or FALSE after IS")
        node = placed(exp.Is(this=left, expression=self.constant()), start)
        return exp.Not(this=node) if negated else node

    def prefix(self, floor: int) -> exp.Expression:
        """The start of an expression: NOT, a sign, or an atom."""
        start = self.start
        if self.word == "NOT":
            if floor > NOT:
                self.fail(BadSyntax, "NOT needs parentheses here")
            self.advance()
            return placed(exp.Not(this=self.expression(NOT)), start)
        if self.take("-"):
            return placed(exp.Neg(this=self.expression(MINUS)), start)
        if self.take("+") and self.word != NUMBER:
            self.unexpected("a number after +")
        return self.atom()

    def atom(self) -> exp.Expression:
        """An expression that never needs parentheses."""
        word, following = self.word, self.peek()
        if word in (NUMBER, STRING):
            return self.literal()
        if word == "(":
            return self.parenthesis()
        if word in ("NULL", "TRUE", "FALSE"):
            return self.constant()
        if word == "CASE":
            return self.case()
        if word in _REFUSED_STARTS:
            self.refuse(_REFUSED_STARTS[word])
        if word == "*":
            self.fail(BadSyntax, "* stands only in the select list and in count(*)")
        if following == "(" and self.is_word() and (word not in RESERVED or word in CALLABLE):
            return self.call()
        if following == STRING and word == "TIMESTAMP":
            return self.timestamp()
        if following in (STRING, NUMBER) and word == "INTERVAL":
            return self.interval()
        if following == STRING and word in LITERALS:
            self.refuse(f"a literal that begins with {self.shown()}")
        if not self.at_name():
            if word == "SELECT":
                self.refuse("a subquery")
            self.unexpected("an expression")
        return self.column()

    def parenthesis(self) -> exp.Expression:
        start = self.advance().start
        self.inside()
        self.refuse_query()
        inner = self.expression()
        if self.word == ",":
            self.refuse("a row of several values", start)
        self.expect(")")
        self.nested -= 1
        return inner

    def refuse_query(self) -> None:
        if self.word in ("SELECT", "WITH", "FROM"):
            self.refuse("a subquery")

    def operand_follows(self) -> bool:
        """Whether an expression begins after the next word; if not, that word is a column."""
        following = self.peek()
        return following in (NUMBER, STRING, QUOTED) or (following.isidentifier() and following not in _LEVELS)

    def listed(self, what: str) -> list[exp.Expression]:
        """Expressions separated by commas, and the closing parenthesis."""
        self.refuse_query()
        if self.word == ")":
            self.unexpected(what)
        found = [self.expression()]
        while self.take(","):
            found.append(self.expression())
        if self.word != ")":
            self.unexpected(", or )")
        self.advance()
        self.nested -= 1
        return found

    def column(self) -> exp.Expression:
        """`column`, `stream.column` or an estimate."""
        start, of_summary = self.start, (self.word, self.peek(2)) == ("SUMMARY", "ESTIMATE")
        of_confidence = self.word == "SUMMARY"
        first = self.identifier()
        if self.word == "(":
            self.refuse("a function with its name in quotes", start)
        if not self.take("."):
            return placed(exp.Column(this=first), start)
        if self.word == "*":
            self.fail(BadSyntax, "* stands only in the select list and in count(*)")
        # After a dot even a reserved word is a name.
        if self.word != QUOTED and not self.is_word():
            self.unexpected("a name after the dot")
        confidence = of_confidence and self.word == "CONFIDENCE"
        second = self.identifier()
        if self.word == "(" and confidence:
            return self.estimate(start, "SUMMARY.Confidence", "CONFIDENCE", None)
        if self.word == "(":
            self.refuse(f"a function of '{first.name}'", start)
        if self.word == ".":
            if not of_summary:
                self.refuse("a name of more than two parts", start)
            return self.estimate_of(start)
        return placed(exp.Column(this=second, table=first), start)

    def estimate_of(self, start: int) -> exp.Expression:
        """`SUMMARY.Estimate.` and what is estimated, or a bound of it. `Lower` and `Upper` alone are those of Count."""
        self.advance()
        what = self.word
        if not self.is_word():
            self.unexpected("Count, Sum, Avg, Min, Max, Quantile, Distinct, Frequency, Lower or Upper")
        if what not in _ESTIMATES:
            self.refuse(f"SUMMARY.Estimate.{self.shown()}", start)
        self.advance()
        name, bound = f"SUMMARY.Estimate.{what.title()}", None
        if what not in _BOUNDS and self.take("."):
            if self.word not in _BOUNDS:
                self.unexpected("Lower or Upper")
            bound = self.word
            name += f".{bound.title()}"
            self.advance()
            if what == "COUNT":
                what, bound = bound, None
        return self.estimate(start, name, what, bound)

    def estimate(self, start: int, name: str, what: str, bound: str | None) -> exp.Expression:
        if not self.preferring:
            self.refuse(f"{name} outside of PREFERENCE", start)
        self.expect("(", "and a column")
        self.inside()
        place = self.start
        inner = self.expression()
        if not isinstance(inner, exp.Column):
            self.fail(BadSyntax, f"{name} takes a column", place)
        rank = None
        if what == "QUANTILE":
            self.expect(",", "and a number from 0 to 1")
            rank = self.number("a number from 0 to 1")
        self.expect(")")
        self.nested -= 1
        return placed(nodes.SummaryEstimate(this=inner, what=what, bound=bound, rank=rank), start)

    def call(self) -> exp.Expression:
        """A word before a parenthesis, and the arguments; overridden by the grammar of calls."""
        return self.unexpected("an expression")

    def case(self) -> exp.Expression:
        start = self.advance().start
        self.inside()
        this = None if self.word == "WHEN" else self.expression()
        ifs: list[exp.Expression] = []
        while self.word == "WHEN":
            place = self.advance().start
            condition = self.expression()
            self.expect("THEN")
            ifs.append(placed(exp.If(this=condition, true=self.expression()), place))
        if not ifs:
            self.unexpected("WHEN")
        default = self.expression() if self.take("ELSE") else None
        self.expect("END", "of CASE")
        self.nested -= 1
        return placed(exp.Case(this=this, ifs=ifs, default=default), start)
