"""How standing queries learn that time goes on: freshness, messages and speed of the four modes (checks A1 to A5).

Time is virtual: the streams say what time it is, so delays are in stream time and do not depend on the machine. Only
capacity and throughput are measured, in CPU time, in alternating rounds.
"""

import statistics
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Effort, Figure, Report
from promising.query import Session
from promising.query.standing.deltas import Counters, Mode
from promising.query.standing.engine import Engine
from promising.query.standing.views import View

SECOND = 1_000_000
START = 1_000_000 * SECOND
TICK = 10_000  # microseconds
FAVOURITES = 100


def session_with(mode: Mode, *statements: str) -> Session:
    """Two streams, and what else is said, in one mode."""
    session = Session(seed=1, clock=lambda: 1 << 60)
    session.standing.mode = mode
    for name in ("a", "b"):
        session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
    for statement in statements:
        session.execute(statement)
    return session


def view_of(session: Session, name: str = "q") -> View:
    return session.standing.view(name)


# --- A1: freshness ---------------------------------------------------------------------------------------------------

RATE, WINDOW = 50, 30 * SECOND


def freshness(report: Report, effort: Effort) -> None:
    """COUNT over a stream joined with a table of favourites; which tuples qualify is scattered, or clustered."""
    seconds = 60 if effort.quick else 240
    figures = []
    for clustered in (False, True):
        for share in (0.1, 1.0) if effort.quick else (0.01, 0.1, 0.3, 1.0):
            times, chosen = _arrivals(seconds, share, clustered)
            delays = {mode: _delays(times, chosen, mode) for mode in (Mode.ITA, Mode.PIGGYBACK)}
            ita, ours = delays[Mode.ITA], delays[Mode.PIGGYBACK]
            sizes = {"share": share, "qualifying": "clustered" if clustered else "scattered"}
            figures.append(Figure("longest delay", float(ours.max()) / TICK, unit="ticks", goal="<= 1", sizes=sizes))
            # Half a tick is what a delay of none costs on average where nobody looks between two ticks.
            aim = ">= 100" if clustered and share < 1 else ">= 10" if share <= 0.1 else ""
            means = float(max(ita.mean(), 1.0)), float(max(ours.mean(), TICK / 2))
            figures.append(
                Figure("mean delay of ita", means[0] / SECOND, means[1] / SECOND, "piggyback", "s", aim, sizes)
            )
            if not clustered:
                expected = SECOND / (RATE * share)
                figures.append(
                    Figure(
                        "mean delay of ita", ita.mean() / SECOND, expected / SECOND, "1/(rate x share)", "s", "", sizes
                    )
                )
    report.part("freshness", "a result leaves the view after its end (A1)", figures)


