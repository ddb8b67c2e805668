"""Thousands of selections and joins standing on two streams: parts alone, many and growth.

Two streams of sales; each selection keeps 5-10 % of one of them by its price, every fifth by price and store; each join
takes such a share of either side, and finds the pairs that sold one item. Each tick brings a batch to each stream, and
every query's new results are written out as numbers of arrival. Ours keep their views over the window as well; `kept`
is what that costs when nothing is written out, `delivered` when each query has a subscriber that takes its rows. One
thread; CPU time of the process; tuples of both streams count.

DuckDB and Polars have several ways to go through the queries of a batch. `new`: they find what is new, of a join the
new tuples with the window of the other side, which is written for them by hand, and keep no view. `whole`: they answer
each query for the whole window, which is the view. The best of the ways that take query by query is held against the
goal. `range join` is none of these: the selections are a table there that the batch is joined with, which is a way of
indexing them together, for ranges alone.

alone: the index of selections against one batch. standing: selections and joins, batch after batch, with all that it
takes to get a batch in. growth: from 100 to 10,000 selections.
"""

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import promising
from benchmarks import data
from benchmarks.harness import PROCESS, Contender, Effort, Figure, Report, alternate
from promising.query.scalar.expressions import compile_predicate, conjuncts
from promising.query.scalar.scope import StreamScope
from promising.query.scalar.types import Kind
from promising.query.sql import parse
from promising.query.standing.engine import Feed
from promising.query.standing.selections import Selections
from promising.query.standing.views import Seen
from promising.testing.streams import zipf_law

BATCH = 4096
"""Tuples a stream and tick."""
STREAMS = ("a", "b")
STORES = 8
ITEMS = 40_000
EXPONENT = 0.8
WINDOW = 5
"""Seconds; tuples come at `data.RATE` a second."""
HELD = WINDOW * data.RATE
KINDS: dict[str, Kind] = {
    "store_id": "int",
    "transaction_id": "int",
    "ts": "timestamp",
    "item_id": "int",
    "price": "float",
}
UNIT = "tuples/s"
GOAL = ">= 10"

Ints = NDArray[np.int64]
Columns = data.Columns


@dataclass(frozen=True)
class Selection:
    """low <= price <= high, and perhaps so with the store."""

    stream: str
    low: float
    high: float
    stores: tuple[int, int] | None = None

    @property
    def sql(self) -> str:
        stores = "" if self.stores is None else f" AND store_id BETWEEN {self.stores[0]} AND {self.stores[1]}"
        return f"price BETWEEN {self.low!r} AND {self.high!r}{stores}"


@dataclass(frozen=True)
class Joined:
    """Sales of one item in both streams, at a price in a range each."""

    a: Selection
    b: Selection

    def sql(self, a: str, b: str, shown: str) -> str:
        where = (
            f"a.price BETWEEN {self.a.low!r} AND {self.a.high!r} AND b.price BETWEEN {self.b.low!r} AND {self.b.high!r}"
        )
        return f"SELECT {shown} FROM {a} a JOIN {b} b ON a.item_id = b.item_id WHERE {where}"


