"""How far a query goes beyond its budget, and how long it goes on after it was cancelled.

Queries of every kind over two streams and a wide one, friendly and hostile (wide, long, deep), with budgets from 1 ms
to 1 s, as many in each octave. CPU time is taken from outside, around asking and reading the whole answer, so parsing,
planning and the last frame count. Before that every kind runs once without being measured: what a process loads and
compiles once is told as a figure of its own.
"""

import gc
import threading
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.harness import Effort, Figure, Report, give_back
from promising.query import Answer, Session
from promising.testing import streams

SHORTEST_BUDGET, LONGEST_BUDGET = 0.001, 1.0
"""Seconds."""
ALLOWED, SHARE = 0.010, 0.05
"""A query may overshoot by so many seconds, or by this share of its budget."""
CANCEL = 20.0
"""Milliseconds."""
GROUPS = 200_000

COUNTS = "SUMMARY.Estimate.Count(a.key), SUMMARY.Estimate.Count(b.key)"
NAMES = "SUMMARY.Estimate.Count(a.name), SUMMARY.Estimate.Count(b.name)"
PAIRS = "SELECT a.key, a.price, b.price FROM a, b WHERE a.key = b.key"

KINDS = {
    "join": PAIRS,
    "join, where": f"{PAIRS} AND a.price > b.price AND a.amount < 1",
    "join DESC": f"{PAIRS} WITH PREFERENCE DESC {COUNTS}",
    "join ASC": f"{PAIRS} WITH PREFERENCE ASC {COUNTS}",
    "join WEIGHTED": f"{PAIRS} WITH PREFERENCE WEIGHTED {COUNTS}",
    "join DESC, fade": f"{PAIRS} WITH PREFERENCE DESC {COUNTS} FADE FACTOR 0.8",
    "join WEIGHTED, fade": f"{PAIRS} WITH PREFERENCE WEIGHTED {COUNTS} FADE FACTOR 0.8",
    "join DESC, window": f"{PAIRS} WITH PREFERENCE DESC {COUNTS} WINDOW {{half}} SECONDS",
    "join WEIGHTED, window": f"{PAIRS} WITH PREFERENCE WEIGHTED {COUNTS} WINDOW {{half}} SECONDS",
    "join DESC, tuples": f"{PAIRS} WITH PREFERENCE DESC SUMMARY.Estimate.Count(b.key) * a.price",
    "join, strings": "SELECT a.name, b.price FROM a, b WHERE a.name = b.name",
    "join DESC, strings": f"SELECT a.name, b.price FROM a, b WHERE a.name = b.name WITH PREFERENCE DESC {NAMES}",
    "join, no summary": "SELECT a.price, b.price FROM a, b WHERE a.part = b.part",
    "join of a hot key": f"{PAIRS} AND a.key = {{hot}}",
    "join, sorted": f"{PAIRS} ORDER BY a.price",
    "join, first 100": f"{PAIRS} ORDER BY a.price LIMIT 100",
    "selection": "SELECT * FROM a WHERE price < 5",
    "selection DESC": "SELECT key, price FROM a WITH PREFERENCE DESC SUMMARY.Estimate.Count(key)",
    "selection WEIGHTED": "SELECT key, price FROM a WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(key)",
    "selection DESC, tuples": "SELECT key, price FROM a WITH PREFERENCE DESC SUMMARY.Estimate.Count(key) * price",
    "selection of strings": "SELECT name, price FROM a WHERE name LIKE '%7'",
    "selection, sorted": "SELECT key, name, price FROM a ORDER BY price DESC, key",
    "a hot key": "SELECT key, price FROM a WHERE key = {hot}",
    "aggregates": "SELECT count(*), sum(amount), avg(price), median(price) FROM a WHERE price < 50",
    "aggregates of a join": "SELECT count(*), sum(a.amount), avg(b.price) FROM a, b WHERE a.key = b.key",
    "distinct": "SELECT count(DISTINCT part), max(price) FROM a",
    "9 groups": "SELECT floor(price / 12), count(*), sum(amount) FROM a GROUP BY floor(price / 12)",
    "many groups": "SELECT part, count(*), sum(amount), avg(price) FROM a GROUP BY part",
    "many groups, medians": "SELECT part, median(price) FROM a GROUP BY part ORDER BY 2 LIMIT 10",
    "many groups of strings": "SELECT name, count(*), sum(amount) FROM a GROUP BY name",
    "many groups of a join": "SELECT a.part, count(*) FROM a, b WHERE a.key = b.key GROUP BY a.part",
}


def _tree(depth: int) -> str:
    """Comparisons under a tree of AND and OR."""
    if not depth:
        return "price > 0.5"
    return f"({_tree(depth - 1)} {'AND' if depth % 2 else 'OR'} {_tree(depth - 1)})"


