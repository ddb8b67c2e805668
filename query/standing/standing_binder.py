"""Binds the syntax tree of a continuous query to a plan; errors point at their position in the SQL."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from sqlglot import exp

from promising.errors import BadClause, NoSuchName, StatementError, TypeMismatch, Unsupported
from promising.index import Stream
from promising.index.table import Table
from promising.index.time_text import readable
from promising.query.aggregate.aggregates import Aggregate
from promising.query.binder import Binder, typed_null
from promising.query.bound import Bound, JoinKey, Source
from promising.query.catalog import Catalog
from promising.query.fade import HalfLife
from promising.query.grouped_scope import AGGREGATES
from promising.query.preference import BoundPreference
from promising.query.scalar.coercion import to_kind
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.expressions import compile_expression, compile_predicate, conjuncts
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import Input, Scope, StreamScope
from promising.query.scalar.types import NAMES, NUMBERS, Kind
from promising.query.sql import generate, nodes
from promising.query.standing import plan

SECOND = 1_000_000
LONGEST_WINDOW = 36_000 * 365 * 86_400 * SECOND
"""So that the end of a tuple, however far ahead it is dated, fits well within 64 bits."""

_REFUSED = {
    "order": "ORDER BY in a continuous query: a view has no order; sort its snapshot",
    "limit": "LIMIT in a continuous query: a view holds every row that is live; cut its snapshot, or ask for less in"
    " WHERE",
    "limit_by": "LIMIT n BY in a continuous query: a view holds every row that is live; cut its snapshot, or ask once"
    " with SELECT",
    "target": "WITH ERROR in a continuous query: its aggregates are exact",
}
_REFUSED_INSIDE = {
    **{"group": "GROUP BY", "having": "HAVING", "order": "ORDER BY", "limit": "LIMIT", "target": "WITH ERROR"},
    **{
        "limit_by": "LIMIT n BY",
        "preference": "PREFERENCE",
        "fade": "FADE FACTOR",
        "half_life": "FADE HALF LIFE",
        "budget": "BUDGET",
        "distinct": "DISTINCT",
    },
}


def bind_standing(node: exp.Expression, sql: str, catalog: Catalog, *, stored: bool = False) -> plan.Standing:
    """Resolve the body of CREATE CONTINUOUS QUERY against the catalog. Has no side effects.

    stored: the query was accepted by an earlier version; a preference that is refused by now is left out, with a
        warning, so that its view goes on.
    """
    with catalog.lock:
        return _Whole(sql, catalog, stored=stored).bind(node)


def standing_budget(span: nodes.Span, sql: str) -> int:
    """The BUDGET of a continuous query, in CPU microseconds per second."""
    try:
        if not span.args.get("unit"):
            raise BadClause("it needs a unit, as in BUDGET 50 MILLISECONDS")
        micros = span.micros
        if micros <= 0:
            raise BadClause("with no time at all a continuous query never gets anywhere")
        if micros > SECOND:
            raise BadClause("that of a continuous query is CPU time of each second, so 1 SECOND at most")
    except BadClause as problem:
        raise BadClause(f"BUDGET: {problem.problem}", sql, offset_of(span)) from None
    return micros


def budgeted(node: exp.Expression, span: nodes.Span | None) -> exp.Expression:
    made = node.copy()
    for select in nodes.selects(made):
        select.set("budget", None)
    *_, last = nodes.selects(made)
    last.set("budget", None if span is None else span.copy())
    return made


class _Whole:
    """Binds a query with set operations."""

    def __init__(self, sql: str, catalog: Catalog, *, stored: bool) -> None:
        self.sql = sql
        self.catalog = catalog
        self.stored = stored
        self.reads: set[str] = set()
        self.warnings: list[str] = []
        self.preference: BoundPreference | None = None
        self.alone = True

    def error(self, kind: type[StatementError], message: str, offset: int | None) -> StatementError:
        return kind(message, self.sql, offset)

    def bind(self, node: exp.Expression) -> plan.Standing:
        self.alone = not isinstance(node, exp.SetOperation)
        budget = self._budget(list(nodes.selects(node)))
        root, names = self._query(node)
        for number, kind in enumerate(_kinds(root)):
            if kind == "null":
                root = _shown_as(root, number, "int")
        if budget is not None and _misled(root):
            self.warnings.append("with a BUDGET, groups and EXCEPT are about the pairs that were joined so far")
        return plan.Standing(
            root=root,
            names=tuple(names),
            kinds=_kinds(root),
            statement=generate(node),
            reads=frozenset(self.reads),
            preference=self.preference,
            budget=budget,
            warnings=tuple(dict.fromkeys(self.warnings)),
        )

    def _budget(self, selects: list[exp.Expression]) -> int | None:
        for select in selects[:-1]:
            if (span := select.args.get("budget")) is not None:
                raise self.error(
                    BadClause, "BUDGET is that of the whole query: write it after the last SELECT", offset_of(span)
                )
        span = selects[-1].args.get("budget")
        return None if span is None else standing_budget(span, self.sql)

    def _query(self, node: exp.Expression) -> tuple[plan.Query, list[str]]:
        """The plan, and its column names: those of the first SELECT."""
        if isinstance(node, exp.SetOperation):
            return self._combined(node)
        branch = _Branch(node, self.sql, self.catalog, alone=self.alone, stored=self.stored)
        select = branch.standing()
        self.reads |= branch.reads
        self.warnings += branch.warnings
        self.preference = branch.preference
        return select, branch.names

    def _combined(self, node: exp.SetOperation) -> tuple[plan.Query, list[str]]:
        operator, every = node.key.upper(), not node.args.get("distinct")
        place = nodes.word_of(node) or offset_of(node)
        shown = f"{operator} ALL" if every else operator
        (left, names), (right, _) = self._query(node.this), self._query(node.expression)
        if shown != "UNION ALL":
            for select in nodes.selects(node):
                if select.args.get("window") is None:
                    raise self.error(BadClause, unbounded(f"{shown} of a SELECT"), offset_of(select))
        kinds, others = _kinds(left), _kinds(right)
        if len(kinds) != len(others):
            raise self.error(
                BadClause,
                f"{shown} of {len(kinds)} column{'s' * (len(kinds) > 1)} and of {len(others)}: both sides have as many",
                place,
            )
        for number, (kind, other) in enumerate(zip(kinds, others, strict=True)):
            if kind == other:
                continue
            if {kind, other} == NUMBERS:
                wanted: Kind = "float"
            elif "null" in (kind, other):
                wanted = other if kind == "null" else kind
            else:
                raise self.error(
                    TypeMismatch,
                    f"{shown}: column {number + 1}, {names[number]}, is {NAMES[kind]} on the left and {NAMES[other]} on"
                    " the right; cast one of them",
                    place,
                )
            left, right = _shown_as(left, number, wanted), _shown_as(right, number, wanted)
        return plan.SetOperation(operator.lower(), every, left, right), names


def unbounded(what: str) -> str:
    return f"{what} without WINDOW would have to keep every tuple for ever: add one, as in WINDOW 60 SECONDS"


class _Branch(Binder):
    def __init__(self, node: exp.Expression, sql: str, catalog: Catalog, *, alone: bool, stored: bool) -> None:
        super().__init__(node, sql, catalog)
        self.alone = alone
        self.stored = stored
        self.names: list[str] = []
        self.reads: set[str] = set()
        self.warnings: list[str] = []
        self.preference: BoundPreference | None = None
        self.tables: dict[int, Table] = {}  # by position in FROM; other positions are streams

    def standing(self) -> plan.StandingSelect:
        args = self.node.args
        for clause, reason in _REFUSED.items():
            if (found := args.get(clause)) is not None:
                raise self.error(Unsupported, reason, found)
        if not self.alone and (found := args.get("preference")) is not None:
            raise self.error(
                Unsupported, "PREFERENCE beside other SELECTs: it ranks the work of one SELECT that stands alone", found
            )
        self.length = self._window()
        if self.length is not None and self.length > LONGEST_WINDOW:
            raise self.error(BadClause, "WINDOW of a continuous query is 36,000 years at most", args["window"])
        self.sources, on = self._sources()
        columns = [(s.alias, s.stream.name, _types(s)) for s in self.sources]
        self.scope: Scope = StreamScope(self.sql, columns)
        where = args.get("where")
        parts = [c for part in (*on, *([where.this] if where else [])) for c in conjuncts(part)]
        tests = [found for part in parts if (found := _existence(part)) is not None]
        parts = [part for part in parts if _existence(part) is None]
        for part in parts:
            self._refuse_aggregates(part, "WHERE")
        read, join = self._body(parts)
        body: plan.Body = read
        bound = Bound(self.scope, self.sources, join=join)
        self._outputs(bound)
        self.names = bound.names
        if self.length is None:
            self._refuse_state(bound, tests)
        self.preference = self._ranked(bound)
        for number, (test, negated) in enumerate(tests):
            if number:
                raise self.error(
                    Unsupported, "a second EXISTS in one SELECT: put SELECTs together by INTERSECT or EXCEPT", test
                )
            body = self._exists(body, test, negated)
        self.reads |= {source.stream.name.lower() for source in self.sources}
        return plan.StandingSelect(
            body=body,
            outputs=tuple(bound.outputs),
            distinct=bool(args.get("distinct")),
            grouped=bound.grouped,
            keys=tuple(bound.group_keys),
            aggregates=tuple(bound.aggregates),
            arguments=tuple(bound.arguments),
            having=bound.having,
        )

    def _untyped(self, made: Compiled) -> Compiled:
        """Leaves NULL untyped until the kind of the matching column in another SELECT is known."""
        return made

    def aggregate(self, node: exp.Expression) -> tuple[Aggregate, Compiled | None]:
        if isinstance(node, exp.ApproxTopK):
            raise self.error(
                Unsupported,
                "approx_top_k in a continuous query, whose view has no lists: SELECT the column and count(*) with GROUP"
                " BY, and read the view with ORDER BY and LIMIT",
                node,
            )
        return super().aggregate(node)

    # --- FROM ----------------------------------------------------------------------------------------------------

    def _sources(self) -> tuple[list[Source], list[exp.Expression]]:
        sources, on = super()._sources()
        self.tables = {
            place: one for place, s in enumerate(sources) if isinstance(one := cast(object, s.stream), Table)
        }
        if len(self.tables) == len(sources):
            raise self.error(
                Unsupported,
                "a continuous query reads at least one stream; a table alone does not go on",
                self.node.args["from_"].this,
            )
        return sources, on

    def _source(self, table: exp.Expression) -> Source:
        alias, name = table.alias or table.name, table.name.lower()
        kind = self.catalog.what(name)
        if kind == "table":
            # It has a name and a schema, as a stream does; nothing else is used under that type.
            return Source(cast(Stream, self.catalog.table(table.this, self.sql)), alias)
        if kind != "stream":
            known = [s.name for s in self.catalog.streams.values()] + [t.name for t in self.catalog.tables.values()]
            raise self.catalog.missing("stream or table", table.this, self.sql, known)
        return Source(self.catalog.stream(table.this, self.sql), alias)

    def _body(self, parts: list[exp.Expression]) -> tuple[plan.Window | plan.Join | plan.TableJoin, JoinKey | None]:
        if self.tables:
            return self._table_joined(parts), None
        if len(self.sources) == 1:
            return self._filtered(0, [(part, compile_predicate(part, self.scope)) for part in parts]), None
        return self._joined(parts)

    def _filtered(self, place: int, found: Sequence[tuple[exp.Expression, Compiled]]) -> plan.Window:
        source = self.sources[place]
        return self._window_of(source.stream, source.alias, place, found)

    def _window_of(
        self, stream: Stream, alias: str, place: int, found: Sequence[tuple[exp.Expression, Compiled]]
    ) -> plan.Window:
        if self.length is not None and stream.keep is not None and stream.keep < self.length:
            raise self.error(
                BadClause,
                f"WINDOW reaches back {readable(self.length)}, but {stream.name} keeps {readable(stream.keep)}: shorten"
                f" it, or ALTER STREAM {generate(exp.to_identifier(stream.name))} KEEP {readable(self.length)} first",
                self.node.args["window"],
            )
        return plan.Window(
            stream=stream,
            length=self.length,
            place=place,
            predicates=tuple(made for _, made in found),
            conditions=tuple(part for part, _ in found),
            alias=alias,
        )

    def _joined(self, parts: list[exp.Expression]) -> tuple[plan.Join, JoinKey]:
        chosen, _ = self._join(parts)
        assert chosen is not None
        equal = {id(part): key for part in parts if (key := self._equality(part)) is not None}
        sound = [key for key in equal.values() if not any(value.can_fail for value in key.values)]
        # A key that can fail is evaluated after the others have filtered, as in a one-shot query.
        joined_on = sound or [chosen]
        conditions = {id(key.condition) for key in joined_on}
        places: list[list[tuple[exp.Expression, Compiled]]] = [[], []]
        residual: list[Compiled] = []
        for part in parts:
            if id(part) in conditions:
                continue
            made = compile_predicate(part, self.scope)
            read = {i.source for i in made.inputs}
            if len(read) < 2 and not made.can_fail:
                places[min(read, default=0)].append((part, made))
            else:
                residual.append(made)
        left, right = (self._filtered(place, found) for place, found in enumerate(places))
        return plan.Join(left, right, tuple(_one_kind(*key.values) for key in joined_on), tuple(residual)), chosen

    def _table_joined(self, parts: list[exp.Expression]) -> plan.TableJoin:
        ((place, table),) = self.tables.items()
        at = 1 - place
        key: Compiled | None = None
        found: list[tuple[exp.Expression, Compiled]] = []
        residual: list[Compiled] = []
        for part in parts:
            made = compile_predicate(part, self.scope)
            if key is None and (key := self._table_key(part, table, place)) is not None:
                continue
            if {i.source for i in made.inputs} <= {at} and not made.can_fail:
                found.append((part, made))
            else:
                residual.append(made)
        if key is None:
            alias, stream = self.sources[place].alias, self.sources[at].alias
            raise self.error(
                Unsupported,
                f"a table is joined by its primary key: an equality such as {alias}.{table.key} = {stream}.column is"
                " missing",
                parts[0] if parts else self.node.args["joins"][0].this,
            )
        return plan.TableJoin(self._filtered(at, found), table, place, key, tuple(residual))

    def _table_key(self, part: exp.Expression, table: Table, place: int) -> Compiled | None:
        """The expression that a condition equates with the table's primary key, if it does nothing else."""
        equality = part.unnest()
        if not isinstance(equality, exp.EQ):
            return None
        for one, other in ((equality.this, equality.expression), (equality.expression, equality.this)):
            column = one.unnest()
            if not isinstance(column, exp.Column):
                continue
            found = self.scope.resolve(column)
            if (found.source, found.name) != (place, table.key):
                continue
            made = compile_expression(other, self.scope)
            if {i.source for i in made.inputs} != {1 - place}:
                continue
            if made.kind != found.kind:
                raise self.error(
                    TypeMismatch,
                    f"the primary key {table.name}.{table.key} is {NAMES[found.kind]}, and this is {NAMES[made.kind]}:"
                    " cast it",
                    other,
                )
            return made
        return None

    # --- EXISTS --------------------------------------------------------------------------------------------------

    def _exists(self, body: plan.Body, test: exp.Exists, negated: bool) -> plan.Exists:
        inner = test.this
        if not isinstance(body, plan.Window | plan.Join):
            raise self.error(
                Unsupported,
                "EXISTS beside a table: the row that a tuple was joined with may have changed when the tuple has to go;"
                " keep them in SELECTs of their own, put together by INTERSECT or EXCEPT",
                test,
            )
        for clause, name in _REFUSED_INSIDE.items():
            if (found := inner.args.get(clause)) is not None:
                at = offset_of(found) if isinstance(found, exp.Expression) else nodes.word_of(inner)
                message = f"{name} inside of EXISTS is not supported: it asks for any one row"
                raise Unsupported(message, self.sql, at)
        if (found := inner.args.get("window")) is not None:
            raise self.error(
                BadClause, "WINDOW inside of EXISTS: the window is that of the query around it; write it there", found
            )
        if inner.args.get("joins"):
            raise self.error(Unsupported, "EXISTS reads one stream", inner.args["joins"][0].this)
        origin = inner.args["from_"].this
        stream = self._inner_stream(origin)
        place, alias = len(self.sources), origin.alias or origin.name
        scope = _InnerScope(self.sql, stream, alias, self.scope, place)
        for item in inner.expressions:
            self._inner_item(item, scope, alias)
        keys: list[tuple[Compiled, Compiled]] = []
        found_on_right: list[tuple[exp.Expression, Compiled]] = []
        where = inner.args.get("where")
        for part in conjuncts(where.this) if where is not None else ():
            if _existence(part) is not None:
                raise self.error(Unsupported, "EXISTS inside of EXISTS is not supported", part)
            self._refuse_aggregates(part, "WHERE")
            made = compile_predicate(part, scope)
            if {i.source for i in made.inputs} <= {place}:
                found_on_right.append((part, made))
                continue
            pair = self._correlated(part, scope, place)
            if pair is None:
                raise self.error(
                    Unsupported,
                    f"a condition inside of EXISTS is an equality between {alias} and the query around it, or about"
                    f" {alias} alone",
                    part,
                )
            keys.append(pair)
        if not keys:
            raise self.error(
                Unsupported,
                f"EXISTS needs an equality between {alias} and the query around it, such as {alias}.k ="
                f" {self.sources[0].alias}.k",
                test,
            )
        self.reads.add(stream.name.lower())
        return plan.Exists(body, self._window_of(stream, alias, place, found_on_right), tuple(keys), negated)

    def _inner_stream(self, origin: exp.Expression) -> Stream:
        if self.catalog.what(origin.name) == "table":
            raise self.error(Unsupported, "EXISTS reads a stream; join the table in FROM", origin)
        return self.catalog.stream(origin.this, self.sql)

    def _inner_item(self, item: exp.Expression, scope: "_InnerScope", alias: str) -> None:
        """The SELECT list of EXISTS is ignored, but it must be valid."""
        if isinstance(item, exp.Star):
            return
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            if item.table.lower() not in {alias.lower(), *(s.alias.lower() for s in self.sources)}:
                raise self.error(NoSuchName, f"no stream {item.table!r} in this query", item)
            return
        expression = item.this if isinstance(item, exp.Alias) else item
        self._refuse_aggregates(expression, "EXISTS, which then is always true")
        compile_expression(expression, scope)

    def _correlated(self, part: exp.Expression, scope: Scope, place: int) -> tuple[Compiled, Compiled] | None:
        """The two sides of an equality, the outer query's first."""
        equality = part.unnest()
        if not isinstance(equality, exp.EQ):
            return None
        sides = [compile_expression(side, scope) for side in (equality.this, equality.expression)]
        read = [{i.source for i in side.inputs} for side in sides]
        if read[0] == {place}:
            sides, read = sides[::-1], read[::-1]
        if read[1] != {place} or not read[0] or place in read[0]:
            return None
        return _one_kind(*sides)

    # --- clauses -------------------------------------------------------------------------------------------------

    def _refuse_state(self, bound: Bound, tests: list[tuple[exp.Exists, bool]]) -> None:
        """Rejects a query whose state would grow without bound."""
        args = self.node.args
        found: list[tuple[str, int | None]] = []
        if len(self.sources) == 2 and not self.tables:
            found.append(("a join", offset_of(args["joins"][0].this)))
        for place, table in self.tables.items():
            if table.retroactive:
                node = args["joins"][0].this if place else args["from_"].this
                found.append(("a join with a RETROACTIVE table", offset_of(node)))
        found += [("EXISTS", offset_of(test)) for test, _ in tests]
        if bound.grouped:
            group, having = args.get("group"), args.get("having")
            first = group or having or next(a for e in self.node.expressions if (a := e.find(*AGGREGATES)) is not None)
            found.append(("GROUP BY" if group is not None else "an aggregate", offset_of(first)))
        if args.get("distinct"):
            found.append(("SELECT DISTINCT", nodes.word_of(self.node) or offset_of(self.node)))
        for what, offset in found:
            raise BadClause(unbounded(what), self.sql, offset)

    def _ranked(self, bound: Bound) -> BoundPreference | None:
        node = self.node.args.get("preference")
        if node is not None and self.tables:
            raise self.error(Unsupported, "PREFERENCE over a join with a table: it ranks by what streams hold", node)
        made = self._preference(bound)
        for estimated in made.estimates if made is not None else ():
            stream = bound.sources[estimated.side].stream
            self.reads |= {s.name.lower() for s in stream.summaries.values() if s.key == estimated.attribute}
        if made is None or node is None or (refused := self._not_honoured(bound, made)) is None:
            return made
        if not self.stored:
            raise self.error(Unsupported, refused, node)
        self.warnings.append(refused)
        return None

    def _not_honoured(self, bound: Bound, preference: BoundPreference) -> str | None:
        """Why a preference would not have the order here that it has in a SELECT; None if it has."""
        if bound.join is None:
            return (
                "PREFERENCE in a continuous query ranks the pairs of a join that has too little CPU time; this query"
                " has no join and computes every row: leave PREFERENCE out"
            )
        wanted = set(enumerate(bound.join.attributes))
        if preference.counts_only and {(e.side, e.attribute) for e in preference.estimates} == wanted:
            if preference.fade is None:
                return None
            clause = "FADE HALF LIFE" if isinstance(preference.fade, HalfLife) else "FADE FACTOR"
            return f"{clause} in a continuous query: its pairs are ranked by number alone; leave {clause} out"
        counts = ", ".join(
            f"SUMMARY.Estimate.Count({source.alias}.{attribute})"
            for source, attribute in zip(self.sources, bound.join.attributes, strict=True)
        )
        return (
            "a continuous join ranks its pairs by the counts of both join keys, and by no other expression: write WITH"
            f" PREFERENCE {preference.direction} {counts}"
        )