def selections(number: int, seed: int = 1) -> list[Selection]:
    """Every second on either stream."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(number):
        wide = rng.uniform(0.05, 0.10)
        both = i % 5 == 4
        price = 4 * wide if both else wide
        low = rng.random() * (1 - price)
        store = int(rng.integers(0, STORES - 1))
        stores = (store, store + 1) if both else None
        made.append(Selection(STREAMS[i % 2], float(100 * low), float(100 * (low + price)), stores))
    return made


def joins(number: int) -> list[Joined]:
    plain = [s for s in selections(20 * number, seed=2) if s.stores is None]
    of = {stream: [s for s in plain if s.stream == stream] for stream in STREAMS}
    return [Joined(a, b) for a, b in zip(of["a"][:number], of["b"][:number], strict=True)]


class Sales:
    """Both streams, batch after batch, without an end."""

    def __init__(self, batch: int) -> None:
        rng = np.random.default_rng(3)
        self._law = np.cumsum(zipf_law(ITEMS, EXPONENT))[:-1]
        self._batch = batch
        self._drawn = {stream: [self._draw(rng) for _ in range(-(-2 * HELD // batch))] for stream in STREAMS}

    def _draw(self, rng: np.random.Generator) -> Columns:
        n = self._batch
        return {
            "store_id": rng.integers(0, STORES, n),
            "item_id": np.searchsorted(self._law, rng.random(n), side="right"),
            "price": rng.random(n) * 100.0,
        }

    def batch(self, number: int) -> dict[str, Columns]:
        first = number * self._batch
        numbers = np.arange(first, first + self._batch, dtype=np.int64)
        made = {}
        for stream in STREAMS:
            drawn = self._drawn[stream][number % len(self._drawn[stream])]
            made[stream] = {
                "store_id": drawn["store_id"],
                "transaction_id": numbers,
                "ts": data.times(self._batch, first),
                "item_id": drawn["item_id"],
                "price": drawn["price"],
            }
        return made


# --- the index of selections, by itself --------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How to find the rows of all queries in a batch, and, untimed, how to read those of each from what was found."""

    run: Callable[[], Any]
    read: Callable[[Any], dict[int, Any]]


class NoRows:
    """No column is read a second time."""

    def take(self, column: str, ids: Ints) -> pa.Array:
        raise AssertionError(f"column {column} was read again")


def indexed(asked: list[Selection]) -> Selections:
    made = Selections(NoRows())
    for number, selection in enumerate(asked):
        sql = f"SELECT 1 FROM a WHERE {selection.sql}"
        parts = conjuncts(parse(sql).args["where"].this)
        scope = StreamScope(sql, [("a", "a", KINDS)])
        made.add(number, [compile_predicate(part, scope) for part in parts], parts)
    return made


def alone(report: Report, effort: Effort) -> None:
    """One batch, all selections on one stream."""
    polars = _polars()
    number = 100 if effort.quick else 1_000
    asked = selections(number)
    index = indexed(asked)
    figures = []
    for size in (1024, 4096) if effort.quick else (1024, BATCH, 16384, 65536):
        columns = Sales(size).batch(0)["a"]
        arrow = {name: pa.array(columns[name]) for name in ("price", "store_id")}
        ts = columns["ts"]
        frame = _frame(polars, columns)
        with duckdb.connect(config={"threads": 1}) as duck:
            rivals = _polars_ways(polars, frame, asked) | _duck_ways(duck, columns, asked)
            ours = Way(lambda: index.index(0, ts, arrow.__getitem__).lists(), lambda found: _split(*found))  # noqa: B023
            ways = {"ours": ours} | rivals
            _same(ways, asked)
            ways["kept"] = Way(lambda: index.index(0, ts, arrow.__getitem__).touched(), lambda found: found)  # noqa: B023
            took = alternate({name: _timed(way.run) for name, way in ways.items()}, 3, PROCESS)
        rate = {name: size / ns * 1e9 for name, ns in took.items()}
        sizes: dict[str, int | float | str] = {"queries": number, "batch": size}
        figures += _against("selections, one batch", rate, sizes, judged=size == BATCH and not effort.quick)
        figures.append(Figure("selections, one batch, kept", rate["kept"], unit=UNIT, sizes=sizes))
    report.part("alone", f"{number:,} selections of 5-10 %, one batch, one thread", figures)


def _split(numbers: Ints, ends: Ints, found: Ints) -> dict[int, Ints]:
    """The matches of each selection."""
    return dict(zip(numbers.tolist(), np.split(found, ends[:-1]), strict=True))


def _timed(way: Callable[[], object]) -> Contender:
    return lambda: way


