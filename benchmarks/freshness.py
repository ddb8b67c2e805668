"""How fresh the first tenth of a join is with FADE HALF LIFE a tenth of the window, against joins in order of arrival.

Age is the time from a pair's tuples, in the mean of the two, to the end of the window, ten minutes of a log. The order
of arrival is SIMPLE-SHJ as it goes, which takes a tenth of the pairs of every tenth of the log. Our own join without a
preference stands beside it, unjudged: where keys have many pairs it goes key by key. Ages are read off the pairs
themselves, so they are the same on every machine; so is the spread, |ts1 - ts2| as in the paper's Figure 12.
"""

import numpy as np

from benchmarks.harness import Effort, Figure, Report
from benchmarks.paper.fig11 import LOGS
from benchmarks.paper.fig12 import SPAN, Pairs, shed
from benchmarks.paper.joins import NUMBERS, Window, pairs_of, session_of, statement
from benchmarks.paper.logs import Log

SHARE = 0.1
ARRIVAL = "SIMPLE-SHJ as it goes"
HALF_LIFE = SPAN // 10
GOAL = "<= 0.5"


def run(report: Report, effort: Effort) -> None:
    sizes = (15_000, 3_000, 2_500) if effort.quick else (60_000, 16_000, 10_000)
    figures = []
    for (name, make), size in zip(LOGS.items(), sizes, strict=True):
        figures += _figures(name, make(size, 1, SPAN / size))
    report.part("fresh", f"the first {SHARE:.0%} of a join, half life a tenth of the window", figures)


def _figures(name: str, log: Log) -> list[Figure]:
    session, window = session_of(log), Window(log)
    most = max(int(window.exact * SHARE), 1)
    ranked = statement(NUMBERS)
    found = {
        "half life": pairs_of(session, f"{ranked} FADE HALF LIFE {HALF_LIFE / 1e6:g} SECONDS LIMIT {most}"),
        "FADE FACTOR 0.8": pairs_of(session, f"{ranked} FADE FACTOR 0.8 LIMIT {most}"),
        "no fade": pairs_of(session, f"{ranked} LIMIT {most}"),
        ARRIVAL: shed(window, SHARE),
        "no preference": pairs_of(session, f"{statement(NUMBERS, None)} LIMIT {most}"),
    }
    session.close()
    sizes: dict[str, int | float | str] = {"tuples": log.rows, "pairs": most}
    ours = found.pop("half life")
    out = []
    for way, pairs in found.items():
        goal = GOAL if way == ARRIVAL else ""
        out.append(Figure(f"mean age, {name}", _age(log, ours), _age(log, pairs), way, "s", goal, sizes))
    theirs = _spread(log, found[ARRIVAL])
    out.append(Figure(f"spread, {name}", _spread(log, ours), theirs, ARRIVAL, "s", "", sizes))
    return out


def _age(log: Log, pairs: Pairs) -> float:
    end = max(int(side["ts"][-1]) for side in (log.a, log.b))
    return float(end - (log.a["ts"][pairs[0]] + log.b["ts"][pairs[1]]).mean() / 2) / 1e6


def _spread(log: Log, pairs: Pairs) -> float:
    return float(np.abs(log.a["ts"][pairs[0]] - log.b["ts"][pairs[1]]).mean()) / 1e6
