"""`STRUCTURE auto` against each fixed structure, over a load that changes: who needs less CPU time for the same work.

A load is a sequence of phases; in each, batches come in and questions are asked at a rhythm of its own. Every contender
does the same work in the same order: the same tuples, the same questions. Contenders take turns, piece by piece, so
that a neighbour on the machine hits all of them alike. What is counted is the CPU time of appending and of asking, and
with it whatever the choice itself costs: measuring, weighing, building anew.
"""

import statistics
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Effort, give_back
from benchmarks.paper.logs import Columns, batches, generated
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, number, spread
from promising.index import Options, Stream, SummaryIndex

CONTENDERS = ("auto", "none", "time", "grid", "adaptive")
FIXED = CONTENDERS[1:]
SCHEMA = {"store_id": "int", "transaction_id": "int", "ts": "timestamp", "item_id": "int", "price": "float"}
GAP_US = 1_000.0
SECOND = 1_000_000
BATCH = 4_096
FAR = 1 << 60
WORST = 1.05
"""Of what the best fixed structure needs: the goal is never to need more."""

Ask = Callable[[SummaryIndex, NDArray[np.int64], int], int]
"""A question about some keys at a time; tells what was found, for comparison."""


@dataclass(frozen=True)
class Phase:
    """So many batches come in, and after each so many questions of a kind are asked, about so many keys."""

    name: str
    batches: int
    questions: int = 0
    keys: int = 0
    ask: Ask | None = None


def probe(summary: SummaryIndex, keys: NDArray[np.int64], now: int, seconds: int | None = None) -> int:
    """All tuples of these keys, of the last so many seconds if told."""
    return len(summary.probe(keys, None if seconds is None else (now - seconds * SECOND, FAR)))


def promise(summary: SummaryIndex, keys: NDArray[np.int64], now: int) -> int:
    """All tuples of a key as the paper finds them: its regions, the tuples in each, and of those the ones it has."""
    hits = 0
    for region in summary.regions(keys[:1], (now - 20 * SECOND, FAR)):
        rows = summary.visit(region)
        with summary.reading() as state:
            same = state.log.values("item_id", rows) == keys[0]
            hits += int(state.log.between(rows[same], now - 20 * SECOND, FAR).sum())
    return hits


def phases(scale: int) -> list[Phase]:
    """`scale` is how long they are."""
    recent: Ask = partial(probe, seconds=2)
    return [
        Phase("ingest only", 8 * scale),
        Phase("many probes of everything", 2 * scale, 40, 64, probe),
        Phase("ingest, hardly a question", 8 * scale, 1, 1, recent),
        Phase("promising regions", scale, 60, 1, promise),
        Phase("ingest again", 8 * scale),
        Phase("probes of everything, few keys", 2 * scale, 80, 4, probe),
    ]


class Contender:
    """A stream with one summary, and what it has needed so far, in nanoseconds."""

    def __init__(self, structure: str, retained: int) -> None:
        self.stream = Stream("store1", SCHEMA, "ts", keep=4 * retained, clock=lambda: FAR, max_tuples=1 << 20, seed=1)
        self.summary = self.stream.create_summary(
            "by_item", "item_id", granularity=retained // 2, collapse=(2, 2), structure=structure, options=Options()
        )
        self.spent = 0
        self.chosen: list[str] = []

    def timed(self, work: Callable[[], Any]) -> Any:
        began = time.thread_time_ns()
        done = work()
        self.spent += time.thread_time_ns() - began
        return done

    def piece(self, batch: Columns, phase: Phase, asked: list[NDArray[np.int64]]) -> list[int]:
        """Append a batch, then ask; what was found."""
        self.timed(lambda: self.stream.append(batch))
        now = int(batch["ts"][-1])
        found = []
        if phase.ask is not None:
            ask = phase.ask
            for keys in asked:
                found.append(self.timed(lambda keys=keys: ask(self.summary, keys, now)))  # type: ignore[misc]
        if not self.chosen or self.chosen[-1] != self.summary.structure:
            self.chosen.append(self.summary.structure)
        return found