def _against(
    metric: str, rate: Mapping[str, float], sizes: dict[str, int | float | str], *, judged: bool
) -> list[Figure]:
    """Ours against each; the goal is for the best of an opponent's ways that take query by query."""
    figures = []
    for opponent in ("Polars", "DuckDB"):
        ways = {n: r for n, r in rate.items() if n.startswith(opponent)}
        best = max((n for n in ways if "range join" not in n), key=lambda n: ways[n])
        for name, theirs in ways.items():
            goal = GOAL if judged and name == best else ""
            figures.append(Figure(metric, rate["ours"], theirs, name, UNIT, goal, sizes))
    return figures


# --- Polars and DuckDB -------------------------------------------------------------------------------------------


def _polars() -> Any:
    """Polars on one thread: it asks once, when it is loaded."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    polars = importlib.import_module("polars")
    if polars.thread_pool_size() != 1:
        raise RuntimeError("polars was loaded with more than one thread")
    return polars


def _frame(polars: Any, columns: Columns) -> Any:
    return polars.DataFrame({n: c.view("datetime64[us]") if n == "ts" else c for n, c in columns.items()})


def _arrow(columns: Columns) -> pa.Table:
    return pa.table({n: columns[n].view("datetime64[us]") if n == "ts" else columns[n] for n in KINDS})


def _kept(polars: Any, s: Selection) -> Any:
    kept = polars.col("price").is_between(s.low, s.high)
    return kept if s.stores is None else kept & polars.col("store_id").is_between(*s.stores)


def _polars_ways(polars: Any, frame: Any, asked: list[Selection]) -> dict[str, Way]:
    """Numbers of rows: all queries in one `select`, and one lazy query each, all collected together."""
    found = [polars.arg_where(_kept(polars, s)) for s in asked]
    lists = [one.implode().alias(str(i)) for i, one in enumerate(found)]
    lazy = [frame.lazy().select(one) for one in found]

    def lists_of(made: Any) -> dict[int, Any]:
        return {i: column[0].to_numpy() for i, column in enumerate(made.iter_columns())}

    def frames_of(made: Any) -> dict[int, Any]:
        return {i: one.to_series().to_numpy() for i, one in enumerate(made)}

    return {
        "Polars, one select": Way(lambda: frame.select(lists), lists_of),
        "Polars, collect_all": Way(lambda: polars.collect_all(lazy), frames_of),
    }


def _duck_ways(duck: duckdb.DuckDBPyConnection, columns: Columns, asked: list[Selection]) -> dict[str, Way]:
    """Numbers of rows: a prepared statement for each query, and one join with a table of all queries."""
    kept = {"row": columns["transaction_id"], "price": columns["price"], "store_id": columns["store_id"]}
    duck.register("arrow", pa.table(kept))
    duck.execute("CREATE TABLE batch AS SELECT * FROM arrow")
    _prepare(duck, "batch", "row")
    _ranges(duck, asked)
    return {
        "DuckDB, prepared": Way(lambda: [_prepared(duck, "batch", s) for s in asked], lambda f: dict(enumerate(f))),
        "DuckDB, range join": Way(lambda: _range_join(duck, "batch", "row"), _by_query),
    }


def _prepare(duck: duckdb.DuckDBPyConnection, table: str, shown: str) -> None:
    both = "price BETWEEN $1 AND $2 AND store_id BETWEEN $3 AND $4"
    duck.execute(f"PREPARE {table}_one AS SELECT {shown} FROM {table} WHERE price BETWEEN $1 AND $2")
    duck.execute(f"PREPARE {table}_two AS SELECT {shown} FROM {table} WHERE {both}")


def _prepared(duck: duckdb.DuckDBPyConnection, table: str, s: Selection) -> Any:
    kind, more = ("one", "") if s.stores is None else ("two", f", {s.stores[0]}, {s.stores[1]}")
    (found,) = duck.execute(f"EXECUTE {table}_{kind}({s.low!r}, {s.high!r}{more})").fetchnumpy().values()
    return found


def _ranges(duck: duckdb.DuckDBPyConnection, asked: list[Selection]) -> None:
    """The selections as a table."""
    stores = [(0, STORES) if s.stores is None else s.stores for s in asked]
    rows = {
        "query": list(range(len(asked))),
        "stream": [s.stream for s in asked],
        "low": [s.low for s in asked],
        "high": [s.high for s in asked],
        "store_low": [low for low, _ in stores],
        "store_high": [high for _, high in stores],
    }
    duck.register("asked", pa.table(rows))
    duck.execute("CREATE TABLE ranges AS SELECT * FROM asked")


def _range_join(duck: duckdb.DuckDBPyConnection, table: str, shown: str, stream: str | None = None) -> dict[str, Any]:
    mine = "" if stream is None else f" AND stream = '{stream}'"
    return duck.execute(
        f"SELECT query, {shown} AS found FROM {table} JOIN ranges ON price BETWEEN low AND high"
        f" AND store_id BETWEEN store_low AND store_high{mine}"
    ).fetchnumpy()


def _by_query(found: dict[str, Any]) -> dict[int, Any]:
    order = np.argsort(found["query"], kind="stable")
    numbers, starts = np.unique(found["query"][order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(found["found"][order], starts[1:]), strict=True))


def _same(ways: Mapping[str, Way], asked: list[Selection]) -> None:
    """All find the same rows for some of the queries."""
    seen = {name: way.read(way.run()) for name, way in ways.items()}
    none = np.empty(0, np.int64)
    for number in range(0, len(asked), max(1, len(asked) // 20)):
        want = seen["ours"].get(number, none)
        for name, found in seen.items():
            have = np.sort(found.get(number, none))
            if not np.array_equal(have, want):
                raise AssertionError(f"{asked[number].sql}: {name} has {len(have)} rows, ours {len(want)}")


# --- all of it, batch after batch --------------------------------------------------------------------------------


class Ours:
    """A session with standing queries."""

    def __init__(self, asked: list[Selection], joined: list[Joined]) -> None:
        self.session = promising.open(seed=7)
        for stream in STREAMS:
            self.session.execute(
                f"CREATE STREAM {stream} (store_id INT, transaction_id BIGINT, ts TIMESTAMP, item_id INT, price DOUBLE)"
                f" TIMESTAMP BY ts OPTIONS (max_tuples = {1 << 22})"
            )
        shown = "store_id, item_id, price"
        for number, s in enumerate(asked):
            self._let_stand(f"s{number}", f"SELECT {shown} FROM {s.stream} WHERE {s.sql}")
        for number, j in enumerate(joined):
            self._let_stand(f"j{number}", j.sql("a", "b", "a.item_id, a.price AS one, b.price AS other"))
        self.engine = self.session.standing
        self._selections = [self.engine.view(f"s{number}") for number in range(len(asked))]
        self._joins = [self.engine.view(f"j{number}") for number in range(len(joined))]
        self._numbers = [reader.number for view in self._selections for reader in view.readers]
        self._sources = {s.stream.name: s for view in (*self._selections[:2], *self._joins[:1]) for s in view.sources}
        self._feeds: list[Feed] = []

    def _let_stand(self, name: str, select: str) -> None:
        self.session.execute(f"CREATE CONTINUOUS QUERY {name} AS {select} WINDOW {WINDOW} SECONDS")

    def tick(self, batch: Mapping[str, Columns]) -> None:
        """Take a batch in and bring all views up to date."""
        for stream, columns in batch.items():
            self.session.ingest(stream, columns)
        self.engine.tick()

    def written(self, batch: Mapping[str, Columns]) -> list[tuple[Any, ...]]:
        """The same, and the new results of each query: numbers of arrivals, and of joins pairs of these."""
        before = {name: source.rows.end for name, source in self._sources.items()}
        number = self.engine.number
        self.tick(batch)
        found: list[tuple[Any, ...]] = []
        for name, end in before.items():
            fresh = self._sources[name].fresh  # what has just come, which is where subscribers look
            assert fresh is not None and fresh.first == end
            found.append(fresh.lists())
        for view in self._joins:
            found.append((view.since(Seen(number, view.now, before), same=True).ids,))
        return found

    def delivered(self, batch: Mapping[str, Columns]) -> list[Any]:
        """The same, with the rows of each query's new results for a subscriber of its own."""
        if not self._feeds:
            self._feeds = [self.engine.subscribe(status.name) for status in self.engine.status()]
        self.tick(batch)
        return list(self.engine.take(self._feeds).values())

    def sizes(self, found: list[tuple[Any, ...]]) -> tuple[int, int]:
        """New rows of all selections, and new pairs of all joins."""
        rows = 0
        for numbers, ends, _ in found[: len(STREAMS)]:
            rows += int(np.diff(ends, prepend=0)[np.isin(numbers, self._numbers)].sum())
        return rows, sum(len(ids) for (ids,) in found[len(STREAMS) :])

    def views(self) -> tuple[int, int]:
        """Rows and pairs in the views."""
        return sum(view.size for view in self._selections), sum(view.size for view in self._joins)