WIDE = 1_500  # columns of the wide stream
WIDE_NAMES = [f"c{number}" for number in range(WIDE)]
HOSTILE = {
    "wide, by name": f"SELECT {', '.join(WIDE_NAMES)} FROM wide",
    "wide, *": "SELECT * FROM wide",
    "wide, joined": "SELECT * FROM wide x, wide y WHERE x.c0 = y.c0",
    "wide, sorted": f"SELECT c0 FROM wide ORDER BY {', '.join(WIDE_NAMES)}",
    "wide, 500 sums": f"SELECT {', '.join(f'sum({name})' for name in WIDE_NAMES[:500])} FROM wide",
    "wide, 500 keys": f"SELECT {', '.join(WIDE_NAMES[:500])} FROM wide GROUP BY {', '.join(WIDE_NAMES[:500])}",
    "wide, 1,000 conditions": "SELECT c0 FROM wide WHERE " + " AND ".join(f"{n} >= 0" for n in WIDE_NAMES[:1000]),
    "IN of 2,000 keys": f"SELECT price FROM a WHERE key IN ({', '.join(map(str, range(2000)))})",
    "IN of 2,000 numbers": f"SELECT key FROM a WHERE price IN ({', '.join(f'{n}.5' for n in range(2000))})",
    "IN of 2,000 strings": "SELECT key FROM a WHERE name IN (" + ", ".join(f"'i{n}'" for n in range(2000)) + ")",
    "60 parentheses": f"SELECT key FROM a WHERE {'(' * 60}price > 0.5{')' * 60}",
    "a tree of 512 conditions": f"SELECT key FROM a WHERE {_tree(9)}",
    "LIKE of 400 wildcards": f"SELECT key FROM a WHERE name LIKE '{'_%' * 200}x'",
    "100 LIKEs": "SELECT key FROM a WHERE " + " OR ".join(f"name LIKE '%{n}_{n}%'" for n in range(100)),
    "arithmetic": f"SELECT {' + '.join(f'price * {n}' for n in range(60))} FROM a",
}
"""As long as `max_sql_tokens` allows, or nearly so."""


