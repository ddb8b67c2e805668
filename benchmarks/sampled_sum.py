"""A sum within 1 %, 95 times in a hundred, against our own exact sum; DuckDB's exact sum stands beside it.

The share is of CPU time, parsing and planning on both sides included. How often the sum is within 1 % is counted over
many seeds; a seed draws another sample.
"""

import duckdb
import numpy as np

from benchmarks.desc_join import keys_of
from benchmarks.harness import PROCESS, Contender, Effort, Figure, Report, alternate
from benchmarks.query_data import JUDGED, drawn, duck_with, rounds, session_with, sizes
from promising.query import Session

TARGET = " WITH ERROR 0.01 CONFIDENCE 0.95"
ERROR = 0.01
LARGE = 40_000_000
PREFERRED = "SELECT sum(price) AS s FROM a WITH PREFERENCE DESC SUMMARY.Estimate.Count(key) * price"
BUDGET = 0.4
"""Seconds: more than the exact sum takes."""
ASKED = {
    "sum, uniform": "SELECT sum(price) AS s FROM a",
    "sum, lognormal": "SELECT sum(amount) AS s FROM a",
    "sum where (half)": "SELECT sum(price) AS s FROM a WHERE amount > 1",
    "sum where (1 in 10)": "SELECT sum(price) AS s FROM a WHERE price > 90",
    "sum over a join": "SELECT sum(a.price) AS s FROM a JOIN b ON a.key = b.key",
}


def run(report: Report, effort: Effort) -> None:
    for n in sizes(effort):
        streams = {name: drawn(n, keys_of(n), 0.3, seed) for name, seed in (("a", 1), ("b", 2))}
        session = session_with(streams)
        with duck_with(streams) as duck:
            del streams
            found = [_compare(session, duck, name, sql, n, effort) for name, sql in ASKED.items()]
            found.append([_preferred(session, n, effort)])
        report.part(
            "sum", "a sum within 1 % (95 %) against the exact sum, one thread", [f for part in found for f in part]
        )
    if not effort.quick:
        del session, duck
        _large(report)


def _large(report: Report) -> None:
    """One stream without a summary, four times as long: what is drawn stays the same, what is read does not."""
    streams = {"a": drawn(LARGE, keys_of(LARGE), 0.3, 1)}
    session = session_with(streams, summaries=False)
    with duck_with(streams) as duck:
        del streams
        found = [
            _compare(session, duck, name, sql, LARGE, Effort(False))
            for name, sql in ASKED.items()
            if "join" not in name
        ]
    report.part("sum", "the same over a stream of 40 M tuples", [f for part in found for f in part])


def _compare(
    session: Session, duck: duckdb.DuckDBPyConnection, name: str, sql: str, n: int, effort: Effort
) -> list[Figure]:
    exact = _value(session, sql, 0)
    theirs = float(duck.sql(sql).fetchall()[0][0])
    if abs(exact - theirs) > 1e-9 * abs(theirs):
        raise AssertionError(f"{name}: our exact sum is {exact}, DuckDB's {theirs}")
    seeds = 20 if effort.quick else 100 if "join" in name else 400
    close = sum(abs(_value(session, sql + TARGET, seed) - exact) <= ERROR * abs(exact) for seed in range(seeds))
    drawn_ = iter(range(1 << 30))
    took = alternate(
        {
            "ours": lambda: lambda: _value(session, sql + TARGET, next(drawn_)),
            "exact": lambda: lambda: _value(session, sql, 0),
            "DuckDB": lambda: lambda: duck.sql(sql).fetchall(),
        },
        rounds(effort, n),
        PROCESS,
    )
    answer = session.query(sql + TARGET).run()
    sizes: dict[str, int | float | str] = {"tuples": n, "read": answer.progress.read}
    judged = n >= JUDGED
    return [
        Figure(
            name, took["ours"] / 1e6, took["exact"] / 1e6, "ours, exact", "CPU ms", "<= 0.05" if judged else "", sizes
        ),
        Figure(name, took["ours"] / 1e6, took["DuckDB"] / 1e6, "DuckDB, exact", "CPU ms", "", sizes),
        Figure(
            f"{name}: within 1 %", close / seeds, goal=_likely(seeds), unit="share", sizes={**sizes, "seeds": seeds}
        ),
    ]


def _preferred(session: Session, n: int, effort: Effort) -> Figure:
    """A preference with a budget, against the same budget without: it must end exact, and cost nothing."""
    plain = ASKED["sum, uniform"]
    answer = session.query(PREFERRED, budget=BUDGET).run()
    exact = _value(session, plain, 0)
    if not answer.progress.complete or abs(answer.to_arrow()["s"][0].as_py() - exact) > 1e-9 * abs(exact):
        raise AssertionError(f"the preferred sum is not exact after {BUDGET} s: {answer.progress}")

    def ask(sql: str) -> Contender:
        return lambda: lambda: session.query(sql, budget=BUDGET).run()

    took = alternate({"ours": ask(PREFERRED), "plain": ask(plain)}, rounds(effort, n), PROCESS)
    return Figure(
        "sum with a preference",
        took["ours"] / 1e6,
        took["plain"] / 1e6,
        "ours, without it",
        "CPU ms",
        "<= 1.2",
        {"tuples": n},
    )


def _likely(seeds: int) -> str:
    """A sampler that is right in 95 % of all seeds is below this share of so many seeds once in a hundred runs."""
    rng = np.random.default_rng(0)
    return f">= {np.quantile(rng.binomial(seeds, 0.95, 100_000), 0.01) / seeds:.3f}"


def _value(session: Session, sql: str, seed: int) -> float:
    return float(session.query(sql, seed=seed).to_arrow().column(0)[0].as_py())