class Polars:
    """Polars with the windows of both streams: finds what is new in each query, or, with `whole`, all that is in it."""

    def __init__(self, asked: list[Selection], joined: list[Joined], way: str, *, whole: bool) -> None:
        self.polars = _polars()
        self.way = way
        self.whole = whole
        self.joined = joined
        none = {n: np.empty(0, np.float64 if kind == "float" else np.int64) for n, kind in KINDS.items()}
        self.held = {stream: _frame(self.polars, none) for stream in STREAMS}
        self.found = {
            stream: [self.polars.arg_where(_kept(self.polars, s)) for s in asked if s.stream == stream]
            for stream in STREAMS
        }
        self.lists = {s: [one.implode().alias(str(i)) for i, one in enumerate(self.found[s])] for s in STREAMS}

    def written(self, batch: Mapping[str, Columns]) -> list[Any]:
        new = {stream: _frame(self.polars, columns) for stream, columns in batch.items()}
        old = {stream: self.held[stream].tail(HELD - len(new[stream])) for stream in STREAMS}
        self.held = {s: self.polars.concat([old[s], new[s]], rechunk=True) for s in STREAMS}
        asked = self.held if self.whole else new
        found: list[Any] = []
        waiting: list[Any] = []
        if self.way == "one select":
            found += [asked[stream].select(self.lists[stream]) for stream in STREAMS if self.lists[stream]]
        else:
            waiting += [asked[stream].lazy().select(one) for stream in STREAMS for one in self.found[stream]]
        a, b, every_b = asked["a"].lazy(), new["b"].lazy(), self.held["b"].lazy()
        for j in self.joined:
            waiting.append(self._pairs(j, a, every_b))
            if not self.whole:
                waiting.append(self._pairs(j, old["a"].lazy(), b))
        return [*found, *self.polars.collect_all(waiting)]

    def _pairs(self, j: Joined, a: Any, b: Any) -> Any:
        col = self.polars.col
        kept_a = a.filter(_kept(self.polars, j.a)).select("item_id", col("transaction_id").alias("a"))
        kept_b = b.filter(_kept(self.polars, j.b)).select("item_id", col("transaction_id").alias("b"))
        return kept_a.join(kept_b, on="item_id").select("a", "b")

    def sizes(self, found: list[Any]) -> tuple[int, int]:
        """Rows of all selections, and pairs of all joins."""
        if self.way == "one select":
            number = sum(map(bool, self.lists.values()))
            rows = sum(len(column[0]) for frame in found[:number] for column in frame.iter_columns())
        else:
            number = sum(map(len, self.found.values()))
            rows = sum(map(len, found[:number]))
        return rows, sum(map(len, found[number:]))