def _arrivals(seconds: int, share: float, clustered: bool) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    rng = np.random.default_rng(7)
    gaps = rng.exponential(SECOND / RATE, RATE * seconds)
    times = START + np.cumsum(gaps).astype(np.int64)
    if not clustered:
        return times, rng.random(len(times)) < share
    place = (
        (times - START) % WINDOW / WINDOW
    )  # at the beginning of each stretch of a window's length; three in ten have none
    empty = rng.random(seconds * SECOND // WINDOW + 2) < 0.3
    return times, (place < share) & ~empty[(times - START) // WINDOW]


def _delays(times: NDArray[np.int64], chosen: NDArray[np.bool_], mode: Mode) -> NDArray[np.int64]:
    """How long after its end each result that qualified was still counted, up to the end of the run."""
    session = session_with(
        mode,
        "CREATE TABLE favourites (item BIGINT, PRIMARY KEY (item)) NON RETROACTIVE",
        "INSERT INTO favourites VALUES (1)",
        "CREATE CONTINUOUS QUERY q AS SELECT count(*) AS n FROM a, favourites f WHERE a.item = f.item"
        " WINDOW 30 SECONDS",
    )
    view = view_of(session)
    ends = times[chosen] + WINDOW
    ends = ends[ends < times[-1]]
    delays = np.full(len(ends), -1, np.int64)
    left, done = 0, 0
    for now in range(START + TICK, int(times[-1]), TICK):
        upto = int(np.searchsorted(times, now, side="right"))
        if upto > done:
            items = np.where(chosen[done:upto], 1, 2)
            session.ingest("a", {"ts": times[done:upto], "item": items, "price": np.zeros(upto - done)})
            done = upto
        session.advance("a", now)
        session.standing.tick()
        while left < len(ends) and view.watermark >= ends[left]:
            delays[left] = now - ends[left]
            left += 1
    return np.where(delays < 0, times[-1] - ends, delays)  # those that are still counted: so long at least


# --- A2: messages ----------------------------------------------------------------------------------------------------


def messages(report: Report, effort: Effort) -> None:
    """A join of one tuple with `many` of the other side, in random order, tuple by tuple and in large batches."""
    keys = 200 if effort.quick else 1_000
    figures = []
    for many in (1, 2, 3, 5):
        expected = 0.5 + 1 / (many + 1)
        nta = _messages(keys, many, Mode.NTA, 1)
        time = _messages(keys, many, Mode.TIME, 1)
        saturated = _messages(keys, many, Mode.PIGGYBACK, 256)
        results = keys * many
        sizes: dict[str, int | float | str] = {"many": many, "results": results}
        figures.append(Figure("negatives of nta, all edges", nta.negatives / results, unit="per result", sizes=sizes))
        figures.append(
            Figure("time messages", time.times / results, expected, "1/2 + 1/(m + 1)", "per result", "", sizes)
        )
        off = abs(time.times / results - expected)
        figures.append(Figure("time messages, off by", off, unit="per result", goal="<= 0.05", sizes=sizes))
        share = saturated.times / results
        figures.append(Figure("probes at ends, time", time.expiry_probes, unit="probes", goal="<= 0", sizes=sizes))
        figures.append(Figure("piggyback, batches of 256", share, unit="per result", goal="<= 0.01", sizes=sizes))
    report.part("messages", "what is sent because something ends (A2)", figures)


def _messages(keys: int, many: int, mode: Mode, batch: int) -> Counters:
    """Each key once in a and `many` times in b, all within one window; then all of it ends."""
    rng = np.random.default_rng(many)
    items = np.repeat(np.arange(keys), many + 1)
    first = np.tile(np.arange(many + 1) == 0, keys)
    # All that belongs together comes within a window: shuffled in stretches of many keys.
    order = np.argsort(np.repeat(np.arange(keys), many + 1) // 50 + rng.random(len(items)), kind="stable")
    items, first = items[order], first[order]
    window = 50 * (many + 1) * 4
    session = session_with(
        mode, f"CREATE CONTINUOUS QUERY q AS SELECT a.item FROM a, b WHERE a.item = b.item WINDOW {window} MICROSECONDS"
    )
    counters = view_of(session).counters
    times = START + np.arange(len(items))
    tail = START + len(items) + np.arange(0, 2 * window, batch)
    for at in range(0, len(items), batch):
        part = slice(at, at + batch)
        for name, mine in (("a", first[part]), ("b", ~first[part])):
            if mine.any():
                session.ingest(name, _columns(times[part][mine], items[part][mine]))
        session.standing.tick()
    if batch > 1:  # of a queue that never runs empty
        return replace(counters)
    for now in tail.tolist():
        session.advance("a", now)
        session.standing.tick()
    return counters


def _columns(times: NDArray[np.int64], items: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
    return {"ts": times, "item": items, "price": np.zeros(len(items))}


# --- A3, A4: speed ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """Two streams of items, in batches; each tuple has so many partners in the other stream's window."""

    tuples: int
    partners: int
    batch: int = 1024

    @property
    def window(self) -> int:
        return self.tuples // 8

    def cost(self, query: str, mode: Mode) -> float:
        """CPU time that a query takes for a tuple once its window is full, in nanoseconds; ingest is not in it."""
        session = session_with(mode, f"CREATE CONTINUOUS QUERY q AS {query} WINDOW {self.window} MICROSECONDS")
        rng = np.random.default_rng(3)
        times = START + np.arange(self.tuples)
        items = rng.integers(0, self.window // self.partners, (2, self.tuples))
        view = view_of(session)
        before = 0
        for at in range(0, self.tuples, self.batch):
            if at == self.tuples // 2:
                before = view.cpu
            part = slice(at, at + self.batch)
            session.ingest("a", _columns(times[part], items[0, part]))
            session.ingest("b", _columns(times[part], items[1, part]))
            session.standing.tick()
        return (view.cpu - before) / self.tuples


def speed(report: Report, effort: Effort) -> None:
    """MAX over the join of two streams, in each mode, as fast as it goes; and the join alone."""
    figures = []
    for partners in (1, 4):
        load = Load(1 << 16 if effort.quick else 1 << 18, partners)
        for what, ours, query, aims in (
            ("join", Mode.TIME, "SELECT a.item {}", {Mode.NTA: ">= 1.7"}),
            ("max over join", Mode.PIGGYBACK, "SELECT max(a.price) AS m {}", {Mode.NTA: ">= 1.4", Mode.ITA: ">= 1"}),
        ):
            text = query.format("FROM a, b WHERE a.item = b.item")
            found: dict[Mode, list[float]] = {mode: [] for mode in Mode}
            for number in range(effort.rounds + 1):
                for mode in Mode if number % 2 else reversed(Mode):
                    cost = load.cost(text, mode)
                    if number:
                        found[mode].append(cost)
            rates = {mode: 1e9 / statistics.median(costs) for mode, costs in found.items()}
            sizes: dict[str, int | float | str] = {"partners": partners, "window": load.window}
            figures += [
                Figure(f"{what}, {ours}", rates[ours], rates[other], str(other), "tuples/s", aims.get(other, ""), sizes)
                for other in (Mode.NTA, Mode.ITA)
            ]
    report.part("speed", "tuples a second that one core can do, batches of 1,024 (A3, A4)", figures)


# --- A5: the wire ----------------------------------------------------------------------------------------------------


def wire(report: Report, effort: Effort) -> None:
    """100 selections of 5-10 % on one connection: what their subscribers are sent, against a message for each end.

    Counted from when the windows are full, so that as many end as come.
    """
    rng = np.random.default_rng(5)
    seconds, full, rate, number = 90 if effort.quick else 300, 62, 1_000, 20 if effort.quick else 100
    session = session_with(Mode.PIGGYBACK)
    for query, (low, wide) in enumerate(
        zip((rng.random(number) * 0.9).tolist(), rng.uniform(0.05, 0.1, number).tolist(), strict=True)
    ):
        session.execute(
            f"CREATE CONTINUOUS QUERY q{query} AS SELECT item, price FROM a WHERE price >= {low!r} AND"
            f" price < {low + wide!r} WINDOW 60 SECONDS"
        )
    engine: Engine = session.standing
    feeds = [engine.subscribe(f"q{query}") for query in range(number)]
    inserted = ended = frames = would = 0
    live: list[tuple[int, int]] = []
    for tick in range(seconds * 10):
        times = START + tick * 100_000 + np.arange(rate // 10) * 1_000
        session.ingest("a", {"ts": times, "item": times % 100, "price": rng.random(len(times))})
        engine.tick()
        told = [delta for feed in feeds if (delta := feed.take()) is not None]
        new = sum(len(delta.ids) for delta in told)
        gone = 0
        now = int(times[-1])
        live.append((int(times[0]) + 60_000_000, new))
        while live and live[0][0] <= now:
            gone += live.pop(0)[1]
        if tick >= full * 10:
            inserted += new
            frames += bool(told)
            ended += gone
            would += bool(new or gone)
    sizes: dict[str, int | float | str] = {"queries": number, "seconds": seconds}
    report.part(
        "wire",
        "records and frames to a subscriber of many selections (A5)",
        [
            Figure("records", inserted, inserted + ended, "nta: one more at each end", "records", "<= 0.55", sizes),
            Figure("frames", frames, would, "nta", "frames", "<= 1", sizes),
        ],
    )
