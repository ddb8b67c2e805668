"""Memory: bytes per tuple all in, and the resident size of a stream that never ends.

Each measurement runs in a process of its own, so that nothing another one left behind is counted or used again.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

import psutil

from benchmarks import data
from benchmarks.harness import Effort, Figure, Report, give_back
from promising.index import Options

A = TypeVar("A")
T = TypeVar("T")

BATCH = 1 << 16
POINTS = 10
JUDGED = 1_000_000  # tuples from which on what a summary always has no longer shows
SMALL = {"granularity": 10 * data.SECOND, "collapse": (2, 3), "keep": 80 * data.SECOND}  # 800,000 to 900,000 tuples
SMALL_ROOM = 1_500_000


def run(report: Report, effort: Effort) -> None:
    figures = []
    for n in effort.sizes:
        grown, accounted, summary = _alone(_fill, (n, "zipf", True))
        sizes: dict[str, int | float | str] = {"tuples": n, "raw bytes": data.WIDTH}
        goal = "<= 60" if n >= JUDGED else ""
        figures.append(Figure("resident growth", grown / n, unit="bytes/tuple", goal=goal, sizes=sizes))
        figures.append(Figure("accounted", accounted / n, unit="bytes/tuple", goal=goal, sizes=sizes))
        figures.append(Figure("of it the summary", summary / n, unit="bytes/tuple", sizes=sizes))
        for on in (True, False):
            grown, _, summary = _alone(_fill, (n, "distinct", on))
            goal, what = "" if on or n < JUDGED else "<= 45", {**sizes, "postings": "on" if on else "off"}
            figures.append(Figure("all keys distinct", grown / n, unit="bytes/tuple", goal=goal, sizes=what))
            figures.append(Figure("of it the summary", summary / n, unit="bytes/tuple", sizes=what))
    report.part("memory", "bytes per tuple, log, zones and postings", figures)
    n = 2_000_000 if effort.quick else 50_000_000
    points = _alone(_flow, n)
    print(f"\nresident MB after each {n // POINTS:,} tuples: " + "  ".join(f"{p / 1e6:.1f}" for p in points))
    steady = points[len(points) // 2 :] if effort.quick else points[1:]  # after the retention has filled
    middle = sorted(steady)[len(steady) // 2]
    farthest = max(abs(p - middle) for p in steady) / middle
    sizes = {"tuples": n, "points": len(steady)}
    figures = [
        Figure("resident size", middle / 1e6, unit="MB", sizes=sizes),
        Figure("farthest from it", farthest, unit="share", goal="<= 0.1", sizes=sizes),
    ]
    report.part("memory", "a stream that goes on, through a short KEEP", figures)


def _alone(measure: Callable[[A], T], n: A) -> T:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, n).result()


def _resident() -> int:
    give_back()
    return int(psutil.Process().memory_info().rss)


def _fill(asked: tuple[int, str, bool]) -> tuple[int, int, int]:
    """Bytes that a stream adds to the process, that it accounts for, and that its summary does.

    asked: its tuples, the law of their keys, and whether it has postings.
    """
    n, law, postings = asked
    options = Options(postings=postings)
    data.fill(data.stream(1 << 15, options=options)[0], data.zipf(1 << 15, 1))  # loads the kernels
    columns = data.zipf(n, 1) if law == "zipf" else data.distinct(n, 1)
    before = _resident()
    made, summary = data.stream(n, options=options)
    data.fill(made, columns, BATCH)
    after = _resident()
    own = summary.describe().bytes
    return after - before, made.nbytes + own, own


def _flow(n: int) -> list[int]:
    """Resident bytes at each tenth of the way. Keys repeat every million tuples, times go on."""
    source = data.endless(data.zipf(1 << 20, 1), BATCH, 0)
    made, _ = data.stream(SMALL_ROOM, **SMALL)  # type: ignore[arg-type]  # the arguments it names
    points = []
    for _ in range(POINTS):
        for batch in islice(source, n // POINTS // BATCH):
            made.append(batch)
        points.append(_resident())
    return points
