"""Random queries over the streams of `random_streams`, in two spellings: ours, and DuckDB's for the same meaning.

Nothing here can fail while it runs, and no scalar depends on the order of additions, so rows can be compared bit by
bit; `random_expressions` is about the rest.
"""

import random
from dataclasses import dataclass, field, replace

from tests.query.random_streams import GIANTS, NUMBERS, SECOND, START, WORDS, Model

KINDS = {
    "int": ("k", "n", "id"),
    "float": ("f",),
    "string": ("w", "u"),
    "bool": ("b",),
    "timestamp": ("ts", "t"),
}
KIND_OF = {column: kind for kind, columns in KINDS.items() for column in columns} | {"g": "int"}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Query:
    """A SELECT. `window` is in microseconds; `sorted_by` are the places of columns that the answer is sorted by.

    `total` says that ORDER BY leaves no two rows equal; `keys` are the columns of an equality that the join will rest
    on, if summaries may know them.
    """

    items: list[str]
    sources: list[tuple[str, str]]
    on: list[str] = field(default_factory=list)
    joined: bool = False
    where: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    having: str | None = None
    order: list[str] = field(default_factory=list)
    limit: int | None = None
    window: int | None = None
    preference: str | None = None
    grouped: bool = False
    sorted_by: tuple[int, ...] = ()
    total: bool = False
    keys: tuple[str, str] | None = None

    def ours(self) -> str:
        tables = [stream if stream == alias else f"{stream} {alias}" for stream, alias in self.sources]
        clauses = [self.preference] if self.preference else []
        if self.window is not None:
            clauses.append(f"WINDOW {self.window} MICROSECONDS")
        if self.limit is not None:
            clauses.append(f"LIMIT {self.limit}")
        return self._text(tables, clauses)

    def theirs(self, now: int | None) -> str:
        """Without LIMIT: which rows it keeps of equal ones is nobody's business."""
        tables = []
        for stream, alias in self.sources:
            if self.window is None or now is None:
                tables.append(f"{stream} {alias}")
            else:
                inside = f"epoch_us(ts) > {now - self.window}"  # tuples ahead of it are in every window
                tables.append(f"(SELECT * FROM {stream} WHERE {inside}) {alias}")
        return self._text(tables, []).replace("quantile(", "quantile_cont(")

    def _text(self, tables: list[str], clauses: list[str]) -> str:
        parts = [f"SELECT {', '.join(self.items)} FROM"]
        where = list(self.where)
        if self.joined:
            parts.append(f"{tables[0]} JOIN {tables[1]} ON {' AND '.join(self.on)}")
        else:
            parts.append(", ".join(tables))
            where = [*self.on, *where]
        if where:
            parts.append("WHERE " + " AND ".join(where))
        if self.group:
            parts.append("GROUP BY " + ", ".join(self.group))
        if self.having:
            parts.append("HAVING " + self.having)
        if self.order:
            parts.append("ORDER BY " + ", ".join(self.order))
        return " ".join(parts + clauses)


