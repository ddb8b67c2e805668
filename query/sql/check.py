"""Final check of a syntax tree: only nodes of the dialect, at limited depth."""

from __future__ import annotations

from sqlglot import exp

from promising.errors import BadSyntax, Unsupported
from promising.query.sql import nodes
from promising.query.sql.token_cursor import DEEPEST
from promising.query.sql.words import CALL_BY_NODE

ALLOWED: frozenset[type[exp.Expression]] = frozenset(
    {
        *(exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Var, exp.Star, exp.DataType, exp.Interval),
        *(exp.Column, exp.ColumnDef, exp.Table, exp.TableAlias, exp.Alias),
        *(exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit),
        *(exp.And, exp.Or, exp.Not, exp.Is, exp.Between, exp.In, exp.Like, exp.ILike),
        *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.DPipe, exp.Neg),
        *(exp.Case, exp.If, exp.Cast, exp.Extract, exp.Count, exp.Distinct, exp.Anonymous),
        *CALL_BY_NODE,
        *(nodes.Select, nodes.Preference, nodes.SummaryEstimate, nodes.ErrorTarget, nodes.LimitBy, nodes.Span),
        *(exp.Union, exp.Intersect, exp.Except, exp.Exists),
        *(nodes.CreateStream, nodes.CreateSummary, nodes.CreateContinuousQuery, nodes.Option, nodes.AlterQuery),
        *(nodes.AlterStream, nodes.AlterSummary, nodes.Measure),
        *(nodes.CreateTable, nodes.TableChange, nodes.Row, nodes.Assignment),
        *(nodes.Show, nodes.Describe, nodes.Drop, nodes.Explain),
    }
)


def check(root: exp.Expression, sql: str) -> None:
    """Raises Unsupported at a node outside the dialect, BadSyntax at one deeper than `DEEPEST`."""
    level, depth = [root], 0
    while level:
        if depth > DEEPEST:
            raise BadSyntax(f"nested deeper than {DEEPEST} levels", sql, offset_of(level[0]))
        below: list[exp.Expression] = []
        for node in level:
            if type(node) not in ALLOWED:
                raise Unsupported(f"{node.key} is not supported", sql, offset_of(node))
            for value in node.args.values():
                if type(value) is list:
                    below += value
                elif isinstance(value, exp.Expression):
                    below.append(value)
        level, depth = below, depth + 1


def offset_of(node: exp.Expr) -> int | None:
    """Where the text of a node begins; for a synthetic node, that of its first descendant with a position."""
    start: int | None = node.meta_get("start")
    if start is not None:
        return start
    for one in node.dfs():
        start = one.meta_get("start")
        if start is not None:
            return start
    return None