class _InnerScope:
    """The columns of the stream inside EXISTS; names it lacks resolve to the outer query."""

    def __init__(self, sql: str, stream: Stream, alias: str, outer: Scope, place: int) -> None:
        self.sql = sql
        self._inner = StreamScope(sql, [(alias, stream.name, cast(dict[str, Kind], stream.schema.types))])
        self._outer = outer
        self._alias = alias.lower()
        self._place = place

    def resolve(self, node: exp.Column) -> Input:
        try:
            return self._inner.resolve(node)._replace(source=self._place)
        except NoSuchName as problem:
            if node.table.lower() == self._alias:
                raise
            try:
                return self._outer.resolve(node)
            except NoSuchName as other:
                raise (other if node.table else problem) from None

    def replace(self, node: exp.Expression) -> Input | None:
        return None


def _types(source: Source) -> dict[str, Kind]:
    return dict(source.stream.schema.types)  # type: ignore[arg-type]  # the types of a schema are kinds


def _existence(part: exp.Expression) -> tuple[exp.Exists, bool] | None:
    """The EXISTS of a condition, and whether it is negated."""
    negated = False
    while isinstance(part, exp.Not):
        negated, part = not negated, part.this
    return (part, negated) if isinstance(part, exp.Exists) else None


def _one_kind(left: Compiled, right: Compiled) -> tuple[Compiled, Compiled]:
    if left.kind == right.kind:
        return left, right
    return to_kind(left, "float"), to_kind(right, "float")


