"""How every figure is taken, and how it is told.

Contenders run in one process, in alternating rounds, and the median round counts: a neighbour that loads the machine
for a while then hits all of them alike. Time is CPU time, of the thread or, where an opponent might start threads of
its own, of the process. What a contender prepares is not timed. Where a figure is about filling fresh memory, what the
round before gave back is returned to the system first, so that no contender finds its pages already touched; otherwise
every allocator keeps what it likes to keep.

A figure is told twice: as a row of a table for people, and as a line of JSON for programs.
"""

import argparse
import ctypes
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from promising.warmup import load_all

Clock = Callable[[], int]
Run = Callable[[], object]
Contender = Callable[[], Run]
"""Prepares a round, untimed, and returns what is timed."""

THREAD: Clock = time.thread_time_ns
PROCESS: Clock = time.process_time_ns


@dataclass(frozen=True)
class Effort:
    """How much a run of the benchmarks takes on. rows: sizes that were asked for; none leaves them to the part."""

    quick: bool
    rows: tuple[int, ...] = ()

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 7

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tuples of a stream, from small to large."""
        return (1 << 18, 1 << 20) if self.quick else (1_000_000, 4_000_000)


def give_back() -> None:
    """Return freed memory to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def alternate(
    contenders: Mapping[str, Contender], rounds: int, clock: Clock = THREAD, fresh: bool = False
) -> dict[str, float]:
    """Median nanoseconds of each contender. The first, untimed round compiles, opens and fills caches.

    fresh: give free memory back to the system before each run.
    """
    taken: dict[str, list[int]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        names = list(contenders)
        for name in names if number % 2 else reversed(names):
            gc.collect()
            if fresh:
                give_back()
            run = contenders[name]()
            before = clock()
            result = run()
            after = clock()
            del run, result
            if number:
                taken[name].append(after - before)
    return {name: statistics.median(times) for name, times in taken.items()}


@dataclass(frozen=True)
class Figure:
    """`ours` against `theirs`, both in `unit`. `goal` is what the ratio must reach: at most, or at least."""

    metric: str
    ours: float
    theirs: float | None = None
    opponent: str = ""
    unit: str = ""
    goal: str = ""
    sizes: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.theirs else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none. A figure without an opponent is held to the goal itself."""
        if not self.goal:
            return None
        sign, bound = self.goal.split()
        value = self.ours if self.theirs is None else self.ours / self.theirs
        return value <= float(bound) if sign == "<=" else value >= float(bound)


class Report:
    """Prints figures part by part."""

    def __init__(self) -> None:
        self.figures: list[tuple[str, Figure]] = []

    def part(self, bench: str, title: str, figures: list[Figure]) -> None:
        """The table, then the lines."""
        print(f"\n== {bench}: {title}", flush=True)
        header = ("metric", "size", "ours", "theirs", "unit", "ratio", "goal", "opponent")
        rows = [header, *(_row(f) for f in figures)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        for row in rows:
            cells = (
                c.rjust(w) if 2 <= i <= 5 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
            )
            print("  ".join(cells).rstrip())
        for figure in figures:
            self.figures.append((bench, figure))
            line = {
                "bench": bench,
                "metric": figure.metric,
                "ours": figure.ours,
                "theirs": figure.theirs,
                "ratio": figure.ratio,
                "opponent": figure.opponent,
                "unit": figure.unit,
                "goal": figure.goal,
                "met": figure.met,
                "sizes": figure.sizes,
            }
            print(json.dumps(line), flush=True)

    def close(self) -> None:
        """Name the goals that were missed."""
        judged = [(bench, f) for bench, f in self.figures if f.met is not None]
        missed = [(bench, f) for bench, f in judged if not f.met]
        print(f"\n{len(judged) - len(missed)} of {len(judged)} goals met")
        for bench, figure in missed:
            value = figure.ours if figure.ratio is None else figure.ratio
            sizes = ", ".join(f"{k} {v}" for k, v in figure.sizes.items())
            against = f" against {figure.opponent}" if figure.opponent else ""
            print(f"  missed: {bench} {figure.metric}{against} ({sizes}): {_number(value)}, goal {figure.goal}")


def run_parts(
    entry: str,
    description: str,
    parts: Mapping[str, Callable[[Report, Effort], None]],
    quick: str,
    *,
    sized: bool = False,
) -> None:
    """The command line `python -m ENTRY [--quick] [part ...]`: run the parts named, or all, and report.

    quick: how long it takes with --quick, in words. sized: there is an option --rows.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {entry}", description=description)
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"what to measure: {', '.join(parts)}; all if none is named"
    )
    parser.add_argument("--quick", action="store_true", help=f"small sizes, few rounds: {quick}")
    if sized:
        parser.add_argument("--rows", type=int, action="append", metavar="N", help="a size instead; once for each")
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in parts]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(parts)}")
    report = Report()
    effort = Effort(given.quick, tuple(given.rows or ()) if sized else ())
    load_all()  # no figure has the loading of a kernel in it
    started = time.monotonic()
    for name in given.parts or parts:
        parts[name](report, effort)
    report.close()
    print(f"{time.monotonic() - started:.0f} s")


def _row(figure: Figure) -> tuple[str, ...]:
    judged = "" if figure.met is None else (" met" if figure.met else " MISSED")
    return (
        figure.metric,
        ", ".join(f"{name} {_size(value)}" for name, value in figure.sizes.items()),
        _number(figure.ours),
        _number(figure.theirs),
        figure.unit,
        _number(figure.ratio),
        figure.goal + judged,
        figure.opponent,
    )


def _size(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _number(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
