"""Translates a SELECT to equivalent Spark SQL, over views named by the aliases.

Written for ANSI mode and a session in UTC; timestamps are TIMESTAMP_NTZ, integers BIGINT, floats DOUBLE. PREFERENCE,
FADE FACTOR, BUDGET and WITH ERROR are dropped: they only affect partial answers. So is WINDOW, which the views apply.
What Spark cannot do equivalently is Unsupported.

A query with aggregates is three SELECTs: group keys and arguments, then groups, then the outputs over those.
"""

from sqlglot import exp

from promising.errors import Unsupported
from promising.loaders.spark_expressions import TYPES, Writer, quoted
from promising.query.aggregate.aggregates import QUANTILES
from promising.query.bound import RESULT, Bound
from promising.query.scalar.scope import Input
from promising.query.sql import offset_of

INNER = "#rows"


def spark_sql(node: exp.Expression, bound: Bound) -> str:
    """The text. Raises Unsupported, with the position, for what has no equivalent."""
    return _Query(node, bound).text()


class _Query:
    def __init__(self, node: exp.Expression, bound: Bound) -> None:
        self.node = node
        self.bound = bound
        self.rows = Writer(bound.scope, self._column)
        assert bound.results is not None
        self.results = Writer(bound.results, self._column)

    def _column(self, found: Input) -> str:
        table = INNER if found.source == RESULT else self.bound.sources[found.source].alias
        return f"{quoted(table)}.{quoted(found.name)}"

    def text(self) -> str:
        bound = self.bound
        if bound.limit_by is not None:
            raise Unsupported(
                "LIMIT n BY is not offered on Spark: leave it out and number the rows with row_number(), or ask the"
                " service",
                bound.scope.sql,
                offset_of(self.node.args["limit_by"]),
            )
        if bound.limit is not None and bound.preference is not None and not bound.grouped:
            raise Unsupported(
                "LIMIT takes the first rows in the order of the preference, and Spark's rows come in none: leave LIMIT"
                " out, or ask for a share of the answer",
                bound.scope.sql,
                offset_of(self.node.args["limit"]),
            )
        outputs = []
        for (item, _), name, compiled in zip(bound.items, bound.names, bound.outputs, strict=True):
            made = self.results.write(bound.spelled(item))
            text = f"CAST(NULL AS {TYPES[compiled.kind]})" if made.kind == "null" else made.sql
            outputs.append(f"{text} AS {quoted(name)}")
        parts = [f"SELECT {', '.join(outputs)}", f"FROM {self._source()}"]
        if bound.grouped:
            having = self.node.args.get("having")
            if having is not None:
                parts.append(f"WHERE {self.results.condition(having.this)}")
        elif where := self._where():
            parts.append(where)
        if bound.order:
            parts.append(f"ORDER BY {', '.join(self._order())}")
        if bound.limit is not None:
            if bound.limit >= 1 << 31:
                raise Unsupported("Spark takes no LIMIT beyond 31 bits; leave it out", bound.scope.sql, 0)
            parts.append(f"LIMIT {bound.limit}")
        return " ".join(parts)

    def _source(self) -> str:
        if not self.bound.grouped:
            return self._from()
        bound = self.bound
        inner, groups, outer = [], [], []
        for number, term in enumerate(bound.terms):
            inner.append(f"{self.rows.write(term, 'int').sql} AS `k{number}`")
            groups.append(f"`k{number}`")
        outer += groups
        for number, (aggregate, call) in enumerate(zip(bound.aggregates, bound.calls, strict=True)):
            argument = call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this
            if aggregate.kind is not None:
                made = self.rows.write(argument, "int")
                wide = aggregate.function in ("avg", "median", *QUANTILES) and made.kind != "float"
                inner.append(f"{f'CAST({made.sql} AS DOUBLE)' if wide else made.sql} AS `x{number}`")
            if aggregate.function == "approx_top_k":
                raise Unsupported(
                    "approx_top_k is not offered on Spark: SELECT the column and count(*) with GROUP BY, or ask the"
                    " service",
                    bound.scope.sql,
                    offset_of(call),
                )
            outer.append(f"{_call(aggregate.function, f'`x{number}`', aggregate.at, aggregate.kind)} AS `a{number}`")
        where = self._where()
        rows = f"SELECT {', '.join(inner) or '1 AS `x`'} FROM {self._from()}{' ' + where if where else ''}"
        by = f" GROUP BY {', '.join(groups)}" if groups else ""
        return f"(SELECT {', '.join(outer) or 'count(*) AS `n`'} FROM ({rows}){by}) AS {quoted(INNER)}"

    def _from(self) -> str:
        tables = [quoted(source.alias) for source in self.bound.sources]
        if self.bound.join is None:
            return tables[0]
        return f"{tables[0]} JOIN {tables[1]} ON {self.rows.condition(self.bound.join.condition)}"

    def _where(self) -> str:
        parts = [self.rows.condition(condition) for condition in self.bound.conditions]
        return f"WHERE {' AND '.join(parts)}" if parts else ""

    def _order(self) -> list[str]:
        out = []
        named = {name.lower(): self.bound.spelled(item) for item, name in reversed(self.bound.items)}
        for term in self.node.args["order"].expressions:
            value = term.this
            if isinstance(value, exp.Literal) and not value.is_string:
                value = self.bound.spelled(self.bound.items[int(value.this) - 1][0])
            elif isinstance(value, exp.Column) and not value.table:
                value = named.get(value.name.lower(), value)
            down = "DESC" if term.args.get("desc") else "ASC"
            nulls = "FIRST" if term.args.get("nulls_first") else "LAST"
            out.append(f"{self.results.write(value, 'int').sql} {down} NULLS {nulls}")
        return out


def _call(function: str, argument: str, at: float | None, kind: str | None) -> str:
    if kind is None:
        return "count(*)"
    if function == "count_distinct":
        return f"count(DISTINCT {argument})"
    if function == "quantile":
        return f"percentile({argument}, {at!r}D)"
    if function == "approx_quantile":
        return f"approx_percentile({argument}, {at!r}D)"
    return f"{function}({argument})"
