"""What a cut join reports of its total, against the truth: 200 windowed and plain joins on two logs.

A case is a join of one log, its two streams on an item (a whole number or a string), with a window, conditions, a
preference and a budget, all drawn by a fixed seed. The logs are a generated one with drift and Complete Journey. The
truth is counted with numpy from the log's columns, apart from the engine. Only the last frame counts: it is what a user
sees. Answers that the budget did not cut are exact, and are told apart.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import promising
from benchmarks.harness import Effort, Figure, Report
from benchmarks.paper.logs import Columns, Log, complete_journey, generated
from promising.query import Progress, Session

BATCH = 1 << 16
SEED = 20
WINDOWS = (None, 0.9, 0.5, 0.25, 0.1, 0.05, 0.02)
"""Shares of the log's time; None is a join without a window."""
BUDGETS_MS = (50, 100, 200)
COUNT = "SUMMARY.Estimate.Count"
PREFERENCES = {
    "none": "",
    "desc": f"WITH PREFERENCE DESC {COUNT}(a.{{key}}), {COUNT}(b.{{key}})",
    "desc fading": f"WITH PREFERENCE DESC {COUNT}(a.{{key}}), {COUNT}(b.{{key}}) FADE FACTOR 0.8",
    "asc": f"WITH PREFERENCE ASC {COUNT}(a.{{key}}), {COUNT}(b.{{key}})",
    "weighted": f"WITH PREFERENCE WEIGHTED {COUNT}(a.{{key}}), {COUNT}(b.{{key}})",
}
CONDITIONS = {
    "": "",
    "one side": " AND a.price > {price}",
    "the other side": " AND b.price < {price}",
    "each side": " AND a.price > {price} AND b.price < {price}",
    "across": " AND a.price > b.price",
}
CLOSE = 0.2  # an estimate this near to the truth is right
NARROW = 2.0  # upper / lower of a total that is known


@dataclass(frozen=True)
class Case:
    """One join; `window` in microseconds."""

    log: str
    key: str
    window: int | None
    condition: str
    price: float
    preference: str
    budget_ms: int

    @property
    def sql(self) -> str:
        where = CONDITIONS[self.condition].format(price=self.price)
        preference = PREFERENCES[self.preference].format(key=self.key)
        window = "" if self.window is None else f" WINDOW {self.window // 1000} MILLISECONDS"
        return (
            f"SELECT a.{self.key}, a.price, b.price AS other FROM a, b WHERE a.{self.key} = b.{self.key}{where}"
            f" {preference}{window} BUDGET {self.budget_ms} MILLISECONDS"
        )


@dataclass(frozen=True)
class Outcome:
    case: Case
    truth: int
    progress: Progress

    @property
    def known(self) -> bool:
        return self.progress.total.known

    @property
    def close(self) -> bool:
        return self.known and abs(self.progress.total.value - self.truth) <= CLOSE * self.truth

    @property
    def held(self) -> bool:
        """Whether the bounds of total and coverage hold; a known one is also narrow."""
        total, coverage = self.progress.total, self.progress.coverage
        share = self.progress.rows / self.truth if self.truth else coverage.lower
        holds = total.lower <= self.truth <= total.upper and coverage.lower - 1e-9 <= share <= coverage.upper + 1e-9
        return holds and (not self.known or total.upper <= NARROW * total.lower)


def run(report: Report, effort: Effort) -> None:
    rows, cases = (40_000, 20) if effort.quick else (400_000, 100)
    found = [o for log in logs(rows, SEED) for o in outcomes(log, cases, SEED)]
    for each in found:
        total = each.progress.total
        line = {
            "bench": "coverage case",
            "log": each.case.log,
            "sql": each.case.sql,
            "truth": each.truth,
            "value": total.value if total.known else None,
            "lower": total.lower,
            "upper": total.upper,
            "rows": each.progress.rows,
            "complete": each.progress.complete,
        }
        print(json.dumps(line))
    cut = [o for o in found if not o.progress.complete]
    report.part("coverage", "totals of joins, all answers", figures(found))
    report.part("coverage", "totals of joins, answers cut by the budget", figures(cut))