def _kinds(query: plan.Query) -> tuple[Kind, ...]:
    while isinstance(query, plan.SetOperation):
        query = query.left
    return tuple(output.kind for output in query.outputs)


def _shown_as(query: plan.Query, number: int, kind: Kind) -> plan.Query:
    """The query with one column converted to another kind, the same or a wider one."""
    if isinstance(query, plan.SetOperation):
        return replace(query, left=_shown_as(query.left, number, kind), right=_shown_as(query.right, number, kind))
    outputs = list(query.outputs)
    made = outputs[number]
    outputs[number] = typed_null(made) if made.kind == "null" and kind == "int" else to_kind(made, kind)
    return replace(query, outputs=tuple(outputs))


def _misled(query: plan.Query) -> bool:
    """Whether a subset of a join's pairs can yield rows that are not among the rows of all pairs."""
    if isinstance(query, plan.StandingSelect):
        return query.grouped and _joins(query)
    return _misled(query.left) or _misled(query.right) or (query.operator == "except" and _joins(query.right))


def _joins(query: plan.Query) -> bool:
    if isinstance(query, plan.SetOperation):
        return _joins(query.left) or _joins(query.right)
    body = query.body
    return isinstance(body, plan.Join) or (isinstance(body, plan.Exists) and isinstance(body.left, plan.Join))
