"""A thousand standing selections over the replayed end of the log, and the same asked of a plain engine by polling."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promising.client import RemoteSession
from promising.demo.local_service import LocalService
from promising.demo.plain_engine import PlainEngine
from promising.demo.replay import STORES, LogParts, of_stores, send

SELECTIONS = 1000
DEARER = 2.0  # times the average price of the product
STREAM = "even"
SQL = f"SELECT TimeStamp, StoreID, ItemID, Price FROM {STREAM} WHERE ItemID = {{}} AND Price >= {{:.2f}}"
MERGED = "SELECT fresh.* FROM fresh, watches WHERE fresh.ItemID = watches.ItemID AND fresh.Price >= watches.Price"
SCRIPT = 200  # statements sent at a time
PATIENCE = 5.0  # seconds for the last rows
LIMIT = 0.5  # seconds of polling


@dataclass(frozen=True)
class Watched:
    """The replay under standing selections. CPU times are per day of the log; None without a plain engine.

    `delivered` of `expected` rows arrived. `cpu`: the service's and this client's, ingest included. `polled`: a
    statement for each selection over the new rows; `merged`: a single statement, a join with a table of conditions.
    """

    selections: int
    example: str
    days: int
    live: int
    delivered: int
    expected: int
    seconds: float
    cpu: float
    polled: float | None
    polled_days: int
    merged: float | None


def conditions(past: pa.Table) -> pa.Table:
    """The products sold most, and a price for each: columns ItemID and Price."""
    sold = past.group_by("ItemID").aggregate([("Price", "mean"), ("Price", "count")])
    most = sold.sort_by([("Price_count", "descending"), ("ItemID", "ascending")]).slice(0, SELECTIONS)
    prices = np.maximum(np.round(most["Price_mean"].to_numpy() * DEARER, 2), 0.01)
    return pa.table({"ItemID": most["ItemID"].combine_chunks(), "Price": prices})


def matching(rows: pa.Table, watches: pa.Table) -> int:
    """How many rows fulfil a condition."""
    at = pc.index_in(rows["ItemID"].combine_chunks(), value_set=watches["ItemID"].combine_chunks())
    least = watches["Price"].combine_chunks().take(at)
    return pc.sum(pc.fill_null(pc.greater_equal(rows["Price"].combine_chunks(), least), False)).as_py() or 0


def statements(watches: pa.Table) -> list[str]:
    """A selection for each condition."""
    rows = zip(watches["ItemID"].to_pylist(), watches["Price"].to_pylist(), strict=True)
    return [SQL.format(item, price) for item, price in rows]


def watch(
    session: RemoteSession,
    service: LocalService,
    parts: LogParts,
    plain: PlainEngine | None,
    advance: Callable[[int], None],
) -> Watched:
    """Create the selections, replay the rest of the log day by day, count what arrives; then poll the plain engine."""
    watches = conditions(of_stores(parts.log.slice(0, parts.past), STORES[STREAM]))
    asked = statements(watches)
    created = [f"CREATE CONTINUOUS QUERY watch{number} AS {sql}" for number, sql in enumerate(asked)]
    for start in range(0, len(created), SCRIPT):
        session.execute_many(";\n".join(created[start : start + SCRIPT]))
        advance(0)
    subscriptions = [session.subscribe(f"watch{number}") for number in range(len(asked))]
    session.poll(subscriptions, timeout=1.0)
    days = list(parts.days())
    expected = sum(matching(of_stores(day, STORES[STREAM]), watches) for day in days)

    delivered = 0

    def receive(seconds: float) -> None:
        nonlocal delivered
        delivered += sum(delta.inserts.num_rows for delta in session.poll(subscriptions, timeout=seconds).values())

    began, cpu = time.perf_counter(), service.cpu_seconds() + time.process_time()
    for day in days:
        send(session, day)
        receive(0.05)
        advance(day.num_rows)
    end = time.perf_counter() + PATIENCE
    while delivered < expected and time.perf_counter() < end:
        receive(0.05)
    cpu = service.cpu_seconds() + time.process_time() - cpu
    seconds = time.perf_counter() - began
    for subscription in subscriptions:
        subscription.close()
    polled, polled_days, merged = (None, 0, None) if plain is None else poll(plain, days, watches)
    return Watched(
        len(asked),
        asked[0] if asked else "",
        len(days),
        parts.live,
        delivered,
        expected,
        seconds,
        cpu / max(len(days), 1),
        polled,
        polled_days,
        merged,
    )


def poll(plain: PlainEngine, days: list[pa.Table], watches: pa.Table) -> tuple[float | None, int, float | None]:
    """CPU seconds per day: of a statement for each condition, on how many days; and of a single statement."""
    if not days:
        return None, 0, None
    plain.replace("watches", watches)
    asked = [sql.replace(f"FROM {STREAM} ", "FROM fresh ") for sql in statements(watches)]
    merged = polled = 0.0
    polled_days = 0
    began = time.perf_counter()
    for day in days:
        first = time.thread_time()
        for name, rest in STORES.items():
            plain.put(name, of_stores(day, rest))
        plain.replace("fresh", of_stores(day, STORES[STREAM]))
        put = time.thread_time() - first
        merged += put + _cpu(plain, [MERGED])
        if time.perf_counter() - began < LIMIT:
            polled += put + _cpu(plain, asked)
            polled_days += 1
    return polled / polled_days, polled_days, merged / len(days)


def _cpu(plain: PlainEngine, asked: list[str]) -> float:
    """CPU seconds for statements; one thread does the work, and it is this one."""
    began = time.thread_time()
    for sql in asked:
        plain.read(sql)
    return time.thread_time() - began
