"""Search: the flat scan of the filters against the pyramid, at growing numbers of zones. Both find the same regions."""

import numpy as np
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.harness import Contender, Effort, Figure, Report, Run, alternate
from promising.index import Options
from promising.index.summary_index import SummaryIndex

LENGTH = 256  # tuples of a zone: short, so that many zones are soon made
OPTIONS = Options(maxlength=LENGTH, depth=3, width=16, filter_bits=1 << 12)
BLOCK = 1 << 45


def run(report: Report, effort: Effort) -> None:
    ranked = data.ranked()
    asked = {
        "rare keys": ranked[20_000:20_200],
        "absent keys": ranked[:200] + 1,
        "mid keys": ranked[1000:1020],
        "10,000 rare keys": ranked[20_000:30_000],
    }
    figures = []
    for zones in (64, 512, 2048) if effort.quick else (64, 512, 4096, 16384):
        made, summary = data.stream(zones * LENGTH, "grid", granularity=BLOCK, collapse=(2, 1), options=OPTIONS)
        data.fill(made, data.zipf(zones * LENGTH, 5))
        for name, keys in asked.items():
            _check(summary, keys)
            took = alternate({s: _search(summary, keys, s) for s in ("flat", "pyramid")}, effort.rounds)
            sizes: dict[str, int | float | str] = {"zones": zones, "probes": len(keys)}
            per_probe = {s: t / len(keys) / 1000 for s, t in took.items()}
            figures.append(
                Figure(f"regions, {name}", per_probe["flat"], per_probe["pyramid"], "pyramid", "us/probe", sizes=sizes)
            )
    report.part("search", "flat scan against the pyramid", figures)


def _search(summary: SummaryIndex, keys: NDArray[np.int64], search: str) -> Contender:
    def prepare() -> Run:
        return lambda: summary.regions(keys, search=search)

    return prepare


def _check(summary: SummaryIndex, keys: NDArray[np.int64]) -> None:
    """The same regions, and the pyramid built."""
    flat, pyramid = (summary.regions(keys, search=s) for s in ("flat", "pyramid"))
    assert np.array_equal(flat.zone, pyramid.zone) and np.array_equal(flat.key, pyramid.key)
    assert np.array_equal(flat.estimate, pyramid.estimate)
