"""Measures ingest, a join with preference, an aggregate and estimates on your own data and machine.

The rows are split into two stores that are joined on the key. Each join method is run several times, interleaved with
the others, and reported by its median; time is CPU time of the process, DuckDB uses one thread like the others. Rows
are read as Arrow tables and released at once. The size of the join is computed from the keys, not estimated, so shares
of it are exact.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from promising.bench.estimates import Errors, window_errors
from promising.errors import BadQuestion, EmptyBatch
from promising.query.session import Session

RUNS = 3
SHARES = (0.5, 0.9, 1.0)
"""Shares of the join whose time is reported, after that of the first row."""
ERROR = 0.01
"""Target error of the aggregate."""
WINDOWS = (0.01, 0.05, 0.2)
"""Lengths of the windows of estimates, as parts of a store."""
TRIES = 50
"""Windows of each length."""
STORES = ("store1", "store2")
BATCH = 1 << 16
SPANS = 64
"""Length of the finest granularity as a part of the rows' time span; with it all rows are retained."""
SECOND = 1_000_000
WARM = 0.1  # CPU seconds of a warm-up run
DESC, PLAIN, DUCK = "DESC", "no preference", "DuckDB"
Kind = Literal["int", "float", "string", "bool", "timestamp"]
TYPES: dict[Kind, str] = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP",
}
Curve = list[tuple[float, int]]
"""CPU seconds and rows so far."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The roles of columns. value: averaged; split: its values assign rows to the stores, else rows alternate."""

    kinds: dict[str, str]
    time: str
    key: str
    value: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Data:
    """Rows in order of event time, split in two."""

    plan: Plan
    halves: tuple[pa.Table, pa.Table]
    left_out: int
    """Rows without a key or a time."""

    @property
    def rows(self) -> int:
        return sum(half.num_rows for half in self.halves)

    @property
    def pairs(self) -> int:
        """Rows of the join: over all keys, the tuples of one store times those of the other."""
        counts = [_counted(half.column(self.plan.key)) for half in self.halves]
        return sum(number * counts[1].get(key, 0) for key, number in counts[0].items())


@dataclass(frozen=True)
class Joined:
    """One join method, run several times."""

    name: str
    curves: list[Curve]
    pairs: int

    def seconds(self, share: float) -> float | None:
        """CPU seconds until this share of the join in the median run; 0 is the first row. None if the time ran out."""
        wanted = max(1, int(np.ceil(share * self.pairs)))
        found = [next((cpu for cpu, rows in curve if rows >= wanted), np.inf) for curve in self.curves]
        middle = statistics.median(found) if self.pairs else np.inf
        return None if middle == np.inf else float(middle)

    @property
    def reached(self) -> float:
        """The final share of the join in the median run."""
        return statistics.median(curve[-1][1] for curve in self.curves) / self.pairs if self.pairs else 1.0


@dataclass(frozen=True)
class Averaged:
    """One way to average a column over the join: CPU seconds, the answer, and its relative error."""

    name: str
    seconds: float
    value: float
    off: float


@dataclass(frozen=True)
class Result:
    """The results."""

    data: Data
    in_seconds: float
    """CPU seconds to ingest all rows into both stores and their summaries."""
    bytes: int
    raw: int
    """Bytes of the same rows in Arrow."""
    pairs: int
    joins: list[Joined]
    averages: list[Averaged] = field(default_factory=list)
    estimates: dict[float, Errors] = field(default_factory=dict)
    """By length of the window, as a part of the first store."""


def generated(rows: int, seed: int = 1) -> tuple[pa.Table, Plan]:
    """A generated shop log: Zipf-distributed items, each with its price."""
    from promising.testing.streams import zipf  # noqa: PLC0415  # only without a file

    made = zipf(rows, 20_000, 0.8, seed=seed, start=1_700_000_040 * SECOND)
    columns = {name: pa.array(values) for name, values in made.items()}
    columns["ts"] = columns["ts"].cast(pa.timestamp("us"))
    kinds = {"store_id": "int", "transaction_id": "int", "ts": "timestamp", "item_id": "int", "price": "float"}
    return pa.table(columns), Plan(kinds, "ts", "item_id", "price")


def choose_key(table: pa.Table, kinds: Mapping[str, str], time: str) -> str:
    """The column with the most distinct values among those whose values repeat."""
    best, most = None, 1
    for name, kind in kinds.items():
        if name == time or kind not in ("int", "string"):
            continue
        different = pc.count_distinct(table.column(name)).as_py()
        if most < different <= table.num_rows // 2:
            best, most = name, different
    if best is None:
        raise BadQuestion("no column of whole numbers or strings has values that repeat; say which is the key: --key")
    return best


def choose_value(kinds: Mapping[str, str]) -> str | None:
    """The first column of floats: integers are often identifiers."""
    return next((name for name, kind in kinds.items() if kind == "float"), None)