class Generator:
    """Queries over the streams of some models."""

    def __init__(self, rng: random.Random, models: dict[str, Model]) -> None:
        self.rng = rng
        self.models = models
        self.sources: list[tuple[str, str]] = []

    def query(self) -> Query:
        rng = self.rng
        joins = rng.random() < 0.45
        names = rng.choices(sorted(self.models), k=2 if joins else 1)
        if joins:
            self.sources = list(zip(names, ("x", "y"), strict=True))
        else:
            self.sources = [(names[0], rng.choice((names[0], "x")))]
        query = Query([], list(self.sources))
        if joins:
            query = self.join(query)
        if rng.random() < 0.7:
            query = replace(
                query, where=[self.predicate(rng.choice((0, 1, 1, 2))) for _ in range(rng.choice((1, 1, 2)))]
            )
        query = self.grouped(query) if rng.random() < 0.5 else self.plain(query)
        if rng.random() < 0.45:
            query = replace(query, window=self.window())
        if rng.random() < 0.25:
            query = replace(query, limit=rng.choice((0, 1, 3, 10, 50, 10_000)))
        return query

    def model(self, side: int) -> Model:
        return self.models[self.sources[side][0]]

    def window(self) -> int:
        """Often it begins at a tuple, or a microsecond beside one."""
        rng = self.rng
        now = max((m.now for s, _ in self.sources if (m := self.models[s]).now is not None), default=None)
        rows = self.model(0).accepted
        if now is None or not rows or rng.random() < 0.3:
            return rng.choice((1, SECOND, 10 * SECOND, 77 * SECOND, 100_000 * SECOND))
        start: int = rng.choice(rows[-300:])["ts"]
        return max(1, now - start + rng.choice((-1, 0, 1, 2)))

    # --- scalars -------------------------------------------------------------------------------------------------

    def column(self, name: str, side: int | None = None) -> str:
        side = self.rng.randrange(len(self.sources)) if side is None else side
        alias = self.sources[side][1]
        if len(self.sources) > 1 or self.rng.random() < 0.2:
            return f"{alias}.{name}" if self.rng.random() < 0.95 else f"{alias.upper()}.{name.upper()}"
        return name

    def scalar(self, kind: str, side: int | None = None) -> str:
        rng = self.rng
        side = rng.randrange(len(self.sources)) if side is None and rng.random() < 0.5 else side
        plain = self.column(rng.choice(KINDS[kind]), side)
        if rng.random() < 0.6:
            return plain
        number = rng.choice((2, 3, 5))
        forms = {
            "int": [
                f"({plain} + {number})",
                f"({plain} % {number})",
                f"({plain} * {number} - 1)",
                f"abs({plain})",
                f"coalesce({plain}, 0)",
                f"nullif({plain}, {number})",
                f"length({self.column('u', side)})",
                f"extract(second FROM {self.column('ts', side)})",
                f"(CASE WHEN {self.predicate(0, side)} THEN {plain} ELSE {number} END)",
                f"CAST({self.column('b', side)} AS BIGINT)",
            ],
            "float": [
                f"({plain} * 2)",
                f"({plain} + {self.column('n', side)})",
                f"({self.column('k', side)} / 4)",
                f"coalesce({plain}, 0.5e0)",
                f"floor({plain})",
                self.guarded(side),
            ],
            "string": [
                f"lower({plain})",
                f"substring({plain}, 1, 2)",
                f"({plain} || '-' || {self.column('w', side)})",
                f"coalesce({plain}, 'none')",
            ],
            "bool": [self.predicate(0, side)],
            "timestamp": [
                f"date_trunc('minute', {plain})",
                f"({plain} + INTERVAL '5' SECOND)",
                f"coalesce({self.column('t', side)}, {self.column('ts', side)})",
            ],
        }
        return rng.choice(forms[kind])

    def guarded(self, side: int | None) -> str:
        """A division that only the rows that can take it must see."""
        divisor = self.column("n", side)
        return f"(CASE WHEN {divisor} <> 0 THEN {self.column('id', side)} / {divisor} END)"

    def literal(self, kind: str) -> str:
        rng = self.rng
        if kind == "int":
            return str(rng.choice((*NUMBERS, 4, 6, 10)))
        if kind == "float":
            return rng.choice(("0", "0.5e0", "2", "-2.5e0", "7.75e0", "20"))
        if kind == "string":
            return quote(rng.choice((*WORDS, "item 3", "item 7", "absent")))
        if kind == "bool":
            return rng.choice(("TRUE", "FALSE"))
        model = self.model(0)
        time = rng.choice(model.accepted)["ts"] if model.accepted else START
        return f"TIMESTAMP '{stamp(time - time % rng.choice((1, SECOND)))}'"

    # --- conditions ----------------------------------------------------------------------------------------------

    def predicate(self, depth: int, side: int | None = None) -> str:
        rng = self.rng
        if depth > 0:
            parts = [self.predicate(depth - 1, side) for _ in range(rng.choice((1, 2, 2, 3)))]
            if len(parts) == 1:
                return f"(NOT {parts[0]})"
            return "(" + rng.choice((" AND ", " OR ")).join(parts) + ")"
        kind = rng.choice(("int", "int", "float", "string", "string", "bool", "timestamp"))
        pick = rng.randrange(12)
        if pick < 3:
            return self.named_keys(side)
        if pick < 6:
            return f"{self.scalar_or_column(kind, side)} {rng.choice(COMPARISONS)} {self.literal(kind)}"
        if pick == 6:
            other = "float" if kind == "int" else kind
            return f"{self.plain_column(kind, side)} {rng.choice(COMPARISONS)} {self.plain_column(other, side)}"
        if pick == 7:
            low, high = self.literal(kind), self.literal(kind)
            return f"{self.plain_column(kind, side)} {rng.choice(('', 'NOT '))}BETWEEN {low} AND {high}"
        if pick == 8:
            values = [self.literal(kind) for _ in range(rng.choice((1, 2, 3, 9)))] + ["NULL"] * (rng.random() < 0.1)
            return f"{self.plain_column(kind, side)} {rng.choice(('', 'NOT '))}IN ({', '.join(values)})"
        if pick == 9:
            pattern = rng.choice(("%", "a%", "%a%", "_", "t_a", "%\\_%", "it%", "", "Tea", "%日%"))
            word = rng.choice(("LIKE", "NOT LIKE", "ILIKE"))
            return f"{self.plain_column('string', side)} {word} {quote(pattern)}"
        if pick == 10:
            return f"{self.plain_column(kind, side)} IS {rng.choice(('', 'NOT '))}NULL"
        if rng.random() < 0.3:
            return f"{self.column('g', side)} {rng.choice(COMPARISONS)} {rng.choice(GIANTS[2:])}"
        return f"{self.column('b', side)} IS {rng.choice(('TRUE', 'FALSE', 'NOT TRUE', 'NOT FALSE'))}"

    def plain_column(self, kind: str, side: int | None) -> str:
        return self.column(self.rng.choice(KINDS[kind]), side)

    def scalar_or_column(self, kind: str, side: int | None) -> str:
        return self.plain_column(kind, side) if self.rng.random() < 0.7 or kind == "bool" else self.scalar(kind, side)

    def named_keys(self, side: int | None) -> str:
        """Conditions that an index on a key can answer: present keys, absent ones, none at all."""
        rng = self.rng
        kind, name = rng.choice((("int", "k"), ("string", "w"), ("int", "n"), ("string", "u")))
        rows = self.model(side or 0).accepted
        known = [v for r in rng.sample(rows, min(len(rows), 4)) if (v := r[name]) is not None]
        values = [quote(v) if kind == "string" else str(v) for v in known] or [self.literal(kind)]
        column = self.column(name, side)
        pick = rng.randrange(5)
        if pick == 0:
            return f"{column} = {values[0]}"
        if pick == 1:
            return f"{values[0]} = {column}"
        if pick == 2:
            return f"({column} = {values[0]})"
        if pick == 3 and kind == "int":
            return f"{column} = {rng.choice(('2.0', '2.5', '-1', '99999999999', '1 + 1'))}"
        return f"{column} IN ({', '.join([*values, self.literal(kind), *values[:1]])})"

    # --- joins ---------------------------------------------------------------------------------------------------

    def join(self, query: Query) -> Query:
        rng = self.rng
        on = [self.equality()]
        keys = None
        if rng.random() < 0.6:
            name = rng.choice(("k", "k", "w", "w", "n", "u"))
            keys = name, name
            on = [f"x.{name} = y.{name}" if rng.random() < 0.8 else f"(Y.{name} = x.{name})"]
            if rng.random() < 0.15:
                on.append(self.equality())
                keys = keys if all(self.indexed(side, name) for side in range(2)) else None
        if rng.random() < 0.3:
            on.append(self.between())
        rng.shuffle(on)
        few = [f"x.id % {rng.choice((1, 2, 5))} = 0"] if len(query.sources) == 2 else []
        return replace(query, on=on + few, joined=rng.random() < 0.4, keys=keys)

    def equality(self) -> str:
        rng = self.rng
        forms = [
            "x.k = y.n",
            "x.n = y.k",
            "x.g = y.g",
            "x.f = y.f",
            "x.f = y.k",
            "x.n = y.f",
            "x.g = y.f",
            "x.ts = y.ts",
            "x.t = y.t",
            "date_trunc('second', x.ts) = y.t",
            "x.k + 1 = y.k",
            "x.k % 7 = y.n",
            "x.k * 2 = y.f",
            "lower(x.u) = y.w",
            "x.w = y.u",
            "x.u || 'a' = y.w",
            "x.id = y.id",
            "coalesce(x.n, 3) = coalesce(y.n, 1)",
            "(x.b = y.b) AND (x.id % 7 = 0) AND (y.id % 5 = 0)",
            "x.ts - x.t = y.ts - y.t",
        ]
        return rng.choice(forms)

    def between(self) -> str:
        """A condition on both sides that is no equality."""
        return self.rng.choice(
            (
                "x.ts <= y.ts",
                "x.id < y.id",
                "x.n <> y.n",
                "x.f > y.f",
                "x.u < y.u",
                "(x.b OR y.b)",
                "x.ts - y.ts < INTERVAL '20' SECOND",
                "(x.k = y.k OR x.n = y.n)",
                "x.f + y.f > 1",
            )
        )

    # --- select lists --------------------------------------------------------------------------------------------

    def plain(self, query: Query) -> Query:
        rng = self.rng
        if rng.random() < 0.12:
            items = [rng.choice(("*", f"{self.sources[0][1]}.*"))]
        else:
            items = [self.scalar(rng.choice(list(KINDS))) for _ in range(rng.choice((1, 2, 3, 4)))]
            if rng.random() < 0.5:
                items.append(self.column("id"))
            if rng.random() < 0.1:
                items.append(rng.choice(("1", "'one'", "NULL", "ts - ts" if len(self.sources) == 1 else "x.ts - y.ts")))
            if rng.random() < 0.2:
                items.append(self.column("g"))
        if rng.random() < 0.4:
            return replace(query, items=items)
        ids = [f"{alias}.id" for _, alias in query.sources]
        if rng.random() < 0.4:  # sorted by what is not shown
            order = [self.direction(self.scalar(rng.choice(list(KINDS)))) for _ in range(rng.choice((0, 1, 2)))]
            return replace(query, items=items, order=order + ids, total=True)
        if "*" in items[0]:
            return replace(query, items=items, order=ids, total=True)
        return self.ordered(replace(query, items=items))

    def direction(self, term: str) -> str:
        return (
            term + self.rng.choice(("", "", " ASC", " DESC")) + self.rng.choice(("", "", " NULLS FIRST", " NULLS LAST"))
        )

    def ordered(self, query: Query) -> Query:
        """Sorted by some of the columns shown, named by text, by place or by alias."""
        rng = self.rng
        items, order = list(query.items), []
        places = rng.sample(range(len(items)), min(len(items), rng.choice((1, 1, 2, 3))))
        for place in places:
            pick = rng.randrange(3)
            term = items[place]
            if pick == 0 or not term[0].isalpha() or term == "NULL":
                term = str(place + 1)
            elif pick == 1:
                term = f"c{place}"
                items[place] = f"{items[place]} AS {term}"
            order.append(self.direction(term))
        return replace(query, items=items, order=order, sorted_by=tuple(places))

    def aggregate(self) -> str:
        rng = self.rng
        pick = rng.randrange(10)
        if pick == 0:
            return "count(*)"
        if pick == 1:
            return f"count({self.scalar(rng.choice(list(KINDS)))})"
        if pick == 2:
            return f"count(DISTINCT {self.scalar(rng.choice(list(KINDS)))})"
        if pick < 5:
            return f"{rng.choice(('min', 'max'))}({self.scalar(rng.choice(list(KINDS)))})"
        if pick == 5:
            function = rng.choice(("median({})", "quantile({}, 0.25)", "quantile({}, 0.9)", "quantile({}, 1)"))
            return function.format(self.scalar("int") if rng.random() < 0.5 else f"coalesce({self.column('n')} / 4, 0)")
        if pick == 6:
            return rng.choice(
                (
                    f"(sum({self.column('n')}) / count(*))",
                    f"(max({self.column('id')}) - min({self.column('id')}))",
                    "(count(*) * 2 + 1)",
                    f"coalesce(sum({self.column('n')}), -1)",
                    f"sum(CASE WHEN {self.predicate(0)} THEN 1 ELSE 0 END)",
                )
            )
        function = rng.choice(("sum", "avg"))
        return f"{function}({self.scalar(rng.choice(('int', 'int', 'float')))})"

    def grouped(self, query: Query) -> Query:
        rng = self.rng
        keys = [self.scalar(rng.choice(list(KINDS))) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        if keys and rng.random() < 0.1:
            keys[0] = self.column("g")
        items = [*keys, *(self.aggregate() for _ in range(rng.choice((1, 1, 2, 3))))]
        group = []
        for place, key in enumerate(keys):
            pick = rng.randrange(4)
            if pick == 0:
                group.append(str(place + 1))
            elif pick == 1:
                items[place] = f"{key} AS key{place}"
                group.append(f"key{place}")
            else:
                group.append(key)
        query = replace(query, items=items, group=group, grouped=True)
        if rng.random() < 0.3:
            query = replace(
                query,
                having=rng.choice(
                    (
                        "count(*) > 1",
                        f"sum({self.column('n')}) > 3",
                        f"max({self.column('f')}) > 1 AND count(*) < 9",
                        f"min({self.column('u')}) IS NULL",
                        f"avg({self.column('k')}) BETWEEN 0 AND 3",
                        f"{keys[0]} IS NOT NULL" if keys else "count(*) >= 0",
                    )
                ),
            )
        if rng.random() < 0.5:
            plain = [place for place, item in enumerate(items) if " AS " not in item]
            if plain:
                places = rng.sample(plain, min(len(plain), rng.choice((1, 2))))
                terms = [items[p] if rng.random() < 0.5 and items[p][0].isalpha() else str(p + 1) for p in places]
                query = replace(query, order=[self.direction(t) for t in terms], sorted_by=tuple(places))
        return query

    # --- preferences ---------------------------------------------------------------------------------------------

    def indexed(self, side: int, key: str) -> bool:
        """Whether a summary with a structure knows the key."""
        return any(key == k and structure != "none" for k, structure in self.model(side).summaries.values())

    def preferred(self, query: Query) -> list[Query]:
        """The query with a preference in each direction; none if no summary knows enough for one."""
        rng = self.rng
        self.sources = query.sources
        if len(query.sources) == 1:
            known = sorted(self.model(0).known)
            if not known:
                return []
            aliases = ["", f"{query.sources[0][1]}."]
            pool = [f"{rng.choice(aliases)}{k}" for k in known]
            mine = ""
        else:
            if query.keys is None or not all(k in self.model(side).known for side, k in enumerate(query.keys)):
                return []
            pool = [f"x.{query.keys[0]}", f"y.{query.keys[1]}"]
            mine = rng.choice(("x.", "y."))
        out = []
        for direction in ("DESC", "ASC", "WEIGHTED", ""):
            if direction == "" and rng.random() < 0.8:
                continue
            columns = rng.choices(pool, k=rng.choice((1, 1, 2)))
            factors = [f"SUMMARY.Estimate.{rng.choice(('Count', 'Count', 'Upper', 'Lower'))}({c})" for c in columns]
            pick = rng.randrange(8)
            if pick == 0:
                factors[0] += f" * {mine}{rng.choice(('f', 'n', 'id'))}"
            elif pick == 1:
                factors[0] = f"{factors[0]} × 2 + 1"
            elif pick == 2:
                factors[0] = f"coalesce(CASE WHEN {mine}b THEN {factors[0]} END, 0)"
            elif pick == 3:
                factors[0] = f"- {factors[0]}"
            elif pick == 4:
                factors.append(f"{mine}{rng.choice(('g', 'n'))}")
            fades = "FACTOR 0.8", "FACTOR 1", "FACTOR 0.001", "HALF LIFE 3 SECONDS", "HALF LIFE 1 MICROSECOND"
            fade = rng.choice(("", "", *(f" FADE {how}" for how in fades)))
            text = f"WITH PREFERENCE {direction} {', '.join(factors)}{fade}"
            order = query.order if query.grouped else []
            sorted_by = query.sorted_by if query.grouped else ()
            out.append(replace(query, preference=text, order=order, sorted_by=sorted_by, total=False))
        return out


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def stamp(micros: int) -> str:
    """A time as a literal has it."""
    seconds, rest = divmod(micros - START, SECOND)
    days, seconds = divmod(seconds, 86_400)
    # Streams begin on the first of January 2026 and may hold tuples of the day before.
    date = "2025-12-31" if days < 0 else f"2026-01-{days + 1:02}"
    return f"{date} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"