class Duck:
    """DuckDB, likewise. What is new and what is old are tables of their own; with `whole` all is new."""

    def __init__(self, asked: list[Selection], joined: list[Joined], way: str, *, whole: bool) -> None:
        self.duck = duckdb.connect(config={"threads": 1})
        self.way = way
        self.whole = whole
        self.asked = {stream: [s for s in asked if s.stream == stream] for stream in STREAMS}
        self.joins = len(joined)
        types = "store_id BIGINT, transaction_id BIGINT, ts TIMESTAMP, item_id BIGINT, price DOUBLE"
        for stream in STREAMS:
            for table in (f"{stream}_new", f"{stream}_old"):
                self.duck.execute(f"CREATE TABLE {table} ({types})")
            _prepare(self.duck, f"{stream}_new", "transaction_id")
        _ranges(self.duck, asked)
        shown = "a.transaction_id AS a, b.transaction_id AS b"
        for i, j in enumerate(joined):
            parts = [j.sql("a_new", "b_new", shown)]
            if not whole:
                parts += [j.sql("a_new", "b_old", shown), j.sql("a_old", "b_new", shown)]
            self.duck.execute(f"PREPARE join_{i} AS {' UNION ALL '.join(parts)}")

    def written(self, batch: Mapping[str, Columns]) -> list[Any]:
        execute = self.duck.execute
        found: list[Any] = []
        for stream, columns in batch.items():
            if not self.whole:
                execute(f"INSERT INTO {stream}_old SELECT * FROM {stream}_new")
                execute(f"DELETE FROM {stream}_new")
            self.duck.register("arrow", _arrow(columns))
            execute(f"INSERT INTO {stream}_new SELECT * FROM arrow")
            last = int(columns["transaction_id"][-1])
            execute(f"DELETE FROM {stream}_{'new' if self.whole else 'old'} WHERE transaction_id <= {last - HELD}")
        for stream in STREAMS:
            if self.way == "prepared":
                found += [_prepared(self.duck, f"{stream}_new", s) for s in self.asked[stream]]
            elif self.asked[stream]:
                found.append(_range_join(self.duck, f"{stream}_new", "transaction_id", stream))
        return found + [execute(f"EXECUTE join_{i}").fetchnumpy() for i in range(self.joins)]

    def sizes(self, found: list[Any]) -> tuple[int, int]:
        """Rows of all selections, and pairs of all joins."""
        number = len(found) - self.joins
        rows = sum(len(one) if self.way == "prepared" else len(one["found"]) for one in found[:number])
        return rows, sum(len(one["a"]) for one in found[number:])