def cut(table: pa.Table, plan: Plan) -> Data:
    """The rows that have a key and a time, in order of time, in two halves."""
    there = pc.and_(pc.is_valid(table.column(plan.key)), pc.is_valid(table.column(plan.time)))
    kept = table.filter(there)
    if kept.num_rows < 2:
        raise EmptyBatch(f"{kept.num_rows} rows have both {plan.key} and {plan.time}: too few to measure with")
    kept = kept.sort_by(plan.time)
    if plan.split is None:
        second = np.arange(kept.num_rows) % 2 == 1
    else:
        codes = kept.column(plan.split).combine_chunks().dictionary_encode(null_encoding="encode").indices
        second = codes.to_numpy(zero_copy_only=False) % 2 == 1
    halves = kept.filter(pa.array(~second)), kept.filter(pa.array(second))
    if not all(half.num_rows for half in halves):
        raise BadQuestion(f"column {plan.split!r} has one value only, so there is nothing to split by")
    return Data(plan, halves, table.num_rows - kept.num_rows)


def measure(data: Data, budget: float, say: Say, *, runs: int = RUNS) -> Result:
    """Run all measurements. budget: CPU second limit of a run; say: called with the name of the next step."""
    say(f"Taking in {data.rows:,} rows ...")
    with Session(seed=7, clock=lambda: 1 << 60) as session:
        in_seconds, used = _fill(session, data)
        pairs = data.pairs
        duck = _duck(data)
        ways: dict[str, Callable[[float], Curve]] = {
            DESC: lambda most: _run(session, _join(data.plan, DESC), most),
            PLAIN: lambda most: _run(session, _join(data.plan), most),
        }
        if duck is not None:
            ways[DUCK] = lambda most: _run_duck(duck, _join(data.plan), most)
        curves: dict[str, list[Curve]] = {name: [] for name in ways}
        say(f"Joining them to {pairs:,} pairs, {len(ways)} ways, {runs} runs each ...")
        for number in range(runs + 1):  # the first is a warm-up
            for name in ways if number % 2 else reversed(ways):
                curve = ways[name](budget if number else min(WARM, budget))
                if number:
                    curves[name].append(curve)
        joins = [Joined(name, found, pairs) for name, found in curves.items()]
        averages = []
        if data.plan.value is not None and pairs:
            say(f"Averaging {data.plan.value} over the join ...")
            averages = _averages(session, duck, data, budget, joins, runs)
        say("Estimating how often keys occur in windows ...")
        estimates = _estimates(session, data)
    raw = sum(half.nbytes for half in data.halves)
    return Result(data, in_seconds, used, raw, pairs, joins, averages, estimates)


# --- promising ---------------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """A name as SQL text."""
    return '"' + name.replace('"', '""') + '"'


