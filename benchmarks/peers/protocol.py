"""What a peer says: lines of JSON on its standard output, whatever it is written in and with.

A peer is started once for a job: a group of tasks over files that the driver has written. It imports, loads, does each
task once as a rehearsal (of a history the whole, of streams their beginning), and then once for the figures. These are
of the work alone; starting, importing and loading are told apart. CPU time and memory are of the process and all that
it has started, a virtual machine of Java say.

Nothing but the standard library is needed here: this file runs in every environment.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
CHECK = 1_000_003
"""Modulus of what a row adds to a checksum."""
FIRST, SECOND = 7919, 104_729
"""A row of two numbers, x and y, adds (x * FIRST + y * SECOND) % CHECK: any order, any engine, 64 bits suffice."""

Answer = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What is asked of a peer."""

    group: str
    """history, join or selections."""
    tasks: tuple[str, ...]
    folder: Path
    """Where a.parquet and b.parquet are, and the selections as selections.json."""
    sizes: dict[str, int]
    threads: int
    seed: int
    limit: int | None = None
    """Tuples a stream; fewer in a rehearsal."""

    @property
    def tuples(self) -> int:
        """Of each stream."""
        whole = self.sizes["history"] if self.group == "history" else self.sizes[self.group]
        return whole if self.limit is None else min(whole, self.limit)

    @property
    def batch(self) -> int:
        return self.sizes["batch"]

    def file(self, stream: str) -> str:
        return str(self.folder / f"{self.group}-{stream}.parquet")

    def selections(self, task: str) -> list[tuple[float, float, int, int]]:
        """Of a task named selections-N the first N: lowest and highest price, lowest and highest item."""
        made = json.loads((self.folder / "selections.json").read_text(encoding="ascii"))
        return [tuple(one) for one in made[: int(task.rsplit("-", 1)[1])]]


@dataclass
class Tally:
    """The clock of one task. `start` and `stop` stand around the work; `rows` tells how many have come so far."""

    events: list[tuple[int, float]] = field(default_factory=list)
    wall: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    _from: float = 0.0
    _cpu_from: float = 0.0

    def start(self) -> None:
        """Looking at other processes costs something too: it is done outside of the clock, here and in `stop`."""
        _forget_peak()
        others = others_seconds()
        self._cpu_from = others + time.process_time()
        self._from = time.perf_counter()

    def rows(self, number: int) -> None:
        """So many in all, by now."""
        self.events.append((number, time.perf_counter() - self._from))

    def stop(self) -> None:
        self.wall = time.perf_counter() - self._from
        own = time.process_time()
        self.cpu = own + others_seconds() - self._cpu_from
        self.peak = peak_bytes()


Way = Callable[[Any, Job, str, Tally], Answer]
"""What was loaded, the job, the task and the clock: does the task, and gives what it found."""


@dataclass(frozen=True)
class Peer:
    """One engine: how it is loaded, which tasks it does in which ways, and why not the others."""

    name: str
    version: str
    settings: dict[str, Any]
    load: Callable[[Job], Any]
    ways: dict[str, dict[str, Way]]
    """For each task (selections-100 and its like are one: selections)."""
    refused: dict[str, str] = field(default_factory=dict)
    """Tasks that are not offered, with the reason."""


def run(make: Callable[[int], Peer]) -> None:
    """Be the peer: the job is the first argument. make: builds the peer, for so many threads."""
    given = json.loads(sys.argv[1])
    job = Job(
        given["group"],
        tuple(given["tasks"]),
        Path(given["folder"]),
        given["sizes"],
        given["threads"],
        given["seed"],
    )
    peer = make(job.threads)
    say(event="ready", version=peer.version, settings=peer.settings)
    offered = []
    for task in job.tasks:
        kind = kind_of(task)
        if kind in peer.ways:
            offered.append(task)
        else:
            say(event="not offered", task=task, reason=peer.refused.get(kind, "no such operation"))
    if not offered:
        return
    before = time.perf_counter()
    loaded = peer.load(job)
    say(event="loaded", s=time.perf_counter() - before)
    for task in offered:
        for way, do in peer.ways[kind_of(task)].items():
            try:
                _do(loaded, job, task, way, do)
            except Exception as problem:  # one way that fails leaves the others theirs
                traceback.print_exc()
                say(event="failed", task=task, way=way, reason=reason(problem))


def _do(loaded: Any, job: Job, task: str, way: str, do: Way) -> None:
    """Once to rehearse, which is what the first question costs, and once for the figure."""
    rehearsed = Tally()
    rehearsal = job if job.group == "history" else replace(job, limit=max(4 * job.batch, job.tuples // 20))
    do(loaded, rehearsal, task, rehearsed)
    tally = Tally()
    answer = do(loaded, job, task, tally)
    for number, seconds in tally.events:
        say(event="rows", task=task, way=way, n=number, s=seconds)
    say(
        event="done",
        task=task,
        way=way,
        wall_s=tally.wall,
        cpu_s=tally.cpu,
        peak_bytes=tally.peak,
        first_time_s=rehearsed.wall,
        answer=answer,
    )


def kind_of(task: str) -> str:
    return "selections" if task.startswith("selections") else task


def reason(problem: BaseException) -> str:
    """A line without the paths of a machine."""
    text = str(problem).strip().splitlines() or [""]
    words = (word if word.count("/") < 2 else "..." for word in text[0].split())
    return f"{type(problem).__name__}: {' '.join(words)}"[:300]


def say(**event: Any) -> None:
    sys.__stdout__.write(json.dumps(event) + "\n")  # type: ignore[union-attr]  # a peer has a standard output
    sys.__stdout__.flush()  # type: ignore[union-attr]  # likewise


# --- what it costs ---------------------------------------------------------------------------------------------------


def family() -> list[int]:
    """This process and all that come from it."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(entry))
    found = [os.getpid()]
    for process in found:
        found += parents.get(process, [])
    return found


def others_seconds() -> float:
    """CPU time of what this process has started, to a hundredth of a second."""
    total = 0.0
    for process in family()[1:]:
        try:
            fields = Path("/proc", str(process), "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        user, system = fields.rpartition(")")[2].split()[11:13]
        total += (int(user) + int(system)) / TICKS
    return total


def peak_bytes() -> int:
    """The most memory since `_forget_peak`, each process at its own worst moment."""
    total = 0
    for process in family():
        try:
            status = Path("/proc", str(process), "status").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    return total


def _forget_peak() -> None:
    for process in family():
        try:
            Path("/proc", str(process), "clear_refs").write_text("5", encoding="ascii")
        except OSError:  # not ours to reset: then the peak is that of its whole life
            continue