def _rivals(asked: list[Selection], joined: list[Joined]) -> dict[str, "Polars | Duck"]:
    return {
        "Polars, new, one select": Polars(asked, joined, "one select", whole=False),
        "Polars, new, collect_all": Polars(asked, joined, "collect_all", whole=False),
        "Polars, whole, one select": Polars(asked, joined, "one select", whole=True),
        "Polars, whole, collect_all": Polars(asked, joined, "collect_all", whole=True),
        "DuckDB, new, prepared": Duck(asked, joined, "prepared", whole=False),
        "DuckDB, whole, prepared": Duck(asked, joined, "prepared", whole=True),
        "DuckDB, new, range join": Duck(asked, joined, "range join", whole=False),
    }


Tick = Callable[[Mapping[str, Columns]], object]


def _rates(ways: Mapping[str, Tick], batch: int, warm: Mapping[str, int], ticks: Mapping[str, int]) -> dict[str, float]:
    """Tuples a second of CPU time, of both streams together, with full windows. The ways take turns, tick by tick."""
    sales = Sales(batch)
    numbers: dict[str, Iterator[int]] = {name: count() for name in ways}
    for name, way in ways.items():
        for _ in range(warm[name]):
            way(sales.batch(next(numbers[name])))
    taken: dict[str, list[int]] = {name: [] for name in ways}
    for turn in range(max(ticks.values())):
        for name, way in ways.items():
            if turn < ticks[name]:
                columns = sales.batch(next(numbers[name]))
                before = time.process_time_ns()
                way(columns)
                taken[name].append(time.process_time_ns() - before)
    return {name: 2 * batch * len(spent) / sum(spent) * 1e9 for name, spent in taken.items()}


