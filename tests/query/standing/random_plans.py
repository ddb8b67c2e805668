"""Random continuous queries over streams of one schema and two tables, as structures of `oracle`."""

import random
from dataclasses import replace as _with

import pyarrow as pa

from tests.query.standing import oracle
from tests.query.standing.oracle import Aggregate, Exists, Expr, Query, Select, SetOperation, Source

SECOND = 1_000_000
STREAMS = ("a", "b", "c")
COLUMNS = {"id": "int", "k": "int", "n": "int", "w": "string", "f": "float", "b": "bool", "ts": "timestamp"}
TYPES = {"int": "BIGINT", "string": "VARCHAR", "float": "DOUBLE", "bool": "BOOLEAN", "timestamp": "TIMESTAMP"}
ARROW = {
    "int": pa.int64(),
    "string": pa.string(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
}
TABLES = {
    "items": {"k": "int", "label": "string", "rate": "float", "size": "int"},
    "words": {"w": "string", "k": "int", "good": "bool"},
}
"""The first column is the primary key."""
WORDS = ("", "a", "A", "tea", "Tee", "é", "日本", "it's")
FLOATS = (0.0, -0.0, 0.25, 0.5, 1.0, 1.75, -2.5, 4.0)
WINDOWS = tuple(n * SECOND for n in (1, 3, 5, 5, 8, 8, 12, 20))
COMPARED = ("=", "<>", "<", "<=", ">", ">=")
FAVOURITES = ("k", "w", "f", "b")
SHOWN = ("int", "int", "string", "float", "bool", "timestamp")


class Plans:
    """Queries, each with its own windows.

    `growing` ones have neither negation nor aggregates; `tables` are the tables that may be joined.
    """

    def __init__(
        self, rng: random.Random, *, growing: bool = False, tables: tuple[str, ...] = tuple(TABLES), depth: int = 3
    ) -> None:
        self.rng = rng
        self.growing = growing
        self.tables = tables
        self.depth = depth

    def query(self) -> Query:
        kinds = [self.rng.choice(SHOWN) for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3)))]
        if self.rng.random() < 0.06:
            return self.endless(kinds)
        if self.rng.random() < 0.2:
            return self.simple(kinds)
        depth = self.rng.choice((0, 0, 0, 1, 1, 2, 3))
        return self.nested(kinds, min(depth, self.depth))

    def nested(self, kinds: list[str], depth: int) -> Query:
        if depth == 0:
            return self.select(kinds, few=False)
        words = ("UNION", "INTERSECT") if self.growing else ("UNION", "INTERSECT", "EXCEPT", "EXCEPT")
        sides = [depth - 1, self.rng.randrange(depth)]
        self.rng.shuffle(sides)
        left, right = (
            self.nested(kinds, side) if side else self.select(kinds, few=self.rng.random() < 0.8) for side in sides
        )
        return SetOperation(self.rng.choice(words), self.rng.random() < 0.5, left, right)

    def endless(self, kinds: list[str]) -> Query:
        """Without a window: nothing but a selection."""
        return self.plain(kinds, None, few=False)

    def simple(self, kinds: list[str]) -> Query:
        """A selection or a join and nothing more: their clients can go on where they were after a restart."""
        window = self.rng.choice(WINDOWS[2:])
        if self.rng.random() < 0.4:
            return self.plain(kinds, window, few=False)
        body = self.join(window)
        return _with(body, items=tuple(self.item(body.sources, kind, few=False) for kind in kinds))

    # --- SELECT --------------------------------------------------------------------------------------------------

    def select(self, kinds: list[str], *, few: bool) -> Select:
        """few: shows values that are often equal, so that sets have something to say."""
        rng = self.rng
        window = rng.choice(WINDOWS) if rng.random() < 0.9 else rng.randrange(1, 15 * SECOND)
        body = self.body(window)
        if not self.growing and rng.random() < 0.35:
            return self.grouped(body, kinds)
        items = [self.item(body.sources, kind, few) for kind in kinds]
        return _with(body, items=tuple(items), distinct=rng.random() < 0.3)

    def plain(self, kinds: list[str], window: int | None, *, few: bool) -> Select:
        source = Source(self.rng.choice(STREAMS), "x")
        items = tuple(self.item((source,), kind, few) for kind in kinds)
        return Select((source,), items, self.conditions((source,), 0.8), window=window)

    def body(self, window: int) -> Select:
        """What is read: a stream, two that are joined, one joined with a table, one or two with [NOT] EXISTS."""
        rng = self.rng
        pick = rng.random()
        if pick < 0.25:
            sources = (Source(rng.choice(STREAMS), "x"),)
            return Select(sources, (), self.conditions(sources, 0.5), window=window)
        if pick < 0.5:
            return self.join(window)
        if pick < 0.7 and self.tables:
            return self.table_join(window)
        body = self.join(window) if rng.random() < 0.25 else None
        if body is None:
            sources = (Source(rng.choice(STREAMS), "x"),)
            body = Select(sources, (), self.conditions(sources, 0.5), window=window)
        return _with(body, exists=self.exists(body.sources))

    def join(self, window: int) -> Select:
        rng = self.rng
        sources = (Source(rng.choice(STREAMS), "x"), Source(rng.choice(STREAMS), "y"))
        equalities = [self.equality("x", "y")]
        if rng.random() < 0.1:
            equalities.append(self.equality("x", "y"))
        on = rng.random() < 0.5
        rest = [*equalities[1:], *self.conditions(sources[:1], 0.3), *self.conditions(sources[1:], 0.3)]
        if rng.random() < 0.3:
            rest.append(self.across())
        rng.shuffle(rest)
        return Select(sources, (), (equalities[0], *rest), window=window, on=on)

    def table_join(self, window: int) -> Select:
        rng = self.rng
        table = rng.choice(self.tables)
        stream, looked_up = Source(rng.choice(STREAMS), "x"), Source(table, "t", table=True)
        key = next(iter(TABLES[table]))
        forms = [_column(stream, key)]
        if key == "k":
            forms += [_column(stream, "n"), oracle.arithmetic("+", _column(stream, "k"), _int(1))]
        left, right = rng.choice(forms), _column(looked_up, key)
        equality = oracle.compare("=", *((left, right) if rng.random() < 0.5 else (right, left)))
        sources = (stream, looked_up) if rng.random() < 0.8 else (looked_up, stream)
        rest = [*self.conditions((stream,), 0.3), *self.conditions((looked_up,), 0.2)]
        if rng.random() < 0.2:
            small = _column(looked_up, "size" if table == "items" else "k")
            rest.append(oracle.compare("<=", small, _column(stream, "n")))
        return Select(sources, (), (equality, *rest), window=window, on=rng.random() < 0.5)

    def exists(self, outer: tuple[Source, ...]) -> Exists:
        rng = self.rng
        inner = Source(rng.choice(STREAMS), "e")
        name = rng.choice(("k", "k", "w", "n", "f"))
        names = [name] + [other for other in ("b", "n") if other != name and rng.random() < 0.15]
        alias = rng.choice(outer)
        keys = tuple((_column(alias, name), _column(inner, name)) for name in names)
        negated = not self.growing and rng.random() < 0.6
        return Exists(inner, keys, tuple(self.conditions((inner,), 0.5)), negated)

    def equality(self, left: str, right: str) -> Expr:
        rng = self.rng
        x, y = (lambda name, s=s: oracle.column(s, name, COLUMNS[name]) for s in (left, right))
        forms = [
            (x("k"), y("k")),
            (x("k"), y("k")),
            (x("w"), y("w")),
            (x("n"), y("n")),
            (x("k"), y("n")),
            (x("f"), y("f")),
            (oracle.arithmetic("+", x("k"), _int(1)), y("k")),
            (_lower(x("w")), y("w")),
            (x("f"), y("k")),
        ]
        sides = rng.choice(forms)
        return oracle.compare("=", *(sides if rng.random() < 0.7 else sides[::-1]))

    def across(self) -> Expr:
        """A condition on both sides of a join that is no equality."""
        forms = [("<=", "ts", "ts"), ("<", "id", "id"), ("<>", "n", "n"), (">", "f", "f"), ("<>", "w", "w")]
        operator, left, right = self.rng.choice(forms)
        x, y = oracle.column("x", left, COLUMNS[left]), oracle.column("y", right, COLUMNS[right])
        return oracle.compare(operator, x, y)

    # --- scalars -------------------------------------------------------------------------------------------------

    def item(self, sources: tuple[Source, ...], kind: str, few: bool) -> Expr:
        rng = self.rng
        known = [(s, name) for s in sources for name, k in _columns(s).items() if k == kind]
        if few or kind != "timestamp":
            known = [(s, name) for s, name in known if (name not in ("id", "ts") or not few)]
        if not known:
            return (
                self.constant(kind) if kind != "timestamp" else _column(sources[0 if not sources[0].table else 1], "ts")
            )
        favourites = [(s, name) for s, name in known if few and name in FAVOURITES]
        what = _column(*rng.choice(favourites if favourites and rng.random() < 0.8 else known))
        if rng.random() < (0.85 if few else 0.7):
            return what
        if kind == "int":
            number = _int(rng.choice((2, 3, 5)))
            return rng.choice(
                (
                    oracle.arithmetic("+", what, number),
                    oracle.arithmetic("*", what, number),
                    oracle.arithmetic("%", what, number),
                    oracle.coalesce(what, number),
                    oracle.case(self.condition(sources[:1]), what, number),
                )
            )
        if kind == "float":
            return rng.choice((oracle.arithmetic("*", what, _int(2)), oracle.coalesce(what, oracle.literal(0.5, kind))))
        if kind == "string":
            return rng.choice((_lower(what), oracle.coalesce(what, oracle.literal("none", kind))))
        return what

    def constant(self, kind: str) -> Expr:
        rng = self.rng
        values = {"int": (-1, 0, 1, 2, 3, 5), "float": FLOATS, "string": (*WORDS, "x"), "bool": (True, False)}
        return oracle.literal(rng.choice(values[kind]), kind)

    def conditions(self, sources: tuple[Source, ...], chance: float) -> tuple[Expr, ...]:
        rng = self.rng
        if rng.random() >= chance:
            return ()
        return tuple(self.condition(sources) for _ in range(rng.choice((1, 1, 1, 2))))

    def condition(self, sources: tuple[Source, ...], depth: int = 1) -> Expr:
        rng = self.rng
        if depth and rng.random() < 0.2:
            first = self.condition(sources, 0)
            if rng.random() < 0.4:
                return oracle.negation(first)
            return oracle.connective(rng.choice(("OR", "OR", "AND")), first, self.condition(sources, 0))
        source = rng.choice(sources)
        names = {
            name: kind for name, kind in _columns(source).items() if kind not in ("timestamp", "bool") and name != "id"
        }
        name = rng.choice(list(names))
        what, kind = _column(source, name), names[name]
        pick = rng.random()
        if pick < 0.45:
            operator = rng.choice(COMPARED if kind != "string" else ("=", "<>", "<>", ">"))
            sides = (what, self.constant(kind))
            return oracle.compare(operator, *(sides if rng.random() < 0.85 else sides[::-1]))
        if pick < 0.6:
            low, high = sorted((self.constant(kind) for _ in range(2)), key=lambda e: e.of({}))
            return oracle.between(what, low, high)
        if pick < 0.75:
            return oracle.among(what, [self.constant(kind) for _ in range(rng.choice((1, 2, 3)))], rng.random() < 0.3)
        if pick < 0.85:
            return oracle.is_null(what, rng.random() < 0.7)
        if kind == "int":
            return oracle.compare("=", oracle.arithmetic("%", what, _int(2)), _int(rng.choice((0, 1))))
        return oracle.compare("<>", what, self.constant(kind))

    # --- GROUP BY ------------------------------------------------------------------------------------------------

    def grouped(self, body: Select, kinds: list[str]) -> Select:
        """Each item is a key of GROUP BY, or an aggregate of its kind."""
        rng = self.rng
        keys: list[Expr] = []
        aggregates: list[Aggregate] = []
        items: list[Expr] = []
        for kind in kinds:
            aggregate = self.aggregate(body.sources, kind) if rng.random() < 0.6 or kind == "timestamp" else None
            if aggregate is None:
                key = self.item(body.sources, kind, few=True)
                if not any(c in key.text for c in ("x.", "y.", "t.")):
                    key = _column(next(s for s in body.sources if not s.table), "k")
                    key = key if kind == "int" else self.as_kind(key, kind)
                items.append(_result(key.text, kind, f"k{len(keys)}"))
                keys.append(key)
            else:
                items.append(_result(aggregate.text, kind, f"a{len(aggregates)}"))
                aggregates.append(aggregate)
                if kind == "int" and rng.random() < 0.15:
                    items[-1] = oracle.arithmetic("+", items[-1], _int(1))
        for _ in range(rng.choice((0, 0, 1))):
            keys.append(_column(next(s for s in body.sources if not s.table), rng.choice(("k", "w", "n", "b"))))
        if not aggregates and (not keys or rng.random() < 0.5):
            aggregates.append(Aggregate("count", None))
        having = None
        if rng.random() < 0.3:
            having = self.having(body.sources, aggregates)
        return _with(
            body,
            items=tuple(items),
            group=tuple(keys),
            aggregates=tuple(aggregates),
            having=having,
            distinct=rng.random() < 0.1,
        )

    def as_kind(self, key: Expr, kind: str) -> Expr:
        """Something of that kind that depends on a number."""
        if kind == "bool":
            return oracle.is_null(key, False)
        return oracle.case(oracle.compare(">", key, _int(1)), self.constant(kind), self.constant(kind))

    def aggregate(self, sources: tuple[Source, ...], kind: str) -> Aggregate:
        rng = self.rng
        numbers = [
            (s, name) for s in sources for name, k in _columns(s).items() if k in ("int", "float") and name != "id"
        ]
        if kind == "int":
            pick = rng.random()
            if pick < 0.35:
                return Aggregate("count", None)
            if pick < 0.6:
                anything = [(s, name) for s in sources for name in _columns(s)]
                return Aggregate("count", _column(*rng.choice(anything)), rng.random() < 0.5)
            whole = [(s, name) for s, name in numbers if _columns(s)[name] == "int"]
            return Aggregate(rng.choice(("sum", "min", "max")), _column(*rng.choice(whole)))
        if kind == "float" and rng.random() < 0.6:
            name = rng.choice(("avg", "avg", "median", "quantile"))
            argument = _column(*rng.choice(numbers))
            return Aggregate(name, argument, share=rng.choice((0.0, 0.25, 0.75, 1.0)) if name == "quantile" else None)
        known = [(s, name) for s in sources for name, k in _columns(s).items() if k == kind]
        argument = _column(*rng.choice(known)) if known else self.as_kind(_column(sources[0], "k"), kind)
        names = ("sum", "min", "max") if kind == "float" else ("min", "max")
        return Aggregate(rng.choice(names), argument)

    def having(self, sources: tuple[Source, ...], aggregates: list[Aggregate]) -> Expr:
        """A condition on an aggregate of whole numbers, which may be one that is not shown."""
        rng = self.rng
        whole = [i for i, a in enumerate(aggregates) if a.kind == "int"]
        if whole and rng.random() < 0.6:
            place = rng.choice(whole)
        else:
            place = len(aggregates)
            aggregates.append(self.aggregate(sources, "int"))
        what = _result(aggregates[place].text, "int", f"a{place}")
        return oracle.compare(rng.choice((">", ">", "<", ">=", "<>")), what, _int(rng.choice((0, 1, 1, 2, 4))))


def _columns(source: Source) -> dict[str, str]:
    return TABLES[source.name] if source.table else COLUMNS


def _column(source: Source, name: str) -> Expr:
    return oracle.column(source.alias, name, _columns(source)[name])


def _int(value: int) -> Expr:
    return oracle.literal(value, "int")


def _lower(what: Expr) -> Expr:
    return oracle.call("lower", "string", str.lower, what)


def _result(text: str, kind: str, name: str) -> Expr:
    """A key or an aggregate, as items and HAVING see it."""
    return Expr(text, kind, lambda env: env[""][name])
