"""How long a start takes with thousands of continuous queries in the store, against the same start without them.

Until the session is there, in a process that has loaded what a process loads once; until the service accepts calls, as
a process of its own; and until every view has started, which goes on beside the calls.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import storage_data
from benchmarks.harness import Effort, Figure, Report
from benchmarks.service_host import hosting
from benchmarks.storage_data import ITEMS, alone
from promising.index.storage.store import Store
from promising.query.session import Session

GOAL = "<= 3"


class Start(NamedTuple):
    """Seconds until the session is there, and until every view is."""

    session: float
    views: float


def run(report: Report, effort: Effort) -> None:
    tuples, queries = (1 << 18, 200) if effort.quick else (10_000_000, 5_000)
    rounds = 1 if effort.quick else 3
    found = {}
    with storage_data.folder() as folder:
        for number in (0, queries):
            path = folder / str(number)
            alone(_fill, path, tuples, number)
            starts = [alone(_start, path, number) for _ in range(rounds)]
            processes = [_process(path) for _ in range(rounds)]
            found[number] = [statistics.median(some) for some in (*zip(*starts, strict=True), processes)]
    sizes: dict[str, int | float | str] = {"tuples": tuples, "queries": queries}
    without = "without queries"
    (session, views, process), (session_0, _, process_0) = found[queries], found[0]
    report.part(
        "standing",
        "a start with continuous queries against one without",
        [
            Figure("until the session is there", session, session_0, without, "s", GOAL, sizes),
            Figure("until the process accepts calls", process, process_0, without, "s", GOAL, sizes),
            Figure("until every view is there", views, unit="s", sizes=sizes),
        ],
    )


def statements(number: int) -> Iterator[str]:
    """Of five shapes: two selections, two sums, and groups."""
    for at in range(number):
        store, item, price = at % 64, at * 7 % ITEMS, at % 90
        items = f"{item} AND {item + at}"
        yield (
            f"SELECT ts, item_id, price FROM sales WHERE item_id = {item} AND price > {price} WINDOW 1 MINUTE",
            f"SELECT ts, price FROM sales WHERE store_id = {store} AND item_id < {item} WINDOW 10 SECONDS",
            f"SELECT count(*) AS n, sum(price) AS s FROM sales WHERE item_id BETWEEN {items} WINDOW 1 MINUTE",
            f"SELECT avg(price) AS p FROM sales WHERE item_id = {item} WINDOW 10 SECONDS",
            f"SELECT store_id, count(*) AS n FROM sales WHERE item_id = {item} GROUP BY store_id WINDOW 10 SECONDS",
        )[at % 5]


def _fill(path: Path, tuples: int, queries: int) -> None:
    store = Store.open(path, seed=storage_data.SEED)
    stream = storage_data.make(store, tuples)
    with Session(store=store) as session:
        for number, sql in enumerate(statements(queries)):
            session.execute(f"CREATE CONTINUOUS QUERY q{number} AS {sql}")
        for batch in storage_data.batches(tuples):
            stream.append(batch)


def _start(path: Path, queries: int) -> Start:
    storage_data.warm_up()
    began = time.perf_counter()
    with Session(store=Store.open(path)) as session:
        there = time.perf_counter() - began
        while session.standing.waits("sales"):
            session.standing.tick()
        views = time.perf_counter() - began
        status = session.standing.status()
        if len(status) != queries or any(one.problem or one.label == "starting" for one in status):
            raise RuntimeError(f"{len(status)} of {queries} queries, or some that did not start")
    return Start(there, views)


def _process(path: Path) -> float:
    began = time.perf_counter()
    with hosting("service", data=str(path)):
        return time.perf_counter() - began
