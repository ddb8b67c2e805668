"""Standing queries against the oracle: random lives, and at every watermark that a client is given its view is true.

    python -m tests.query.standing.truth --watermarks 10000 [--seed N] [--mode M] [--budget] [--small]

runs lives of all modes until so many watermarks were delivered and compared. A life that fails names its seed; with
`--small` it is cut down to the few events that it takes.
"""

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from promising.query.standing.deltas import Mode
from tests.query.standing.life import Life, Setting, Untrue, change_text, in_little_room, statement
from tests.query.standing.random_events import (
    START,
    Advance,
    Change,
    Create,
    Event,
    Ingest,
    Lives,
    Restart,
    Shape,
)
from tests.query.standing.random_plans import SECOND, TABLES


@dataclass
class Sum:
    """What was seen in many lives."""

    lives: int = 0
    watermarks: int = 0
    full: int = 0
    partial: int = 0
    resets: int = 0
    resumed: int = 0
    survived: int = 0
    restarts: int = 0
    queries: int = 0

    def add(self, life: Life) -> None:
        self.lives += 1
        self.watermarks += life.watermarks
        self.full += life.full
        self.partial += life.partial
        self.resets += life.resets
        self.resumed += life.resumed
        self.survived += life.survived
        self.restarts += life.restarts
        self.queries += len(life.queries)


def life_of(
    seed: int | str, mode: Mode, *, budget: bool = False, durable: bool | None = None, ticks: int = 40
) -> tuple[Setting, list[Event]]:
    """A life by its seed: nothing else decides what happens."""
    rng = random.Random(f"life {seed} {budget}")
    by_chance = rng.random() < 0.25
    durable = by_chance if durable is None else durable
    setting = Setting(
        mode,
        tuple(rng.random() < 0.5 for _ in TABLES),
        summaries=rng.random() < 0.2,
        durable=durable,
        tight=rng.random() < 0.4,
    )
    shape = Shape(
        ticks=ticks,
        queries=rng.choice((1, 3, 5)),
        strange=rng.random() < 0.2,
        restarts=0.08 if durable else 0.0,
        budget=budget,
        growing=budget,
        nulls=rng.choice((0.0, 0.1, 0.3)),
        keys=rng.choice((2, 4, 9, 9, 40)),
        largest=rng.choice((20, 20, 80)),
    )
    return setting, Lives(rng, shape).events()


def live(setting: Setting, events: list[Event]) -> Life:
    """A whole life, from birth to end."""
    with tempfile.TemporaryDirectory() as folder, in_little_room(setting.tight):
        life = Life(setting, Path(folder) / "store" if setting.durable else None)
        try:
            return life.run(events)
        finally:
            life.close()


def smallest(setting: Setting, events: list[Event], problem: BaseException) -> tuple[Setting, list[Event]]:
    """Fewer events that end in the same kind of problem."""

    def fails(setting: Setting, some: list[Event]) -> bool:
        try:
            live(setting, some)
        except Exception as other:
            return type(other) is type(problem) and _gist(other) == _gist(problem)
        return False

    if setting.durable and not any(isinstance(e, Restart) for e in events):
        setting = replace(setting, durable=False)
    step = max(1, len(events) // 2)
    while True:
        at = 0
        while at < len(events):
            fewer = events[:at] + events[at + step :]
            if fails(setting, fewer):
                events = fewer
            else:
                at += step
        if step == 1:
            break
        step //= 2
    for at in range(len(events)):
        event = events[at]
        if isinstance(event, Ingest | Change):
            for row in event.rows:
                event = replace(event, rows=tuple(r for r in event.rows if r is not row))
                fewer = [*events[:at], event, *events[at + 1 :]]
                if fails(setting, fewer):
                    events = fewer
                else:
                    event = events[at]
                    assert isinstance(event, Ingest | Change)
    return setting, events


def _gist(problem: BaseException) -> str:
    return "" if isinstance(problem, Untrue) else str(problem)[:40]


def told(events: list[Event]) -> str:
    """Events to read."""
    lines = []
    for event in events:
        if isinstance(event, Ingest):
            rows = [{**row, "ts": (row["ts"] - START) / SECOND} for row in event.rows]
            lines.append(f"ingest {event.stream}: " + "; ".join(map(str, rows)))
        elif isinstance(event, Create):
            lines.append(f"create {event.name}: {statement(event)}")
        elif isinstance(event, Change):
            lines.append(change_text(event))
        elif isinstance(event, Advance):
            lines.append(f"advance {event.stream} to {(event.time - START) / SECOND}")
        else:
            lines.append(str(event))
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="truth", description="Standing queries against the oracle.")
    parser.add_argument("--watermarks", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first life")
    parser.add_argument("--lives", type=int, default=None, help="no more than so many of each mode")
    parser.add_argument("--mode", choices=[str(m) for m in Mode], default=None)
    parser.add_argument("--budget", action="store_true", help="views are parts of the truth")
    parser.add_argument("--small", action="store_true", help="cut down lives that fail")
    parser.add_argument("--go-on", action="store_true", help="also after a life that failed")
    given = parser.parse_args(arguments)
    modes = [Mode(given.mode)] if given.mode else list(Mode)
    sums = {mode: Sum() for mode in modes}
    failed = 0
    seed, began, last = given.seed, time.monotonic(), time.monotonic()
    while sum(s.watermarks for s in sums.values()) < given.watermarks:
        if given.lives is not None and seed >= given.seed + given.lives:
            break
        for mode in modes:
            setting, events = life_of(seed, mode, budget=given.budget)
            try:
                sums[mode].add(live(setting, events))
            except Exception as problem:
                failed += 1
                print(
                    f"--seed {seed} --mode {mode}: {type(problem).__name__}: {problem}",
                    *getattr(problem, "__notes__", ()),
                    sep="\n  ",
                )
                if given.small:
                    print(told(smallest(setting, events, problem)[1]))
                if not given.go_on:
                    raise
        seed += 1
        if time.monotonic() - last > 5:
            last = time.monotonic()
            done = sum(s.watermarks for s in sums.values())
            print(f"{done:>7,} watermarks, {seed - given.seed} seeds, {last - began:.0f} s", flush=True)
    for mode, seen in sums.items():
        print(
            f"{mode:>10}: {seen.watermarks:,} watermarks, {seen.full:,} with rows, of {seen.lives} lives and"
            f" {seen.queries} queries; {seen.partial} in part, {seen.resets} first frames; without one {seen.resumed}"
            f" resumed, of these {seen.survived} after one of {seen.restarts} restarts"
        )
    total = sum(s.watermarks for s in sums.values())
    print(f"{total:,} watermarks, {failed} lives with differences, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