def many(report: Report, effort: Effort) -> None:
    """Selections, joins, and both on two streams."""
    batch = 2048 if effort.quick else BATCH
    figures = []
    _check(selections(40), joins(4), 2 * BATCH)
    for number, joined in ((40, 0), (40, 3)) if effort.quick else ((1_000, 0), (0, 50), (1_000, 50)):
        asked, pairs = selections(number), joins(joined)
        ways: dict[str, Tick] = {
            "ours": Ours(asked, pairs).written,
            "kept": Ours(asked, pairs).tick,
            "delivered": Ours(asked, pairs).delivered,
        }
        mine = set(ways)
        ways |= {name: rival.written for name, rival in _rivals(asked, pairs).items() if number or "range" not in name}
        full = -(-HELD // batch) + 1
        warm = {name: 2 if effort.quick else full for name in ways}
        ticks = {name: 2 if effort.quick else 32 if name in mine else 3 if "Duck" in name else 8 for name in ways}
        rate = _rates(ways, batch, warm, ticks)
        sizes: dict[str, int | float | str] = {"queries": number, "joins": joined, "batch": batch}
        judged = number > 0 and not effort.quick
        figures += _against("written", rate, sizes, judged=judged)
        figures += [Figure(name, rate[name], unit=UNIT, sizes=sizes) for name in ("kept", "delivered")]
    report.part("many", f"selections and joins on two streams, window of {HELD:,} tuples each", figures)


def _check(asked: list[Selection], pairs: list[Joined], batch: int) -> None:
    """All find as many rows of all selections and as many pairs of all joins, tick by tick, until tuples end."""
    sales = Sales(batch)
    ours = Ours(asked, pairs)
    rivals = _rivals(asked, pairs)
    for number in range(HELD // batch + 3):
        columns = sales.batch(number)
        new, views = ours.sizes(ours.written(columns)), ours.views()
        for name, rival in rivals.items():
            found, want = rival.sizes(rival.written(columns)), views if rival.whole else new
            if found != want:
                raise AssertionError(f"tick {number}: {name} has {found} rows and pairs, ours {want}")


def growth(report: Report, effort: Effort) -> None:
    """More and more selections."""
    steps = (20, 100) if effort.quick else (100, 1_000, 10_000)
    batch = 1024 if effort.quick else BATCH
    figures, costs = [], {}
    for number in steps:
        asked = selections(number)
        ways: dict[str, Tick] = {"ours": Ours(asked, []).written, "kept": Ours(asked, []).tick}
        rate = _rates(ways, batch, dict.fromkeys(ways, 4 if effort.quick else 16), dict.fromkeys(ways, 32))
        sizes: dict[str, int | float | str] = {"queries": number, "batch": batch}
        for name, metric in (("ours", "selections"), ("kept", "selections, kept")):
            figures.append(Figure(metric, rate[name], unit=UNIT, sizes=sizes))
            costs[name, number] = 1e9 / rate[name] / number
    few, many = steps[0], steps[-1]
    for name, metric in (("ours", "a selection"), ("kept", "a selection, kept")):
        title = f"{metric}: {many:,} against {few:,}"
        opponent = f"ours, {few:,} queries"
        figures.append(
            Figure(title, costs[name, many], costs[name, few], opponent, "CPU ns/tuple", "<= 1", {"batch": batch})
        )
    report.part("growth", "selections on two streams, from few to many", figures)
