"""One join, asked of the service and of a plain engine: best pairs, a fair sample, the rarest, an average.

A pair is a sale in a store with an even number and a sale of the same kind of product in a store with an odd one.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from promising.client import RemoteSession
from promising.demo.plain_engine import PlainEngine, Timing

ERROR = 0.01  # relative, of the average
MONTH = 31  # days, over which the exact average is computed to check the estimate
LIMIT = 0.6  # seconds that the plain engine has for a question, if the service was not slower
LIMIT_WHOLE = 2.0  # seconds that it has for the whole answer
LIMIT_CHECK = 60.0  # seconds that it has to check an estimate: half of one, if the machine does nothing else
SHOWN = 5  # rows of each answer
KINDS = 10  # different kinds, of which the most frequent and the rarest pairs are asked for
GAPS = (0.0, 0.005, 0.5, 1.0, 2.0, 5.0, np.inf)  # ends of the classes of the histogram, in dollars

FROM = "FROM even a, odd b WHERE a.KindID = b.KindID"
PAIRS = f"""SELECT a.KindID AS kind, a.StoreID AS store, a.TimeStamp AS sold, a.Price AS paid,
  b.StoreID AS other_store, b.TimeStamp AS other_sold, b.Price AS other_paid
{FROM}"""
PREFERENCE = "WITH PREFERENCE {} SUMMARY.Estimate.Count(a.KindID), SUMMARY.Estimate.Count(b.KindID)"
BEST, SAMPLE, RAREST = "DESC", "WEIGHTED", "ASC"
BUDGET = 0.1  # seconds of CPU time
ROWS_PER_KIND = {BEST: f"LIMIT 1 BY a.KindID LIMIT {KINDS}", SAMPLE: "", RAREST: f"LIMIT 1 BY a.KindID LIMIT {KINDS}"}
"""What follows the preference."""
AVERAGE = f"SELECT avg(abs(a.Price - b.Price)) AS gap {FROM}"

_COUNTS = """WITH x AS (SELECT KindID, count(*) AS n FROM even GROUP BY KindID),
  y AS (SELECT KindID, count(*) AS n FROM odd GROUP BY KindID)"""
_ORDERED = f"""{_COUNTS}
{PAIRS.replace("FROM even a, odd b WHERE", "FROM even a, odd b, x, y WHERE")}
  AND x.KindID = a.KindID AND y.KindID = b.KindID QUALIFY row_number() OVER (PARTITION BY a.KindID) = 1
  ORDER BY x.n * y.n {{}} LIMIT {KINDS}"""
PLAIN = {
    BEST: _ORDERED.format("DESC"),
    SAMPLE: f"SELECT * FROM ({PAIRS}) USING SAMPLE reservoir({SHOWN} ROWS)",
    RAREST: _ORDERED.format("ASC"),
}
"""The statement of the plain engine for each preference."""
TOTAL = f"{_COUNTS} SELECT CAST(sum(x.n * y.n) AS BIGINT) FROM x, y WHERE x.KindID = y.KindID"


@dataclass(frozen=True)
class Pair:
    """Two sales of a kind of product."""

    kind: int
    paid: float
    store: int
    other_paid: float
    other_store: int


@dataclass(frozen=True)
class Pairs:
    """An answer under the budget: its first pairs, how many were received; elapsed and CPU seconds.

    `coverage` is None if it is unknown. `kinds`: different ones among all pairs received. `gaps`: share of the pairs in
    each class of `GAPS`; `gap`: the average. `plain`: the plain engine, asked for the same.
    """

    sql: str
    first: list[Pair]
    rows: int
    coverage: float | None
    kinds: int
    gap: float
    gaps: list[float]
    seconds: float
    cpu: float
    plain: Timing | None


@dataclass(frozen=True)
class Step:
    """An estimate with its bounds, after this many seconds."""

    seconds: float
    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Average:
    """The average up to its error target, and the exact one where the plain engine had time for it."""

    sql: str
    steps: list[Step]
    pairs: int
    seconds: float
    plain: Timing | None
    exact: float | None

    @property
    def last(self) -> Step | None:
        return self.steps[-1] if self.steps else None

    @property
    def held(self) -> bool | None:
        """Whether the exact average is within the last bounds; None if it is not known."""
        if self.exact is None or self.last is None:
            return None
        return self.last.lower <= self.exact <= self.last.upper


def pairs_sql(direction: str) -> str:
    """The statement for the service."""
    return f"{PAIRS}\n{PREFERENCE.format(direction)} {ROWS_PER_KIND[direction]}".strip()


def average_sql(days: int | None) -> str:
    """The statement for the service, of all pairs or of those of the last days."""
    return f"{AVERAGE}\nWITH ERROR {ERROR:g}" + ("" if days is None else f" WINDOW {days} DAYS")


def warm(session: RemoteSession) -> None:
    """Let the service load the kernels that the questions need, on a day's tuples."""
    for direction in (BEST, SAMPLE, RAREST):
        session.query(
            f"{PAIRS} {PREFERENCE.format(direction)} WINDOW 1 DAYS {ROWS_PER_KIND[direction]}", budget=0.02
        ).run()
    session.query(average_sql(1)).run()