def run(report: Report, effort: Effort) -> None:
    n = 1 << 17 if effort.quick else 1_000_000
    queries = 100 if effort.quick else 1_000
    session, given = _session(n)
    kinds = {name: sql.format(**given) for name, sql in KINDS.items()}
    report.part("overshoot", "CPU time beyond the budget", _budgets(session, kinds, queries, n))
    report.part("overshoot", "CPU time beyond the budget, hostile statements", _budgets(session, HOSTILE, queries, n))
    report.part("overshoot", "wall time from cancel to the end", _cancels(session, kinds, queries // 5, n))
    report.part("overshoot", "wall time from cancel, hostile statements", _cancels(session, HOSTILE, queries // 5, n))


# --- budgets ---------------------------------------------------------------------------------------------------------


def _budgets(session: Session, kinds: dict[str, str], queries: int, n: int) -> list[Figure]:
    first = _over(session, next(iter(kinds.values())), SHORTEST_BUDGET, 0)
    for sql in kinds.values():
        for budget in (SHORTEST_BUDGET, 30 * SHORTEST_BUDGET):
            _over(session, sql, budget, 0)
    give_back()
    rng = np.random.default_rng(1)
    budgets = SHORTEST_BUDGET * (LONGEST_BUDGET / SHORTEST_BUDGET) ** (
        (np.arange(queries) + rng.random(queries)) / queries
    )
    rng.shuffle(budgets)
    names = [list(kinds)[i % len(kinds)] for i in range(queries)]
    over = np.array(
        [_over(session, kinds[name], float(b), i) for i, (name, b) in enumerate(zip(names, budgets, strict=True))]
    )
    sizes: dict[str, int | float | str] = {"queries": queries, "tuples": n}
    allowance = np.maximum(ALLOWED, SHARE * budgets)
    p99 = float(np.quantile(over / allowance, 0.99))
    figures = [
        Figure("first query of a process", first * 1e3, unit="ms", sizes={"tuples": n}),
        Figure("p50", float(np.quantile(over, 0.5)) * 1e3, unit="ms", sizes=sizes),
        Figure("p99", float(np.quantile(over, 0.99)) * 1e3, unit="ms", sizes=sizes),
        Figure("max", float(over.max()) * 1e3, unit="ms", sizes=sizes),
        Figure("p50 of the budget", float(np.quantile(over / budgets, 0.5)) * 100, unit="%", sizes=sizes),
        Figure("p99 of the budget", float(np.quantile(over / budgets, 0.99)) * 100, unit="%", sizes=sizes),
        Figure("p99 of what is allowed", p99 * 100, unit="%", goal="<= 100", sizes=sizes),
    ]
    for low, high in ((0.001, 0.01), (0.01, 0.1), (0.1, 1.0)):
        chosen = (budgets >= low) & (budgets < high)
        span: dict[str, int | float | str] = {
            "queries": int(chosen.sum()),
            "budget": f"{low * 1e3:g}-{high * 1e3:g} ms",
        }
        figures.append(Figure("p99", float(np.quantile(over[chosen], 0.99)) * 1e3, unit="ms", sizes=span))
    for name in kinds:
        mine = over[[name == other for other in names]]
        figures.append(Figure(f"worst, {name}", float(mine.max()) * 1e3, unit="ms", sizes={"queries": len(mine)}))
    return figures


def _over(session: Session, sql: str, budget: float, seed: int) -> float:
    """Seconds of CPU time beyond the budget; 0 if it ended within. Letting go of the answer is not part of it."""
    gc.collect()
    before = time.thread_time()
    answer = session.query(sql, budget=budget, seed=seed)
    for frame in answer:
        del frame
    return max(time.thread_time() - before - budget, 0.0)


# --- cancel ----------------------------------------------------------------------------------------------------------


def _cancels(session: Session, kinds: dict[str, str], times: int, n: int) -> list[Figure]:
    rng = np.random.default_rng(2)
    took: dict[str, list[float]] = {}
    worked: list[float] = []
    for number in range(times):
        name = list(kinds)[number % len(kinds)]
        wait = _cancelled(session.query(kinds[name], seed=number), float(rng.uniform(0.002, 0.2)))
        if wait is not None:
            took.setdefault(name, []).append(wait[0] * 1e3)
            worked.append(wait[1] * 1e3)
    waits: NDArray[np.float64] = np.array([w for each in took.values() for w in each])
    sizes: dict[str, int | float | str] = {"queries": len(waits), "tuples": n}
    figures = [
        Figure("p50", float(np.quantile(waits, 0.5)), unit="ms", sizes=sizes),
        Figure("p99", float(np.quantile(waits, 0.99)), unit="ms", goal=f"<= {CANCEL:g}", sizes=sizes),
        Figure("max", float(waits.max()), unit="ms", sizes=sizes),
        Figure("CPU time of it, p99", float(np.quantile(worked, 0.99)), unit="ms", sizes=sizes),
    ]
    for name, each in took.items():
        figures.append(Figure(f"worst, {name}", max(each), unit="ms", sizes={"queries": len(each)}))
    return figures


def _cancelled(answer: Answer, after: float) -> tuple[float, float] | None:
    """Seconds of wall time, and of CPU time of its thread, until the answer ends once it is cancelled; None if it had
    ended before.
    """
    ended, spent = [0.0], [0.0]

    def consume() -> None:
        for frame in answer:
            del frame
        ended[0], spent[0] = time.perf_counter(), time.thread_time()
        done.wait()  # its clock can be read

    done = threading.Event()
    thread = threading.Thread(target=consume)
    thread.start()
    assert thread.ident is not None
    time.sleep(after)
    asked, worked = time.perf_counter(), time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    answer.cancel()
    done.set()
    thread.join()
    return (ended[0] - asked, spent[0] - worked) if answer.progress.cut == "cancelled" else None


# --- streams ---------------------------------------------------------------------------------------------------------


def _session(n: int) -> tuple[Session, dict[str, str]]:
    """Streams a and b with a key of whole numbers and one of strings, and what the queries name of them."""
    session = Session(clock=lambda: 1 << 60, seed=7)
    for number, name in enumerate(("a", "b")):
        session.execute(
            f"CREATE STREAM {name} (key INT, name VARCHAR, part INT, ts TIMESTAMP, price DOUBLE, amount DOUBLE)"
            f" TIMESTAMP BY ts OPTIONS (max_tuples = {2 * n})"
        )
        for key in ("key", "name"):
            session.execute(
                f"CREATE SUMMARY {name}_{key} ON {name} ({key}) WITH GRANULARITY 10 SECONDS AND COLLAPSE (4, 5)"
            )
        for batch in _batches(n, number + 1):
            session.ingest(name, batch)
    rows = max(n // 50, 2_000)
    session.execute(f"CREATE STREAM wide (ts TIMESTAMP, {', '.join(f'{c} INT' for c in WIDE_NAMES)}) TIMESTAMP BY ts")
    session.ingest("wide", {"ts": data.times(rows, 0), **dict.fromkeys(WIDE_NAMES, np.arange(rows))})
    return session, {"hot": str(int(data.ranked()[0])), "half": str(n // data.RATE // 2)}


def _batches(n: int, seed: int) -> Iterator[dict[str, object]]:
    rng = np.random.default_rng(seed)
    law = np.cumsum(streams.zipf_law(data.KEYS, data.EXPONENT))[:-1]
    for first in range(0, n, 1 << 16):
        size = min(1 << 16, n - first)
        keys = data.ranked()[np.searchsorted(law, rng.random(size), side="right")]
        yield {
            "key": keys,
            "name": [f"item {key}" for key in keys],
            "part": rng.integers(0, GROUPS, size),
            "ts": data.times(size, first),
            "price": rng.random(size) * 100.0,
            "amount": rng.lognormal(0.0, 1.0, size),
        }