def logs(rows: int, seed: int) -> list[Log]:
    made = generated(rows, seed, drift=True, items=20_000, spell=rows // 10)
    rng = np.random.default_rng(seed)
    for side in made.sides().values():  # what is paid for an item differs from sale to sale
        side["price"] = side["price"] * rng.lognormal(0.0, 0.4, rows)
    return [made, complete_journey(rows, seed)]


def figures(found: list[Outcome]) -> list[Figure]:
    names = dict.fromkeys(o.case.log for o in found)
    out = []
    for name, chosen in [("both", found), *((n, [o for o in found if o.case.log == n]) for n in names)]:
        sizes: dict[str, int | float | str] = {"log": name, "joins": len(chosen)}
        errors = [abs(o.progress.total.value / o.truth - 1) for o in chosen if o.known and o.truth]
        widths = [o.progress.total.upper / o.progress.total.lower for o in chosen if o.known and o.progress.total.lower]
        out += [
            Figure("unknown", _share(not o.known for o in chosen), unit="%", goal="<= 5", sizes=sizes),
            Figure("within 20 % of the truth", _share(o.close for o in chosen), unit="%", goal=">= 80", sizes=sizes),
            Figure("bounds hold", _share(o.held for o in chosen), unit="%", goal=">= 95", sizes=sizes),
            Figure("median error", 100 * float(np.median(errors or [0.0])), unit="%", sizes=sizes),
            Figure("p95 of upper / lower", float(np.quantile(widths or [1.0], 0.95)), goal="<= 2", sizes=sizes),
        ]
    return out


def _share(found: Iterator[bool]) -> float:
    counted = list(found)
    return 100 * sum(counted) / max(len(counted), 1)


# --- cases -----------------------------------------------------------------------------------------------------------


def cases_of(log: Log, count: int, seed: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    span = int(max(side["ts"][-1] for side in log.sides().values()) - log.a["ts"][0])
    out = []
    for number in range(count):
        share = WINDOWS[number % len(WINDOWS)]
        length = None if share is None else max(int(span * share * rng.uniform(0.8, 1.2)) // 1000 * 1000, 1000)
        out.append(
            Case(
                log.name,
                ("item", "name")[int(rng.integers(2))],
                length,
                str(rng.choice(list(CONDITIONS))),
                float(np.quantile(log.a["price"], rng.uniform(0.1, 0.9))),
                str(rng.choice(list(PREFERENCES))),
                int(rng.choice(BUDGETS_MS)),
            )
        )
    return out


def outcomes(log: Log, count: int, seed: int) -> Iterator[Outcome]:
    session = session_with(log)
    for number, case in enumerate(cases_of(log, count, seed)):
        progress = session.query(case.sql, seed=number).run().progress
        yield Outcome(case, truth(log, case), progress)


def session_with(log: Log) -> Session:
    session = promising.open(seed=7)
    for stream, side in log.sides().items():
        session.execute(
            f"CREATE STREAM {stream} (ts TIMESTAMP, item BIGINT, name VARCHAR, price DOUBLE) TIMESTAMP BY ts"
            f" OPTIONS (max_tuples = {max(log.rows, 1 << 18)})"
        )
        for key in ("item", "name"):
            session.execute(
                f"CREATE SUMMARY {stream}_{key} ON {stream} ({key}) WITH GRANULARITY 10 MINUTES AND COLLAPSE (4, 8)"
            )
        for first in range(0, log.rows, BATCH):
            part = {name: values[first : first + BATCH] for name, values in side.items()}
            names = pa.array([f"item {i}" for i in part["item_id"].tolist()])
            session.ingest(stream, {"ts": part["ts"], "item": part["item_id"], "name": names, "price": part["price"]})
    return session


# --- truth -----------------------------------------------------------------------------------------------------------


def truth(log: Log, case: Case) -> int:
    """The rows of the whole answer. The window ends with the latest tuple of either stream."""
    end = max(int(side["ts"][-1]) for side in log.sides().values()) + 1
    a, b = (_inside(side, end, case.window) for side in log.sides().values())
    if case.condition in ("one side", "each side"):
        a = _where(a, a["price"] > case.price)
    if case.condition in ("the other side", "each side"):
        b = _where(b, b["price"] < case.price)
    if case.condition == "across":
        prices = np.unique(np.concatenate((a["price"], b["price"])))
        ranks = [np.searchsorted(prices, side["price"]) for side in (a, b)]
        codes = np.sort(b["item_id"] * len(prices) + ranks[1])
        base = a["item_id"] * len(prices)
        return int((np.searchsorted(codes, base + ranks[0]) - np.searchsorted(codes, base)).sum())
    most = int(max(side["item_id"].max(initial=0) for side in (a, b))) + 1
    counts = [np.bincount(side["item_id"], minlength=most).astype(np.int64) for side in (a, b)]
    return int((counts[0] * counts[1]).sum())


def _inside(side: Columns, end: int, window: int | None) -> Columns:
    return side if window is None else _where(side, side["ts"] >= end - window)


def _where(side: Columns, kept: NDArray[np.bool_]) -> Columns:
    return {name: values[kept] for name, values in side.items()}