def _fill(session: Session, data: Data) -> tuple[float, int]:
    """Fill both stores and their summaries: CPU seconds and bytes."""
    plan = data.plan
    times = [half.column(plan.time).cast(pa.timestamp("us")).cast(pa.int64()) for half in data.halves]
    spanned = max(pc.max(t).as_py() for t in times) - min(pc.min(t).as_py() for t in times)
    granularity = max(1, -(-spanned // (SPANS * SECOND)))
    columns = ", ".join(f"{quoted(name)} {TYPES[cast(Kind, kind)]}" for name, kind in plan.kinds.items())
    took, used = 0, 0
    for name, half in zip(STORES, data.halves, strict=True):
        session.execute(
            f"CREATE STREAM {name} ({columns}) TIMESTAMP BY {quoted(plan.time)}"
            f" OPTIONS (max_tuples = {max(1 << 16, half.num_rows)})"
        )
        session.execute(
            f"CREATE SUMMARY {name}_keys ON {name} ({quoted(plan.key)})"
            f" WITH GRANULARITY {granularity} SECONDS AND COLLAPSE (4, 4)"
        )
        batches = [half.slice(at, BATCH) for at in range(0, half.num_rows, BATCH)]
        began = time.process_time_ns()
        for batch in batches:
            session.ingest(name, batch, strict=True)
        took += time.process_time_ns() - began
        used += session.stream(name).nbytes + session.describe(f"{name}_keys").bytes
    return took / 1e9, used


def _join(plan: Plan, direction: str = "") -> str:
    key, when = quoted(plan.key), quoted(plan.time)
    select = (
        f"SELECT a.{key} AS k, a.{when} AS t1, b.{when} AS t2 FROM {STORES[0]} a, {STORES[1]} b WHERE a.{key} = b.{key}"
    )
    preference = f"SUMMARY.Estimate.Count(a.{key}), SUMMARY.Estimate.Count(b.{key})"
    return f"{select} WITH PREFERENCE {direction} {preference}" if direction else select


def _average(plan: Plan) -> str:
    assert plan.value is not None
    key = quoted(plan.key)
    return f"SELECT avg(a.{quoted(plan.value)}) AS mean FROM {STORES[0]} a, {STORES[1]} b WHERE a.{key} = b.{key}"


def _run(session: Session, sql: str, most: float) -> Curve:
    """Rows as they arrive, parsing and planning included."""
    began = time.process_time_ns()
    made: Curve = [(0.0, 0)]
    for frame in session.query(sql, most=most).stream():
        made.append(((time.process_time_ns() - began) / 1e9, made[-1][1] + frame.rows.num_rows))
    return made


def _averages(session: Session, duck: Any, data: Data, budget: float, joins: list[Joined], runs: int) -> list[Averaged]:
    """To 1 %, and exactly for each method that finished the join in time."""
    done = {joined.name for joined in joins if joined.reached >= 1}
    sql = _average(data.plan)

    def ours(text: str) -> Any:
        return session.query(text, most=budget).to_arrow()["mean"][0].as_py()

    ways: dict[str, Callable[[], Any]] = {f"to {ERROR:.0%}": lambda: ours(f"{sql} WITH ERROR {ERROR}")}
    if PLAIN in done:
        ways["exact"] = lambda: ours(sql)
    if duck is not None and DUCK in done:
        ways[f"{DUCK}, exact"] = lambda: duck.execute(sql).fetchone()[0]
    truth = _true_average(data)
    made = []
    for name, way in ways.items():
        took = []
        for number in range(runs + 1):
            began = time.process_time_ns()
            value = way()
            if number:
                took.append((time.process_time_ns() - began) / 1e9)
        if value is None or truth is None:
            continue
        made.append(Averaged(name, statistics.median(took), float(value), _off(float(value), truth)))
    return made


def _estimates(session: Session, data: Data) -> dict[float, Errors]:
    """In random windows over the first store; none if it is too short for them."""
    half = data.halves[0]
    times = half.column(data.plan.time).cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    keys = half.column(data.plan.key).to_numpy()
    index = session.summary(f"{STORES[0]}_keys").index
    spans = {part: int(len(times) * part) for part in WINDOWS}
    return {part: window_errors(index, times, keys, span, TRIES, 1) for part, span in spans.items() if span}


def _off(value: float, truth: float) -> float:
    return abs(value - truth) / abs(truth) if truth else abs(value)


def _true_average(data: Data) -> float | None:
    """By key: the sum of a key's values is weighted by the tuples of that key in the other store."""
    plan = data.plan
    one = pa.table({"k": data.halves[0].column(plan.key), "v": data.halves[0].column(cast(str, plan.value))})
    counts = _counted(data.halves[1].column(plan.key))
    total, number = 0.0, 0
    for row in one.group_by("k").aggregate([("v", "sum"), ("v", "count")]).to_pylist():
        weight = counts.get(row["k"], 0)
        if weight and row["v_count"]:
            total += float(row["v_sum"]) * weight
            number += row["v_count"] * weight
    return total / number if number else None


def _counted(column: pa.ChunkedArray) -> dict[Any, int]:
    found = column.value_counts()
    return dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))


# --- DuckDB ------------------------------------------------------------------------------------------------------


def _duck(data: Data) -> Any:
    """DuckDB with both stores in memory, on one thread; None if it is not installed."""
    try:
        import duckdb  # noqa: PLC0415  # optional
    except ImportError:
        return None
    duck = duckdb.connect(config={"threads": 1})
    duck.execute("SET preserve_insertion_order = false")
    for name, half in zip(STORES, data.halves, strict=True):
        duck.register("arrow", half)
        duck.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow")
        duck.unregister("arrow")
    return duck


def _run_duck(duck: Any, sql: str, most: float) -> Curve:
    """Rows as they arrive, in batches."""
    began = time.process_time_ns()
    made: Curve = [(0.0, 0)]
    found = duck.sql(sql)
    reader = found.to_arrow_reader(BATCH) if hasattr(found, "to_arrow_reader") else found.fetch_arrow_reader(BATCH)
    for batch in _until(reader, began + int(most * 1e9)):
        made.append(((time.process_time_ns() - began) / 1e9, made[-1][1] + batch.num_rows))
    return made


def _until(reader: Any, end: int) -> Iterator[Any]:
    for batch in reader:
        yield batch
        if time.process_time_ns() > end:
            return


def points(joined: Joined) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """CPU seconds and share of the join, for the run of median duration."""
    curve = sorted(joined.curves, key=lambda c: c[-1][0])[len(joined.curves) // 2]
    times, rows = zip(*curve, strict=True)
    return np.array(times), np.array(rows) / max(joined.pairs, 1)