def play(load: list[Phase], retained: int, seed: int) -> Iterator[tuple[Phase, dict[str, int], dict[str, str]]]:
    """Each phase with what it took every contender, and the structures that `auto` went through in it."""
    rows = BATCH * sum(phase.batches for phase in load)
    log = generated(rows, seed, drift=True, gap_us=GAP_US).a
    rng = np.random.default_rng(seed)
    contenders = {name: Contender(name, retained) for name in CONTENDERS}
    parts = iter(batches(log, BATCH))
    for phase in load:
        before = {name: c.spent for name, c in contenders.items()}
        for c in contenders.values():
            c.chosen = [c.summary.structure]
        for _ in range(phase.batches):
            batch = next(parts)
            asked = [rng.choice(batch["item_id"], phase.keys) for _ in range(phase.questions)]
            turns = rng.permutation(CONTENDERS)  # by lot: no contender always finds the caches that one other left
            told = [contenders[name].piece(batch, phase, asked) for name in turns.tolist()]
            if any(found != told[0] for found in told):
                raise AssertionError(f"{phase.name}: structures give different answers")
        took = {name: c.spent - before[name] for name, c in contenders.items()}
        yield phase, took, {name: " > ".join(c.chosen) for name, c in contenders.items()}
    give_back()


def run(effort: Effort, seeds: list[int]) -> Outcome:
    scale = 6 if effort.quick else 150
    retained = 8 * SECOND if effort.quick else 40 * SECOND  # a quarter of what is kept
    load = phases(scale)
    list(play(phases(2), 8 * SECOND, seeds[0]))  # compiles, and fills the caches
    took: list[list[dict[str, int]]] = [[] for _ in load]  # by phase and seed
    chosen = [""] * len(load)
    for seed in seeds:
        for at, (_, spent, structures) in enumerate(play(load, retained, seed)):
            took[at].append(spent)
            chosen[at] = structures["auto"]
    totals = {name: [sum(phase[i][name] for phase in took) for i in range(len(seeds))] for name in CONTENDERS}
    rows = [_row(phase.name, took[at], chosen[at]) for at, phase in enumerate(load)]
    overall = [{name: totals[name][i] for name in CONTENDERS} for i in range(len(seeds))]
    rows.append(_row("all of it", overall, ""))
    worst, where = max((_worst(took[at]), phase.name) for at, phase in enumerate(load))
    beaten = [name for name in FIXED if _ratio(overall, name) < 1]
    plot = _plot([phase.name for phase in load], took)
    return Outcome(
        "auto",
        "STRUCTURE auto: the service chooses the structure",
        [plot],
        ["phase", *(f"{name}, ms" for name in CONTENDERS), "auto / best fixed", "auto chose"],
        rows,
        [
            Goal(
                f"at most {WORST:.2f} times the CPU time of the best fixed structure in every phase",
                f"{worst:.2f} at most ({where})",
                worst <= WORST,
            ),
            Goal(
                "overall less CPU time than every fixed structure",
                ", ".join(f"{_ratio(overall, name):.2f} of {name}" for name in FIXED),
                len(beaten) == len(FIXED),
            ),
        ],
        [
            "All contenders gave the same answers to every question; only CPU time is compared.",
            "A phase includes noticing that the load has changed, and switching.",
        ],
        f"generated, with drift; batches of {BATCH:,}, {sum(phase.batches for phase in load) * BATCH:,} tuples in all",
        [
            {
                "metric": f"CPU time of all phases, auto over {name}",
                "ours": statistics.median(totals["auto"]) / 1e6,
                "theirs": statistics.median(totals[name]) / 1e6,
                "opponent": name,
                "unit": "ms",
            }
            for name in FIXED
        ],
    )


def _plot(names: list[str], took: list[list[dict[str, int]]]) -> Plot:
    """Phase by phase, what each needed over what the best fixed structure did."""
    best = [[min(one[name] for name in FIXED) for one in runs] for runs in took]

    def curve(name: str) -> Curve:
        ratios = [
            [one[name] / least for one, least in zip(runs, floor, strict=True)]
            for runs, floor in zip(took, best, strict=True)
        ]
        return Curve(name, [float(at + 1) for at in range(len(names))], ratios)

    return Plot(
        "auto",
        "STRUCTURE auto and the fixed structures, phase by phase",
        "phase of the load",
        "CPU time, over the best fixed structure's",
        [curve(name) for name in CONTENDERS],
        log_y=True,
        ticks={float(at + 1): textwrap.fill(name, 13) for at, name in enumerate(names)},
    )


def _row(name: str, took: list[dict[str, int]], chosen: str) -> list[str]:
    costs = [spread([one[c] / 1e6 for one in took]) for c in CONTENDERS]
    return [name, *costs, number(_worst(took)), chosen]


def _worst(took: list[dict[str, int]]) -> float:
    """Over seeds the median of what auto needed, by what the best fixed structure of that seed did."""
    return statistics.median([one["auto"] / min(one[name] for name in FIXED) for one in took])


def _ratio(took: list[dict[str, int]], name: str) -> float:
    return statistics.median([one["auto"] / one[name] for one in took])
