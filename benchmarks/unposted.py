"""`OPTIONS (postings = off)` against postings: the same streams twice, in one process.

Joins give every row as Arrow; equal rows are checked by number and digest. Keys: "distinct", no key twice on a side and
half of them on both; "one zipf", one side by Zipf's law with exponent 1, the other distinct; "zipf", both by the law
with exponent 0.6. Then what a budget brings, a part of the time that the whole join takes: rows best first, against
rows in no order, both without postings.
"""

import numpy as np
import pyarrow as pa

from benchmarks import data
from benchmarks.harness import PROCESS, Contender, Effort, Figure, Report, alternate
from benchmarks.query_data import digest, drawn, rounds, session_with
from promising.query import Session
from promising.testing import streams

SQL = "SELECT a.key AS key, a.ts AS ts_a, b.ts AS ts_b FROM a JOIN b ON a.key = b.key"
BEST = f"{SQL} WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.key) * SUMMARY.Estimate.Count(b.key)"
KINDS = {"on": "", "off": " OPTIONS (postings = off)"}
PARTS = (8, 4, 2)
"""A budget is the time of the whole join divided by one of them."""
FEW = 100  # keys that are looked for by name


def run(report: Report, effort: Effort) -> None:
    for n in (1 << 17, 1 << 19) if effort.quick else (1 << 20, 1 << 22):
        figures = []
        for law in ("distinct", "one zipf", "zipf"):
            named = _streams(n, law)
            made = {kind: session_with(named, options=options) for kind, options in KINDS.items()}
            figures += _compare(made, law, n, rounds(effort, n))
        report.part("unposted", f"{n:,} tuples a stream, one thread", figures)


def _streams(n: int, law: str) -> dict[str, data.Columns]:
    exponent = 0.6 if law == "zipf" else 1.0
    found = {name: drawn(n, n, exponent, seed) for name, seed in (("a", 1), ("b", 2))}
    if law == "one zipf":
        found["b"]["key"] = np.random.default_rng(3).permutation(n).astype(np.int64) * data.SPREAD + 1
    if law == "distinct":
        keys = np.random.default_rng(3).permutation(n * 2).astype(np.int64) * data.SPREAD + 1
        found["b"]["key"] = keys[:n]
        found["a"]["key"] = keys[n // 2 : n // 2 + n]
    return found


def _compare(made: dict[str, Session], law: str, n: int, times: int) -> list[Figure]:
    def joined(kind: str) -> pa.Table:
        return made[kind].query(SQL).to_arrow()

    rows, known = joined("on").num_rows, digest(joined("on"))
    if rows != joined("off").num_rows or known != digest(joined("off")):
        raise AssertionError(f"{law}: rows without postings are not those with them")
    sizes: dict[str, int | float | str] = {"keys": law, "rows": rows}
    took = alternate({"on": lambda: lambda: joined("on"), "off": lambda: lambda: joined("off")}, times, PROCESS)
    speed = {kind: rows / ns * 1e3 for kind, ns in took.items()}
    figures = [Figure("whole join", speed["off"], speed["on"], "postings", "M rows/s", ">= 0.3", sizes)]
    keys = streams.all_distinct(FEW, seed=5)["item_id"] % (2 * n) * data.SPREAD + 1
    named = f"SELECT ts FROM b WHERE key IN ({', '.join(map(str, keys.tolist()))})"

    def looked_up(kind: str) -> Contender:
        return lambda: lambda: made[kind].query(named).to_arrow()

    took = alternate({kind: looked_up(kind) for kind in KINDS}, times, PROCESS)
    figures.append(
        Figure(f"{FEW} keys by name", took["off"] / 1e6, took["on"] / 1e6, "postings", "CPU ms", sizes=sizes)
    )
    whole = alternate({"off": lambda: lambda: joined("off")}, times, PROCESS)["off"]
    for part in PARTS:
        budget = whole / part / 1e9
        best, plain = (_brought(made["off"], sql, budget, times) for sql in (BEST, SQL))
        what = {**sizes, "budget": f"1/{part}"}
        figures.append(
            Figure("rows, best first", best, plain, "no order", "rows", ">= 1" if law != "distinct" else "", what)
        )
    return figures


def _brought(session: Session, sql: str, budget: float, times: int) -> float:
    return float(np.median([session.query(sql, budget=budget).to_arrow().num_rows for _ in range(times)]))
