"""Binds the syntax tree of a SELECT: resolves names, checks types and clauses, reports the position of errors."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from sqlglot import exp

from promising.errors import BadClause, NoSuchName, NoSummary, StatementError, TypeMismatch, Unsupported
from promising.index.schema import KEY_TYPES
from promising.index.summary_index import SummaryIndex, best_summary
from promising.query.aggregate.aggregates import QUANTILES, Aggregate, check
from promising.query.aggregate.most_frequent import LONGEST
from promising.query.bound import Bound, Constants, JoinKey, LimitBy, Order, Source, Target
from promising.query.budgets import LONGEST_BUDGET
from promising.query.catalog import Catalog
from promising.query.error_places import placed
from promising.query.fade import Fade, FadeFactor, HalfLife
from promising.query.grouped_scope import AGGREGATES, GroupedScope, aggregates_in
from promising.query.measured_binding import Asked
from promising.query.preference import BoundPreference, Direction, EstimatedCount
from promising.query.scalar.compiled import Compiled, column
from promising.query.scalar.expressions import compile_expression, compile_predicate, conjuncts
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import Input, Scope, StreamScope, suggest
from promising.query.scalar.types import ARROW, NAMES, NUMBERS, TOP, Kind
from promising.query.sql import generate, nodes
from promising.query.summary_advice import suggested_summary

T = TypeVar("T")

MOST_STREAMS = 2
MOST_COLUMNS = 1 << 14  # per answer
CONFIDENCE = 0.95
UNPROMISED = ("min", "max", "approx_top_k")  # by WITH ERROR
LISTS = "approx_top_k gives a list, which stands alone in the select list: no expression, HAVING or order takes it"
COUNTS = ("COUNT", "LOWER", "UPPER")  # estimates that postings know
LONG = 1 << 11  # characters of a statement whose conditions may take long to bind
SLICE = 64  # expressions between two pauses: about a millisecond


def bind(node: exp.Expression, sql: str, catalog: Catalog) -> Bound:
    """Resolve a SELECT against the catalog; no side effects."""
    binder = binding(node, sql, catalog)
    for _ in binder.steps():
        pass
    return binder.bound


def binding(node: exp.Expression, sql: str, catalog: Catalog) -> "Binder":
    """The binder of a SELECT, for binding in steps."""
    if isinstance(node, exp.SetOperation):
        raise offered(node.key.upper(), sql, nodes.word_of(node) or offset_of(node))
    if node.args.get("distinct"):
        raise offered("SELECT DISTINCT", sql, nodes.word_of(node) or offset_of(node))
    return Binder(node, sql, catalog)


def offered(what: str, sql: str, offset: int | None) -> Unsupported:
    """The error for a feature that only continuous queries have."""
    return Unsupported(f"{what} is offered in continuous queries: CREATE CONTINUOUS QUERY name AS ...", sql, offset)


class Binder:
    """Binds one SELECT; base class of the binder for continuous queries.

    Longer than most classes because all clauses share one scope and one text for error positions.
    """

    def __init__(self, node: exp.Expression, sql: str, catalog: Catalog) -> None:
        self.node = node
        self.sql = sql
        self.catalog = catalog
        self.unaided: SummaryIndex | None = None
        self._named: dict[str, Compiled] = {}  # outputs, by name in lower case

    def error(self, kind: type[StatementError], message: str, at: exp.Expr) -> StatementError:
        return kind(message, self.sql, offset_of(at))

    def steps(self) -> Iterator[None]:
        """Bind, with a pause after every `SLICE` expressions.

        `bound` exists from the first pause on, with the sources and the BUDGET; from the pause at which it is
        `described`, with the columns of the answer.
        """
        args = self.node.args
        budget = self._budget()
        self.sources, on = self._sources()
        columns = [(s.alias, s.stream.name, _kinds(s.types)) for s in self.sources]
        self.scope: Scope = StreamScope(self.sql, columns)
        bound = self.bound = Bound(self.scope, self.sources, budget=budget)
        yield from self._described(bound)
        bound.described = True
        if len(self.sql) > LONG:
            yield
        where = args.get("where")
        parts = [c for part in (*on, *([where.this] if where else [])) for c in conjuncts(part)]
        for part in paused(parts):
            if part is None:
                yield
            else:
                self._refuse_aggregates(part, "WHERE")
        bound.join, parts = self._join(parts)
        for part in paused(parts):
            if part is None:
                yield
            else:
                bound.predicates.append(compile_predicate(part, self.scope))
        bound.conditions = parts
        bound.constants = self._constants(parts, bound.join)
        bound.unaided = self.unaided
        yield from self._arranged(bound)
        self._clauses(bound)

    # --- FROM ----------------------------------------------------------------------------------------------------

    def _sources(self) -> tuple[list[Source], list[exp.Expression]]:
        origin = self.node.args.get("from_") or self.node.args.get("from")
        if origin is None:
            raise self.error(BadClause, "a query reads from a stream: FROM is missing", self.node)
        tables, on = [origin.this], []
        for join in self.node.args.get("joins") or []:
            tables.append(join.this)
            if join.args.get("on") is not None:
                on.append(join.args["on"])
        if len(tables) > MOST_STREAMS:
            raise self.error(
                Unsupported, f"a query reads from one or two streams, not {len(tables)}", tables[MOST_STREAMS]
            )
        sources = [self._source(table) for table in tables]
        if len(sources) == 2 and sources[0].alias.lower() == sources[1].alias.lower():
            raise self.error(
                BadClause, f"both streams are called {sources[1].alias}: give one of them another alias", tables[1]
            )
        return sources, on

    def _source(self, table: exp.Expression) -> Source:
        if self.catalog.what(table.name) == "table":
            raise offered("a table in FROM", self.sql, offset_of(table))
        if self.catalog.what(table.name) == "query":
            return self._view(table)
        return Source(self.catalog.stream(table.this, self.sql), table.alias or table.name)

    def _view(self, table: exp.Expression) -> Source:
        """The current rows of a continuous query, which are exact: no clause about summaries applies to them."""
        if self.node.args.get("joins"):
            raise self.error(
                Unsupported, f"{table.name} is a continuous query: its view is read alone, not in a join", table
            )
        for name, clause in (("preference", "WITH PREFERENCE"), ("window", "WINDOW")):
            if self.node.args.get(name) is not None:
                raise self.error(Unsupported, f"{clause} is for streams; {table.name} is a continuous query", table)
        with placed(self.sql, table):
            return Source(self.catalog.view(table.name), table.alias or table.name, is_view=True)

    def _join(self, parts: list[exp.Expression]) -> tuple[JoinKey | None, list[exp.Expression]]:
        """The join equality that summaries cover best, and the remaining conditions."""
        if len(self.sources) == 1:
            return None, parts
        best: tuple[int, int] | None = None
        keys: dict[int, JoinKey] = {}
        for at, part in enumerate(parts):
            key = self._equality(part)
            if key is not None:
                keys[at] = key
                known = sum(s is not None and s.structure != "none" for s in key.summaries)
                plain = sum(a is not None for a in key.attributes)
                rank = (10 * known + plain, -at)
                best = rank if best is None else max(best, rank)
        if best is None:
            raise self.error(
                Unsupported,
                "two streams are joined by an equality between a column of each (a.x = b.x); none is given, and cross"
                " joins are not offered",
                parts[0] if parts else self.node,
            )
        chosen = -best[1]
        key = keys[chosen]
        strings = key.values[0].kind == "string"  # hashes may collide, so the equality must still be checked
        return key, [p for at, p in enumerate(parts) if at != chosen or strings]

    def _equality(self, part: exp.Expression) -> JoinKey | None:
        equality = part.unnest()
        if not isinstance(equality, exp.EQ):
            return None
        part = equality
        sides = [compile_expression(operand, self.scope) for operand in (part.this, part.expression)]
        read = [{i.source for i in side.inputs} for side in sides]
        operands = [part.this, part.expression]
        if read == [{1}, {0}]:
            sides, operands = sides[::-1], operands[::-1]
        elif read != [{0}, {1}]:
            return None
        kinds = {side.kind for side in sides}
        if len(kinds) > 1 and not kinds <= NUMBERS:
            compile_predicate(part, self.scope)  # raises if the comparison is invalid
            return None
        attributes: list[str | None] = []
        for operand, side in zip(operands, sides, strict=True):
            bare = operand.unnest() if isinstance(operand, exp.Paren) else operand
            attributes.append(next(iter(side.inputs)).name if isinstance(bare, exp.Column) else None)
        found = [
            best_summary(source.stream.summaries, attribute) if attribute and len(kinds) == 1 else None
            for source, attribute in zip(self.sources, attributes, strict=True)
        ]
        return JoinKey((sides[0], sides[1]), (attributes[0], attributes[1]), (found[0], found[1]), part)

    def _constants(self, parts: list[exp.Expression], join: JoinKey | None) -> Constants | None:
        """Conditions that restrict an indexed attribute to constant keys."""
        for condition in parts:
            part: exp.Expr = condition.unnest()
            if isinstance(part, exp.EQ):
                pairs = [(part.this, [part.expression]), (part.expression, [part.this])]
            elif isinstance(part, exp.In) and part.expressions:
                pairs = [(part.this, part.expressions)]
            else:
                continue
            for named, values in pairs:
                if not isinstance(named, exp.Column):
                    continue
                found = self.scope.resolve(named)
                if found.kind not in KEY_TYPES:
                    continue
                made = [_constant(v, found.kind) for v in values]
                if any(m is None for m in made):
                    continue
                if join is None:
                    summary = best_summary(self.sources[0].stream.summaries, found.name)
                    if summary is None or summary.structure == "none":
                        self.unaided = self.unaided or summary
                        continue
                elif join.attributes[found.source] != found.name or join.values[0].kind != join.values[1].kind:
                    continue
                return Constants(found.source, found.name, made, condition)  # type: ignore[arg-type]  # all of one kind
        return None

    # --- SELECT list, GROUP BY, HAVING, ORDER BY -------------------------------------------------------------------

    def _outputs(self, bound: Bound) -> None:
        """Bind everything about the columns of the answer."""
        for _ in self._described(bound):
            pass
        for _ in self._arranged(bound):
            pass

    def _described(self, bound: Bound) -> Iterator[None]:
        """Bind the columns of the answer."""
        args = self.node.args
        shown = list(islice(self._expanded(), MOST_COLUMNS + 1))
        if len(shown) > MOST_COLUMNS:
            raise self.error(BadClause, f"more than {MOST_COLUMNS:,} columns in the answer", self.node)
        grouping = args.get("group")
        having, order = args.get("having"), args.get("order")
        everything = [e for e, _ in shown if not isinstance(e, exp.Column | Input)]
        everything += ([having.this] if having else []) + ([order] if order else [])
        bound.grouped = grouping is not None or having is not None or any(aggregates_in(e) for e in everything)
        scope: Scope = self.scope
        if bound.grouped:
            spelled = [(bound.spelled(item), name) for item, name in shown]
            yield from self._keys(bound, grouping, spelled)
            scope, shown = GroupedScope(self.scope, self, bound), [*spelled]
        bound.results, bound.items = scope, shown
        taken: dict[str, int] = {}
        for item in paused(shown):
            if item is None:
                yield
                continue
            expression, name = item
            if not isinstance(expression, Input | exp.ApproxTopK):
                self._refuse_lists(expression)
            made = column(expression) if isinstance(expression, Input) else compile_expression(expression, scope)
            if made.kind == "null":
                made = self._untyped(made)
            bound.outputs.append(made)
            bound.names.append(_fresh(name, taken))
            self._named.setdefault(name.lower(), made)
            only = scope.replace(expression) if bound.grouped and not isinstance(expression, Input) else None
            bound.shown.append(int(only.name[1:]) if only is not None and only.name.startswith("a") else None)

    def _arranged(self, bound: Bound) -> Iterator[None]:
        """Bind HAVING, ORDER BY and LIMIT n BY."""
        scope = bound.results
        assert scope is not None
        having, order = self.node.args.get("having"), self.node.args.get("order")
        if having is not None:
            self._refuse_lists(having.this)
            bound.having = compile_predicate(having.this, scope)
        for term in paused(order.expressions if order is not None else []):
            if term is None:
                yield
            else:
                bound.order.append(self._ordered(term, bound, scope, self._named))
        bound.limit_by = self._limit_by(scope, self._named)

    def _untyped(self, made: Compiled) -> Compiled:
        return typed_null(made)

    def _expanded(self) -> Iterator[tuple[exp.Expression | Input, str]]:
        """The select list, and a name for each item. A star gives the columns themselves."""
        for item in self.node.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                wanted = item.table if isinstance(item, exp.Column) else ""
                if wanted and wanted.lower() not in {s.alias.lower() for s in self.sources}:
                    self.scope.resolve(exp.column("*", table=item.args["table"]))
                for source in self.sources:
                    if wanted and source.alias.lower() != wanted.lower():
                        continue
                    place = self.sources.index(source)
                    for name, kind in _kinds(source.types).items():
                        yield Input(place, name, kind), name
            elif isinstance(item, exp.Alias):
                yield item.this, item.alias
            elif isinstance(item, exp.Column):
                yield item, self.scope.resolve(item).name
            else:
                yield item, generate(item)

    def _keys(self, bound: Bound, grouping: Any, shown: list[tuple[exp.Expression, str]]) -> Iterator[None]:
        """Bind the group keys."""
        aliases = {name.lower(): e for e, name in reversed(shown)}
        columns = {column.lower() for source in self.sources for column in source.types}
        for term in paused(grouping.expressions if grouping is not None else []):
            if term is None:
                yield
                continue
            expression = self._ordinal(term, shown, "GROUP BY")
            if expression is None and isinstance(term, exp.Column) and not term.table:
                expression = None if term.name.lower() in columns else aliases.get(term.name.lower())
            expression = term if expression is None else expression
            self._refuse_aggregates(expression, "GROUP BY")
            bound.terms.append(expression)
            bound.group_keys.append(compile_expression(expression, self.scope))

    def _ordinal(self, term: exp.Expression, shown: list[tuple[exp.Expression, str]], where: str) -> Any:
        """The output that an ordinal refers to."""
        if not isinstance(term, exp.Literal) or term.is_string:
            return None
        if not term.this.isdigit() or not 1 <= int(term.this) <= len(shown):
            raise self.error(BadClause, f"{where} {term.this}: there are {len(shown)} columns in the answer", term)
        return shown[int(term.this) - 1][0]

    def _ordered(self, term: exp.Expression, bound: Bound, scope: Scope, named: dict[str, Compiled]) -> Order:
        value = term.this
        made: Compiled | None = None
        if isinstance(value, exp.Literal) and not value.is_string:
            if not value.this.isdigit() or not 1 <= int(value.this) <= len(bound.outputs):
                raise self.error(
                    BadClause, f"ORDER BY {value.this}: there are {len(bound.outputs)} columns in the answer", value
                )
            made = bound.outputs[int(value.this) - 1]
        elif isinstance(value, exp.Column) and not value.table:
            made = named.get(value.name.lower())
        if made is None:
            self._refuse_lists(value)
            made = compile_expression(value, scope)
        self._refuse_list(made, value)
        return Order(made, bool(term.args.get("desc")), bool(term.args.get("nulls_first")))

    def _limit_by(self, scope: Scope, named: dict[str, Compiled]) -> LimitBy | None:
        node = self.node.args.get("limit_by")
        if node is None:
            return None
        most = _whole(node.this)
        if most is None or most < 1:
            raise self.error(BadClause, "LIMIT n BY takes a whole number from 1 on, as in LIMIT 2 BY column", node)
        columns = []
        for term in node.expressions:
            made = None if term.table else named.get(term.name.lower())
            try:
                columns.append(compile_expression(term, scope) if made is None else made)
            except NoSuchName as problem:
                hint = suggest(term.name, named) if not term.table and "did you mean" not in problem.problem else ""
                raise self.error(NoSuchName, f"LIMIT n BY: {problem.problem}{hint}", term) from None
            self._refuse_list(columns[-1], term)
        return LimitBy(min(most, 1 << 62), tuple(columns), tuple(node.expressions))

    def _refuse_aggregates(self, node: exp.Expression, where: str) -> None:
        for found in aggregates_in(node):
            raise self.error(BadClause, f"an aggregate cannot stand in {where}", found)

    def _refuse_lists(self, node: exp.Expression) -> None:
        for found in aggregates_in(node):
            if isinstance(found, exp.ApproxTopK):
                raise self.error(Unsupported, LISTS, found)

    def _refuse_list(self, made: Compiled, node: exp.Expression) -> None:
        if made.kind in TOP.values():
            raise self.error(Unsupported, LISTS, node)

    def aggregate(self, node: exp.Expression) -> tuple[Aggregate, Compiled | None]:
        function = AGGREGATES[type(node)]
        argument: Any = node.this
        at = None
        if isinstance(argument, exp.Distinct):
            if function != "count":
                raise self.error(Unsupported, f"DISTINCT is offered in count only, not in {function}", node)
            if len(argument.expressions) != 1:
                raise self.error(Unsupported, "count(DISTINCT ...) takes one expression", node)
            function, argument = "count_distinct", argument.expressions[0]
        if function == "count" and (argument is None or isinstance(argument, exp.Star)):
            return Aggregate("count", None, None), None
        if argument is None or (isinstance(node, exp.Count | exp.Min | exp.Max) and node.expressions):
            raise self.error(TypeMismatch, f"{function} takes one argument", node)
        if function in QUANTILES:
            at = _number(node.args.get("quantile"))
            if at is None or not 0 <= at <= 1:
                raise self.error(BadClause, f"{function}(x, q) takes a q from 0 to 1", node)
        if function == "approx_top_k":
            at = _whole(node.args["expression"])
            if at is None or not 1 <= at <= LONGEST:
                raise self.error(BadClause, f"approx_top_k(x, k) takes a whole k from 1 to {LONGEST:,}", node)
        self._refuse_aggregates(argument, "another aggregate")
        made = compile_expression(argument, self.scope)
        problem = check(function, made.kind)  # type: ignore[arg-type]  # one of the functions
        if problem:
            raise self.error(TypeMismatch, problem, argument)
        return Aggregate(function, made.kind, at), made  # type: ignore[arg-type]  # one of the functions

    # --- clauses -------------------------------------------------------------------------------------------------

    def _clauses(self, bound: Bound) -> None:
        args = self.node.args
        limit = args.get("limit")
        if limit is not None:
            bound.limit = _whole(limit.expression)
            if bound.limit is None:
                raise self.error(BadClause, "LIMIT takes a whole number, not negative", limit)
        bound.window = self._window()
        bound.target = self._target(bound)
        bound.preference = self._preference(bound)
        if bound.preference is not None and bound.order and not bound.grouped:
            raise self.error(
                BadClause,
                "ORDER BY and PREFERENCE both give an order: rows come in the order of the preference, or sorted,"
                " not both",
                args["order"],
            )

    def _budget(self) -> int | None:
        budget = self._span("budget", "BUDGET")
        if budget is not None and budget < 0:
            raise self.error(
                BadClause, "BUDGET must not be negative; 0 asks for estimates alone", self.node.args["budget"]
            )
        if budget is not None and budget > LONGEST_BUDGET:
            raise self.error(
                BadClause, "BUDGET is an hour at most; leave it out to have no limit", self.node.args["budget"]
            )
        return budget

    def _window(self) -> int | None:
        length = self._span("window", "WINDOW")
        if length is not None and length <= 0:
            raise self.error(BadClause, "WINDOW must be longer than nothing", self.node.args["window"])
        return length

    def _span(self, name: str, clause: str) -> int | None:
        span = self.node.args.get(name)
        if span is None:
            return None
        if name == "budget" and not span.args.get("unit"):
            raise self.error(BadClause, "BUDGET needs a unit, as in BUDGET 50 MILLISECONDS", span)
        try:
            micros: int = span.micros
        except BadClause as problem:
            raise self.error(BadClause, f"{clause} {problem.problem}", span) from None
        return micros

    def _target(self, bound: Bound) -> Target | None:
        node = self.node.args.get("target")
        if node is None:
            return None
        error = _number(node.args["error"])
        confidence = _number(node.args["confidence"]) if node.args.get("confidence") else CONFIDENCE
        if error is None or not 0 < error < 1:
            raise self.error(BadClause, "WITH ERROR takes a share between 0 and 1, as in WITH ERROR 0.05", node)
        if confidence is None or not 0.5 <= confidence < 1:
            raise self.error(BadClause, "CONFIDENCE is at least 0.5 and less than 1, as in CONFIDENCE 0.95", node)
        if not bound.aggregates:
            raise self.error(BadClause, "WITH ERROR is about aggregates; this query has none", node)
        for aggregate in bound.aggregates:
            if aggregate.function in UNPROMISED:
                raise self.error(
                    BadClause,
                    f"WITH ERROR cannot be promised for {aggregate.function}: no sample bounds what was not seen",
                    node,
                )
        return Target(error, confidence)

    def _preference(self, bound: Bound) -> BoundPreference | None:
        node = self.node.args.get("preference")
        if node is None:
            for given, clause in (("fade", "FADE FACTOR"), ("half_life", "FADE HALF LIFE")):
                if self.node.args.get(given) is not None:
                    problem = f"{clause} changes a preference; WITH PREFERENCE is missing"
                    raise self.error(BadClause, problem, self.node.args[given])
            return None
        fade = self._fade()
        scope = _PreferenceScope(self.scope, self)
        factors = []
        for expression in node.expressions:
            self._refuse_aggregates(expression, "PREFERENCE")
            made = compile_expression(expression, scope)
            if made.kind not in NUMBERS:
                raise self.error(TypeMismatch, f"a preference is a number, not {NAMES[made.kind]}", expression)
            factors.append(made)
        if not scope.found and not scope.asked:
            raise self.error(
                BadClause,
                "a preference ranks by what summaries know: name at least one SUMMARY.Estimate.Count(column)",
                node,
            )
        columns = {i.source for f in factors for i in f.inputs if i.source >= 0}
        direction: Direction = node.args["direction"]
        key = self._preferred_key(bound, scope, node)
        columns |= {e.side for e in scope.found if key[e.side] != e.attribute}
        measured = tuple(asked.provided(key[asked.side]) for asked in scope.asked.values())
        columns |= {m.side for m in measured if m.what == "FREQUENCY"}
        if len(columns) > 1:
            raise self.error(
                Unsupported, "a preference may look at columns of one of the two streams, not of both", node
            )
        side = min(columns) if columns else None
        rising = all(_rising(e) for e in node.expressions)
        bare = all(isinstance(e, nodes.SummaryEstimate) and e.args["what"] == "COUNT" for e in node.expressions)
        counts_only = bare and len(scope.found) == len(node.expressions)
        estimates = tuple(scope.found)
        alone = key[0] if bound.join is None else None
        return BoundPreference(direction, tuple(factors), estimates, fade, side, rising, counts_only, measured, alone)

    def _fade(self) -> Fade | None:
        node = self.node.args.get("fade")
        factor = 1.0 if node is None else _number(node)
        if factor is None or not 0 < factor <= 1:
            raise self.error(BadClause, "FADE FACTOR must be greater than 0 and at most 1", node or self.node)
        span = self._span("half_life", "FADE HALF LIFE")
        if span is not None and span <= 0:
            raise self.error(
                BadClause,
                "FADE HALF LIFE must be longer than nothing, as in FADE HALF LIFE 1 HOUR",
                self.node.args["half_life"],
            )
        if span is not None:
            return HalfLife(span)
        return FadeFactor(factor) if factor < 1 else None

    def _preferred_key(self, bound: Bound, scope: "_PreferenceScope", node: exp.Expression) -> list[str | None]:
        """The attribute whose values are the entries, per side."""
        if bound.join is None:
            return [scope.found[0].attribute if scope.found else next(iter(scope.asked.values())).key()]
        for side, (source, attribute, summary) in enumerate(
            zip(self.sources, bound.join.attributes, bound.join.summaries, strict=True)
        ):
            if summary is None:
                what = f"{source.alias}.{attribute}" if attribute else f"the expression on the side of {source.alias}"
                hint = (
                    f"; create one: {suggested_summary(self.catalog, source.stream, attribute)}"
                    if attribute and source.stream.schema.types[attribute] in KEY_TYPES
                    else ""
                )
                raise self.error(
                    NoSummary,
                    f"a join with a preference needs a summary on both join keys; {what} has none{hint}",
                    node,
                )
            assert bound.join.attributes[side] is not None
        return list(bound.join.attributes)

    def estimated(self, node: exp.Expression) -> EstimatedCount:
        """Bind `SUMMARY.Estimate.What(column)`; the column must have a summary."""
        column = node.this
        if not isinstance(column, exp.Column):
            raise self.error(TypeMismatch, "SUMMARY.Estimate takes a column", node)
        found = self.scope.resolve(column)
        stream = self.sources[found.source].stream
        if best_summary(stream.summaries, found.name) is None:
            known = sorted({s.key for s in stream.summaries.values()})
            has = f"it has summaries on {', '.join(known)}" if known else "it has no summaries"
            advice = f"create one: {suggested_summary(self.catalog, stream, found.name)}"
            if found.kind not in KEY_TYPES:
                advice = f"a summary is on an integer or a string column, and {found.name} is {NAMES[found.kind]}"
            raise self.error(NoSummary, f"stream {stream.name} has no summary on {found.name}; {has}; {advice}", node)
        return EstimatedCount(found.source, found.name, node.args["what"])


def paused(items: Iterable[T]) -> Iterator[T | None]:
    """The items, with None after every `SLICE` of them: time for a pause."""
    for number, item in enumerate(items, 1):
        yield item
        if number % SLICE == 0:
            yield None


class _PreferenceScope:
    """The scope of a preference: estimates, and the columns of the streams."""

    def __init__(self, rows: Scope, binder: Binder) -> None:
        self.rows = rows
        self.sql = rows.sql
        self._binder = binder
        self.found: list[EstimatedCount] = []
        self.asked: dict[Input, Asked] = {}

    def resolve(self, node: exp.Column) -> Input:
        return self.rows.resolve(node)

    def replace(self, node: exp.Expression) -> Input | None:
        if not isinstance(node, nodes.SummaryEstimate):
            return None
        if node.args["what"] not in COUNTS:
            asked = Asked(node, self._binder)
            return self.asked.setdefault(asked.input, asked).input
        found = self._binder.estimated(node)
        if found not in self.found:
            self.found.append(found)
        return found.input


def _kinds(types: dict[str, str]) -> dict[str, Kind]:
    return dict(types)  # type: ignore[arg-type]  # the types of a schema are kinds


def _fresh(name: str, taken: dict[str, int]) -> str:
    """The name, with a numeric suffix if it is taken. `taken` has the last suffix tried for each name."""
    made, key = name, name.lower()
    while made.lower() in taken:
        taken[key] += 1
        made = f"{name}_{taken[key]}"
    taken[made.lower()] = 0
    return made


def _number(node: exp.Expression | None) -> float | None:
    sign = 1.0
    if isinstance(node, exp.Neg):
        sign, node = -1.0, node.this
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    try:
        return sign * float(node.this)
    except ValueError:
        return None


def _whole(node: exp.Expression) -> int | None:
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        return None
    return int(node.this)


def _constant(node: exp.Expression, kind: str) -> int | str | None:
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal):
        return None
    if kind == "string":
        return None if negative or not literal.is_string else str(literal.this)
    if literal.is_string or not literal.this.isdigit():
        return None
    value = -int(literal.this) if negative else int(literal.this)
    return value if -(1 << 63) <= value < 1 << 63 else None


def _rising(node: exp.Expression) -> bool:
    """Whether a factor is a product of estimates and non-negative numbers."""
    if isinstance(node, exp.Paren):
        return _rising(node.this)
    if isinstance(node, exp.Mul):
        return _rising(node.this) and _rising(node.expression)
    if isinstance(node, nodes.SummaryEstimate):
        return node.args["what"] in COUNTS
    return isinstance(node, exp.Literal) and not node.is_string


def typed_null(compiled: Compiled) -> Compiled:
    """An all-NULL column has type INT."""
    run: Callable[[Any], Any] = compiled.run
    return Compiled("int", compiled.inputs, compiled.can_fail, compiled.constant, lambda f: run(f).cast(ARROW["int"]))
