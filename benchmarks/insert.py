"""Insert: what a tuple costs on its way in, against a bare copy of the same columns.

Three opponents. "copy, fresh" copies each batch to its place in columns that have been reserved and never touched, as a
bare log would, and as ours does, which starts with a fresh stream. "copy, kept" is what takes the least to write:
each batch is copied with `.copy()` and kept; it pays for many small pieces of memory. "copy, recycled" copies into
arrays that exist and have been touched; ours is then measured in its steady state, where old rows leave and their
place is used again. That is more work: every tuple that comes also goes.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from benchmarks import data
from benchmarks.harness import Contender, Effort, Figure, Report, Run, alternate
from promising.index import Stream

BATCHES = (4096, 65536)
SMALL = (1, 16, 256)
STRUCTURES = ("none", "time", "grid", "adaptive")
MEASURED = {"1 column": ("price",), "3 columns": ("price", "payload", "ts")}
RETAINED = {"granularity": 5 * data.SECOND, "collapse": (2, 2), "keep": 40 * data.SECOND}
KEPT = 1 << 19  # tuples that RETAINED keeps, about: from 400,000 to 450,000


def run(report: Report, effort: Effort) -> None:
    figures = []
    for name, make in (("zipf", data.zipf), ("all distinct", data.distinct)):
        for n in effort.sizes:
            columns = make(n, 1)
            for size in BATCHES if name == "zipf" else BATCHES[:1]:
                figures += _against_fresh(columns, size, name, effort.rounds)
    report.part("insert", "full adaptive insert with postings, fresh", figures)
    figures = []
    for n in effort.sizes:
        columns = data.zipf(n, 1)
        for size in BATCHES:
            figures += _against_recycled(columns, size, effort.rounds)
    report.part("insert", "full adaptive insert with postings, steady state", figures)
    report.part("insert", "small batches", [_small(size, effort) for size in SMALL])
    report.part("insert", "structures (t_ins)", _structures(effort))
    for n in effort.sizes:
        report.part("insert", f"with moments, {n:,} tuples", _measured(n, effort.rounds))


def _append(made: Stream, batches: list[data.Columns]) -> Run:
    def go() -> None:
        for batch in batches:
            made.append(batch)

    return go


def _fresh(structure: str, n: int, batches: list[data.Columns], measures: Sequence[str] = ()) -> Contender:
    return lambda: _append(data.stream(n, structure, measures=measures)[0], batches)


def _into_fresh(batches: list[data.Columns], n: int) -> Contender:
    def prepare() -> Run:
        columns = {name: np.empty(n, column.dtype) for name, column in batches[0].items()}

        def go() -> None:
            at = 0
            for batch in batches:
                count = len(batch["ts"])
                for name, column in batch.items():
                    np.copyto(columns[name][at : at + count], column)
                at += count

        return go

    return prepare


def _kept(batches: list[data.Columns]) -> Contender:
    def prepare() -> Run:
        kept: list[list[np.ndarray]] = []

        def go() -> None:
            for batch in batches:
                kept.append([column.copy() for column in batch.values()])

        return go

    return prepare


def _against_fresh(columns: data.Columns, size: int, name: str, rounds: int) -> list[Figure]:
    n = len(columns["ts"])
    batches = data.batches(columns, size)
    opponents = {"copy, fresh": _into_fresh(batches, n), "copy, kept": _kept(batches)}
    took = alternate({"ours": _fresh("adaptive", n, batches), **opponents}, rounds, fresh=True)
    return [
        Figure(
            f"insert, {name} keys",
            took["ours"] / n,
            took[opponent] / n,
            opponent,
            "ns/tuple",
            "<= 6" if name == "zipf" else "",
            {"tuples": n, "batch": size},
        )
        for opponent in opponents
    ]


def _steady(source: Iterator[data.Columns], batches: int) -> Callable[[Stream], Contender]:
    """Rounds that go on where the last one ended; the batches are drawn before the clock starts."""
    return lambda made: lambda: _append(made, list(islice(source, batches)))


def _recycled(batches: list[data.Columns], rows: int) -> Contender:
    ring = {name: np.zeros(rows, column.dtype) for name, column in batches[0].items()}

    def go() -> None:
        at = 0
        for batch in batches:
            count = len(batch["ts"])
            at = 0 if at + count > rows else at
            for name, column in batch.items():
                np.copyto(ring[name][at : at + count], column)
            at += count

    return lambda: go


def _against_recycled(columns: data.Columns, size: int, rounds: int) -> list[Figure]:
    n = len(columns["ts"])
    source = data.endless(columns, size, 0)
    made, _ = data.stream(2 * KEPT, **RETAINED)  # type: ignore[arg-type]  # the arguments it names
    while made.accepted < 3 * KEPT:
        made.append(next(source))
    batches = data.batches(columns, size)
    ours = _steady(source, len(batches))(made)
    took = alternate({"ours": ours, "copy, recycled": _recycled(batches, KEPT)}, rounds)
    return [
        Figure(
            "insert, zipf keys",
            took["ours"] / n,
            took["copy, recycled"] / n,
            "copy, recycled",
            "ns/tuple",
            "<= 6",
            {"tuples": n, "batch": size},
        )
    ]


def _small(size: int, effort: Effort) -> Figure:
    """Small batches in the steady state, where the cost of a call counts."""
    calls = 500 if effort.quick else 4000
    columns = data.zipf(1 << 18, 2)
    source = data.endless(columns, size, 3 * KEPT)
    made, _ = data.stream(2 * KEPT, **RETAINED)  # type: ignore[arg-type]  # the arguments it names
    for batch in islice(data.endless(columns, 65536, 0), 3 * KEPT // 65536):
        made.append(batch)
    batches = data.batches({name: c[: size * calls] for name, c in columns.items()}, size)[:calls]
    ours = _steady(source, len(batches))(made)
    took = alternate({"ours": ours, "copy": _recycled(batches, KEPT)}, effort.rounds)
    n = sum(len(batch["ts"]) for batch in batches)
    return Figure(
        "insert", took["ours"] / n, took["copy"] / n, "copy, recycled", "ns/tuple", sizes={"tuples": n, "batch": size}
    )


def _structures(effort: Effort) -> list[Figure]:
    n = effort.sizes[0]
    batches = data.batches(data.zipf(n, 1), 4096)
    took = alternate({s: _fresh(s, n, batches) for s in STRUCTURES}, effort.rounds, fresh=True)
    return [
        Figure(
            f"insert, {structure}",
            took[structure] / n,
            took["none"] / n,
            "structure none",
            "ns/tuple",
            sizes={"tuples": n, "batch": 4096},
        )
        for structure in STRUCTURES
    ]


def _measured(n: int, rounds: int) -> list[Figure]:
    """What MOMENTS would have to cost to be the default."""
    batches = data.batches(data.zipf(n, 1), 65536)
    moments = {name: [f"moments({column})" for column in columns] for name, columns in MEASURED.items()}
    ways = {name: _fresh("adaptive", n, batches, measures) for name, measures in {"none": [], **moments}.items()}
    took = alternate(ways, rounds, fresh=True)
    return [
        Figure(
            f"insert, moments of {name}",
            took[name] / n,
            took["none"] / n,
            "no measures",
            "ns/tuple",
            "<= 1.1",
            {"tuples": n, "batch": 65536},
        )
        for name in MEASURED
    ]