def ask_pairs(session: RemoteSession, direction: str, plain: PlainEngine | None) -> Pairs:
    """Ask for pairs within the budget, then the plain engine for the same order."""
    sql = pairs_sql(direction)
    began = time.perf_counter()
    answer = session.query(sql, budget=BUDGET, seed=1)
    table = answer.to_arrow()
    seconds = time.perf_counter() - began
    progress = answer.progress
    gaps = np.abs(table["paid"].to_numpy() - table["other_paid"].to_numpy())
    counted = np.histogram(gaps, GAPS)[0]
    return Pairs(
        sql,
        [_pair(row) for row in table.slice(0, SHOWN if direction == SAMPLE else KINDS).to_pylist()],
        progress.rows,
        progress.coverage.value if progress.coverage.known else None,
        len(table["kind"].unique()),
        float(gaps.mean()) if len(gaps) else 0.0,
        [float(share) for share in counted / max(len(gaps), 1)],
        seconds,
        progress.cpu_seconds,
        None if plain is None else plain.ask(PLAIN[direction], max(LIMIT, seconds))[0],
    )


def _pair(row: dict[str, Any]) -> Pair:
    return Pair(row["kind"], row["paid"], row["store"], row["other_paid"], row["other_store"])


def ask_average(session: RemoteSession, days: int | None, latest: int, plain: PlainEngine | None) -> Average:
    """Ask up to the error target; `latest` is the last event time, from which the days are counted back."""
    sql = average_sql(days)
    steps = []
    began = time.perf_counter()
    answer = session.query(sql, seed=1)
    for frame in answer:
        found = _estimate(frame.rows, frame.lower, frame.upper)
        if found is not None:
            steps.append(Step(time.perf_counter() - began, *found))
    seconds = time.perf_counter() - began
    timing, exact = None, None
    if plain is not None:
        recent, limit = ("", max(LIMIT, seconds)) if days is None else (_recent(latest, days), LIMIT_CHECK)
        timing, rows = plain.ask(AVERAGE + recent, limit)
        exact = rows[0][0] if rows else None
    total = answer.progress.total
    return Average(sql, steps, round(total.value) if total.known else 0, seconds, timing, exact)


def _recent(latest: int, days: int) -> str:
    """The condition of a WINDOW, in plain SQL."""
    start = f"make_timestamp({latest - days * 86_400_000_000})"
    return f" AND a.TimeStamp >= {start} AND b.TimeStamp >= {start}"


def _estimate(*tables: pa.Table | None) -> tuple[float, float, float] | None:
    """Value and bounds of a frame, if it has any."""
    found = [table["gap"][0].as_py() for table in tables if table is not None and table.num_rows]
    if len(found) < 3 or None in found:
        return None
    return found[0], found[1], found[2]
