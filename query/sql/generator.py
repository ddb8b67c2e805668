"""Generates the canonical text: keywords in upper case, functions in lower, only the necessary parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.generator import Generator

from promising.errors import Unsupported
from promising.query.sql import nodes
from promising.query.sql.expression_grammar import AND, ATOM, COMPARE, IS, JOIN, MATCH, MINUS, NOT, OR, PRODUCT, SUM
from promising.query.sql.select_grammar import SETS
from promising.query.sql.words import CALL_BY_NODE, RESERVED, keyword

_PLAIN = re.compile(r"[^\W\d]\w*")

_SIGNS: dict[type[exp.Expression], tuple[str, int]] = {
    exp.EQ: ("=", COMPARE),
    exp.NEQ: ("<>", COMPARE),
    exp.LT: ("<", COMPARE),
    exp.LTE: ("<=", COMPARE),
    exp.GT: (">", COMPARE),
    exp.GTE: (">=", COMPARE),
    exp.DPipe: ("||", JOIN),
    exp.Add: ("+", SUM),
    exp.Sub: ("-", SUM),
    exp.Mul: ("*", PRODUCT),
    exp.Div: ("/", PRODUCT),
    exp.Mod: ("%", PRODUCT),
}
_LEVELS: dict[type[exp.Expression], int] = {kind: level for kind, (_, level) in _SIGNS.items()} | {
    exp.Or: OR,
    exp.And: AND,
    exp.Not: NOT,
    exp.Is: IS,
    exp.Between: MATCH,
    exp.In: MATCH,
    exp.Like: MATCH,
    exp.ILike: MATCH,
    exp.Neg: MINUS,
}
_SETS: dict[type[exp.Expression], tuple[str, int]] = {kind: (word, level) for word, (level, kind) in SETS.items()}
_SPANS = {"fade": "FADE FACTOR", "half_life": "FADE HALF LIFE", "window": "WINDOW", "budget": "BUDGET"}
_NEGATED = (exp.Is, exp.Between, exp.In, exp.Like, exp.ILike)  # nodes that contain their NOT: `a NOT IN (1)`


def level(node: exp.Expression) -> int:
    if isinstance(node, exp.Not) and isinstance(node.this, _NEGATED):
        node = node.this
    return _LEVELS.get(type(node), ATOM)


class PromisingGenerator(Generator):
    """Generates trees of this dialect only: a foreign node is Unsupported.

    Trees that the parser can produce round-trip: no Paren, AND and OR built by `nodes.connect`, names quoted as needed.
    """

    def generate(self, expression: exp.Expr, copy: bool = True) -> str:
        return self.sql(expression)

    def sql(self, expression: Any, key: str | None = None, comment: bool = True) -> str:
        node = expression.args.get(key) if key else expression
        if node is None:
            return ""
        kind = type(node)
        if (form := _FORMS.get(kind)) is not None:
            return form(self, node)
        if kind in _SIGNS:
            return self.binary_form(node)
        if kind in CALL_BY_NODE:
            return self.call_form(node)
        raise Unsupported(f"{kind.__name__} has no text in this language")

    def listed(self, found: Any) -> str:
        return ", ".join(self.sql(node) for node in found)

    def operand(self, node: exp.Expression, floor: int) -> str:
        """The text of a node, in parentheses if its precedence is below `floor`."""
        text = self.sql(node)
        return f"({text})" if level(node) < floor else text

    # --- names and literals ---------------------------------------------------------------------------------------

    def name_form(self, node: exp.Identifier, after_dot: bool = False) -> str:
        """A name, quoted if it was or must be."""
        text: str = node.this
        plain = _PLAIN.fullmatch(text) is not None and (after_dot or keyword(text) not in RESERVED)
        if plain and not node.args.get("quoted"):
            return text
        return '"' + text.replace('"', '""') + '"'

    def column_form(self, node: exp.Column) -> str:
        table = node.args.get("table")
        if table is None:
            return self.sql(node.this)
        last = "*" if isinstance(node.this, exp.Star) else self.name_form(node.this, after_dot=True)
        return f"{self.name_form(table)}.{last}"

    def literal_form(self, node: exp.Literal) -> str:
        text: str = node.this
        return "'" + text.replace("'", "''") + "'" if node.is_string else text

    def interval_form(self, node: exp.Interval) -> str:
        return f"INTERVAL {self.sql(node.this)} {self.sql(node.args['unit'])}"

    def type_form(self, node: exp.DataType) -> str:
        return str(node.this.value)

    # --- expressions ----------------------------------------------------------------------------------------------

    def binary_form(self, node: exp.Expression) -> str:
        sign, at = _SIGNS[type(node)]
        left = at + 1 if at == COMPARE else at
        return f"{self.operand(node.this, left)} {sign} {self.operand(node.expression, at + 1)}"

    def connected_form(self, node: exp.Expression) -> str:
        word, at = ("AND", AND) if isinstance(node, exp.And) else ("OR", OR)
        return f" {word} ".join(self.operand(part, at + 1) for part in nodes.operands(node))

    def not_form(self, node: exp.Not) -> str:
        if isinstance(node.this, _NEGATED):
            return self.match_form(node.this, "NOT ")
        return f"NOT {self.operand(node.this, NOT)}"

    def match_form(self, node: exp.Expression, negation: str = "") -> str:
        if node.args.get("negate"):
            negation = "" if negation else "NOT "
        if isinstance(node, exp.Is):
            return f"{self.operand(node.this, IS)} IS {negation}{self.sql(node.expression)}"
        left = self.operand(node.this, MATCH + 1)
        if isinstance(node, exp.In):
            return f"{left} {negation}IN ({self.listed(node.expressions)})"
        if isinstance(node, exp.Between):
            low, high = self.operand(node.args["low"], MATCH + 1), self.operand(node.args["high"], MATCH + 1)
            return f"{left} {negation}BETWEEN {low} AND {high}"
        word = "LIKE" if isinstance(node, exp.Like) else "ILIKE"
        return f"{left} {negation}{word} {self.operand(node.expression, MATCH + 1)}"

    def minus_form(self, node: exp.Neg) -> str:
        inner = self.operand(node.this, MINUS)
        # Two dashes would start a comment.
        return f"- {inner}" if inner.startswith("-") else f"-{inner}"

    def cast_form(self, node: exp.Cast) -> str:
        to = node.args["to"]
        if to.this is exp.DType.TIMESTAMP and isinstance(node.this, exp.Literal) and node.this.is_string:
            return f"TIMESTAMP {self.sql(node.this)}"
        return f"CAST({self.sql(node.this)} AS {self.sql(to)})"

    def case_form(self, node: exp.Case) -> str:
        parts = ["CASE"]
        if node.this is not None:
            parts.append(self.sql(node.this))
        parts += [f"WHEN {self.sql(one.this)} THEN {self.sql(one.args['true'])}" for one in node.args["ifs"]]
        if node.args.get("default") is not None:
            parts.append(f"ELSE {self.sql(node.args['default'])}")
        return " ".join([*parts, "END"])

    def count_form(self, node: exp.Count) -> str:
        return f"count({self.sql(node.this)})"

    def call_form(self, node: exp.Expression) -> str:
        call = CALL_BY_NODE[type(node)]
        args = [node.args[key] for key in call.args if node.args.get(key) is not None]
        args += node.args.get(call.rest) or [] if call.rest else []
        texts = [self.sql(arg) for arg in args]
        if isinstance(node, exp.DateTrunc):
            texts[0] = texts[0].lower()
        return f"{call.name}({', '.join(texts)})"

    def anonymous_form(self, node: exp.Anonymous) -> str:
        name: str = node.this
        return f"{name.lower() if name.isascii() else name}({self.listed(node.expressions)})"

    def estimate_form(self, node: nodes.SummaryEstimate) -> str:
        if node.args["what"] == "CONFIDENCE":
            return f"SUMMARY.Confidence({self.sql(node.this)})"
        bound = f".{node.args['bound'].title()}" if node.args.get("bound") else ""
        rank = f", {self.sql(node.args['rank'])}" if node.args.get("rank") else ""
        return f"SUMMARY.Estimate.{node.args['what'].title()}{bound}({self.sql(node.this)}{rank})"

    # --- queries --------------------------------------------------------------------------------------------------

    def select_form(self, node: exp.Select) -> str:
        args = node.args
        distinct = "DISTINCT " if args.get("distinct") else ""
        parts = [f"SELECT {distinct}{self.listed(node.expressions)}", f"FROM {self.sql(args['from_'].this)}"]
        for join in args.get("joins") or ():
            if join.args.get("on") is None:
                parts[-1] += f", {self.sql(join.this)}"
            else:
                parts.append(f"JOIN {self.sql(join.this)} ON {self.sql(join.args['on'])}")
        if args.get("where") is not None:
            parts.append(f"WHERE {self.sql(args['where'].this)}")
        if args.get("group") is not None:
            parts.append(f"GROUP BY {self.listed(args['group'].expressions)}")
        if args.get("having") is not None:
            parts.append(f"HAVING {self.sql(args['having'].this)}")
        if args.get("order") is not None:
            parts.append(f"ORDER BY {self.listed(args['order'].expressions)}")
        if args.get("preference") is not None:
            parts.append(self.sql(args["preference"]))
        for key, word in _SPANS.items():
            if args.get(key) is not None:
                parts.append(f"{word} {self.sql(args[key])}")
        if args.get("target") is not None:
            parts.append(self.sql(args["target"]))
        if args.get("limit_by") is not None:
            parts.append(self.sql(args["limit_by"]))
        if args.get("limit") is not None:
            parts.append(f"LIMIT {self.sql(args['limit'].expression)}")
        return self.parted(parts)

    def set_form(self, node: exp.SetOperation) -> str:
        word, at = _SETS[type(node)]
        if not node.args.get("distinct"):
            word += " ALL"
        return self.parted([self.branch(node.this, at), word, self.branch(node.expression, at + 1)])

    def branch(self, node: exp.Expression, floor: int) -> str:
        """The text of a query, in parentheses if its precedence is below `floor`."""
        text = self.sql(node)
        return f"({text})" if type(node) in _SETS and _SETS[type(node)][1] < floor else text

    def exists_form(self, node: exp.Exists) -> str:
        return f"EXISTS ({self.sql(node.this)})"

    def parted(self, parts: list[str]) -> str:
        return ("\n" if self.pretty else " ").join(parts)

    def table_form(self, node: exp.Table) -> str:
        alias = node.args.get("alias")
        return self.sql(node.this) if alias is None else f"{self.sql(node.this)} AS {self.sql(alias.this)}"

    def alias_form(self, node: exp.Alias) -> str:
        return f"{self.sql(node.this)} AS {self.sql(node.args['alias'])}"

    def ordered_form(self, node: exp.Ordered) -> str:
        desc = " DESC" if node.args.get("desc") else ""
        return f"{self.sql(node.this)}{desc}{' NULLS FIRST' if node.args.get('nulls_first') else ''}"

    def preference_form(self, node: nodes.Preference) -> str:
        return f"WITH PREFERENCE {node.args['direction']} {self.listed(node.expressions)}"

    def target_form(self, node: nodes.ErrorTarget) -> str:
        confidence = node.args.get("confidence")
        more = "" if confidence is None else f" CONFIDENCE {self.sql(confidence)}"
        return f"WITH ERROR {self.sql(node.args['error'])}{more}"

    def limit_by_form(self, node: nodes.LimitBy) -> str:
        return f"LIMIT {self.sql(node.this)} BY {self.listed(node.expressions)}"

    def span_form(self, node: nodes.Span) -> str:
        unit = node.args.get("unit")
        return self.sql(node.args["amount"]) + (f" {unit}S" if unit else "")

    # --- other statements -----------------------------------------------------------------------------------------

    def stream_form(self, node: nodes.CreateStream) -> str:
        columns = ", ".join(f"{self.sql(one.this)} {self.sql(one.args['kind'])}" for one in node.args["columns"])
        parts = [f"CREATE STREAM {self.created(node)} ({columns})", f"TIMESTAMP BY {self.sql(node.args['time'])}"]
        if node.args.get("lateness") is not None:
            parts.append(f"LATENESS {self.sql(node.args['lateness'])}")
        if node.args.get("keep") is not None:
            parts.append(f"KEEP {self.sql(node.args['keep'])}")
        if node.args.get("max_jump") is not None:
            parts.append(f"MAX JUMP {self.sql(node.args['max_jump'])}")
        return self.parted(parts + self.options(node))

    def summary_form(self, node: nodes.CreateSummary) -> str:
        stream, key, granularity, rate, depth = (
            self.sql(node.args[part]) for part in ("stream", "key", "granularity", "rate", "depth")
        )
        parts = [f"CREATE SUMMARY {self.created(node)} ON {stream} ({key})"]
        if node.text("using"):
            parts.append(f"USING {node.text('using')}")
        if (measures := node.args.get("measures")) is not None:
            none = isinstance(measures, exp.Var)
            parts.append("MEASURES NONE" if none else f"MEASURES ({self.listed(measures)})")
        parts.append(f"WITH GRANULARITY {granularity} AND COLLAPSE({rate}, {depth})")
        if node.text("structure"):
            parts.append(f"STRUCTURE {node.text('structure')}")
        return self.parted(parts + self.options(node))

    def measure_form(self, node: nodes.Measure) -> str:
        column = node.args.get("column")
        return f"{node.text('this')}({self.listed([*([] if column is None else [column]), *node.expressions])})"

    def created(self, node: exp.Expression) -> str:
        return ("IF NOT EXISTS " if node.args.get("exists") else "") + self.sql(node.this)

    def options(self, node: exp.Expression) -> list[str]:
        found = node.args.get("options")
        return [f"OPTIONS ({self.listed(found)})"] if found else []

    def option_form(self, node: nodes.Option) -> str:
        return f"{self.sql(node.this)} = {self.sql(node.args['value'])}"

    def query_form(self, node: nodes.CreateContinuousQuery) -> str:
        return self.parted([f"CREATE CONTINUOUS QUERY {self.created(node)} AS", self.sql(node.args["query"])])

    def alter_form(self, node: nodes.AlterQuery) -> str:
        budget = node.args.get("budget")
        change = "DROP BUDGET" if budget is None else f"SET BUDGET {self.sql(budget)}"
        return f"ALTER QUERY {self.sql(node.this)} {change}"

    def alter_stream_form(self, node: nodes.AlterStream) -> str:
        clauses = {"keep": "KEEP", "watermark": "WATERMARK", "max_jump": "MAX JUMP"}
        (change,) = (f"{word} {self.sql(node.args[one])}" for one, word in clauses.items() if node.args.get(one))
        return f"ALTER STREAM {self.sql(node.this)} {change}"

    def alter_summary_form(self, node: nodes.AlterSummary) -> str:
        return (
            f"ALTER SUMMARY {self.sql(node.this)} {node.args['kind']} MEASURES ({self.listed(node.args['measures'])})"
        )

    def table_definition_form(self, node: nodes.CreateTable) -> str:
        columns = ", ".join(f"{self.sql(one.this)} {self.sql(one.args['kind'])}" for one in node.args["columns"])
        key = f"PRIMARY KEY ({self.sql(node.args['key'])})"
        return self.parted(
            [
                f"CREATE TABLE {self.created(node)} ({columns}, {key})",
                "RETROACTIVE" if node.args.get("retroactive") else "NON RETROACTIVE",
            ]
        )

    def change_form(self, node: nodes.TableChange) -> str:
        args, name = node.args, self.sql(node.this)
        kind = args["kind"]
        if kind in ("INSERT", "UPSERT"):
            columns = f" ({self.listed(args['columns'])})" if args.get("columns") else ""
            return self.parted([f"{kind} INTO {name}{columns}", f"VALUES {self.listed(args['rows'])}"])
        key, keys = self.sql(args["key"]), args["keys"]
        if len(keys) == 1:
            where = f"WHERE {key} = {self.operand(keys[0], MATCH + 1)}"
        else:
            where = f"WHERE {key} IN ({self.listed(keys)})"
        first = f"DELETE FROM {name}"
        if kind == "UPDATE":
            first = f"UPDATE {name} SET {self.listed(args['assignments'])}"
        return self.parted([first, where])

    def explain_form(self, node: nodes.Explain) -> str:
        return self.parted(["EXPLAIN ANALYZE" if node.args.get("analyze") else "EXPLAIN", self.sql(node.this)])

    def drop_form(self, node: nodes.Drop) -> str:
        exists = "IF EXISTS " if node.args.get("exists") else ""
        return f"DROP {node.args['kind']} {exists}{self.sql(node.this)}{' CASCADE' if node.args.get('cascade') else ''}"


_FORMS: dict[type[exp.Expression], Callable[[PromisingGenerator, Any], str]] = {
    exp.Identifier: PromisingGenerator.name_form,
    exp.Column: PromisingGenerator.column_form,
    exp.Literal: PromisingGenerator.literal_form,
    exp.Interval: PromisingGenerator.interval_form,
    exp.DataType: PromisingGenerator.type_form,
    exp.Null: lambda self, node: "NULL",
    exp.Star: lambda self, node: "*",
    exp.Boolean: lambda self, node: "TRUE" if node.this else "FALSE",
    exp.Var: lambda self, node: node.this,
    exp.Paren: lambda self, node: f"({self.sql(node.this)})",
    exp.Distinct: lambda self, node: f"DISTINCT {self.listed(node.expressions)}",
    exp.Extract: lambda self, node: f"EXTRACT({self.sql(node.this)} FROM {self.sql(node.expression)})",
    exp.And: PromisingGenerator.connected_form,
    exp.Or: PromisingGenerator.connected_form,
    exp.Not: PromisingGenerator.not_form,
    **dict.fromkeys(_NEGATED, PromisingGenerator.match_form),
    exp.Neg: PromisingGenerator.minus_form,
    exp.Cast: PromisingGenerator.cast_form,
    exp.Case: PromisingGenerator.case_form,
    exp.Count: PromisingGenerator.count_form,
    exp.Anonymous: PromisingGenerator.anonymous_form,
    exp.Table: PromisingGenerator.table_form,
    exp.Alias: PromisingGenerator.alias_form,
    exp.Ordered: PromisingGenerator.ordered_form,
    exp.Select: PromisingGenerator.select_form,
    nodes.Select: PromisingGenerator.select_form,
    nodes.SummaryEstimate: PromisingGenerator.estimate_form,
    nodes.Preference: PromisingGenerator.preference_form,
    nodes.ErrorTarget: PromisingGenerator.target_form,
    nodes.LimitBy: PromisingGenerator.limit_by_form,
    nodes.Span: PromisingGenerator.span_form,
    nodes.CreateStream: PromisingGenerator.stream_form,
    nodes.CreateSummary: PromisingGenerator.summary_form,
    nodes.Measure: PromisingGenerator.measure_form,
    nodes.Option: PromisingGenerator.option_form,
    nodes.CreateContinuousQuery: PromisingGenerator.query_form,
    **dict.fromkeys(_SETS, PromisingGenerator.set_form),
    exp.Exists: PromisingGenerator.exists_form,
    nodes.AlterQuery: PromisingGenerator.alter_form,
    nodes.AlterStream: PromisingGenerator.alter_stream_form,
    nodes.AlterSummary: PromisingGenerator.alter_summary_form,
    nodes.CreateTable: PromisingGenerator.table_definition_form,
    nodes.TableChange: PromisingGenerator.change_form,
    nodes.Row: lambda self, node: f"({self.listed(node.expressions)})",
    nodes.Assignment: lambda self, node: f"{self.sql(node.this)} = {self.sql(node.args['value'])}",
    nodes.Explain: PromisingGenerator.explain_form,
    nodes.Drop: PromisingGenerator.drop_form,
    nodes.Show: lambda self, node: f"SHOW {node.args['kind']}",
    nodes.Describe: lambda self, node: f"DESCRIBE {self.sql(node.this)}",
}
