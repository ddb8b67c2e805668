"""Runs the peers, in rounds and in turn, and judges what they answer.

A round asks every peer for every group of tasks, each in a process of its own; the next round goes the other way round.
A figure is the median over the rounds, with the least and the most of them.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.data import ERROR, Truth
from benchmarks.peers.environments import ROOT, Kind

TIMEOUT = 300  # seconds that a peer has for a group of tasks
SHARES = (0.5, 0.9, 1.0)
MEASURES = (
    "wall_s",
    "cpu_s",
    "first_row_s",
    "share50_s",
    "share90_s",
    "share100_s",
    "first_time_s",
    "load_s",
    "start_s",
)
CURVE = 60  # points that are kept of how an answer came

Groups = dict[str, list[str]]


@dataclass
class Entry:
    """A task, by a peer, in one of its ways: each list has a value for each round."""

    task: str
    peer: str
    way: str
    taken: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    peaks: list[int] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Of the first round: share of the answer, seconds."""
    rows: int = 0

    @property
    def problem(self) -> str:
        """Why it does not count; empty if it does."""
        if self.wrong:
            return f"wrong: {self.wrong[0]}"
        if self.errors and statistics.median(self.errors) > ERROR:
            return f"wrong: off by {statistics.median(self.errors):.2%} in the median round"
        return ""

    def median(self, measure: str) -> float:
        return statistics.median(self.taken[measure])

    def told(self, tuples: int) -> dict[str, Any]:
        """As it goes into the file of results."""
        spread = {
            name: {"median": statistics.median(v), "least": min(v), "most": max(v)}
            for name, v in self.taken.items()
            if v
        }
        wall = self.median("wall_s")
        return {
            "task": self.task,
            "peer": self.peer,
            "way": self.way,
            "right": not self.problem,
            "problem": self.problem,
            "rows": self.rows,
            "rounds": len(self.taken["wall_s"]),
            **spread,
            "tuples": tuples,
            "tuples_per_s": tuples / wall if wall else None,
            "tuples_per_cpu_s": tuples / self.median("cpu_s") if self.median("cpu_s") else None,
            "peak_bytes": max(self.peaks),
            "error": {"median": statistics.median(self.errors), "most": max(self.errors)} if self.errors else None,
            "curve": self.curve,
        }


@dataclass
class Absent:
    """A task that a peer does not do, or did not do here."""

    task: str
    peer: str
    way: str
    status: str
    """not offered, failed or not installed."""
    reason: str


@dataclass
class Results:
    entries: dict[tuple[str, str, str], Entry] = field(default_factory=dict)
    absent: dict[tuple[str, str, str], Absent] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def entry(self, task: str, peer: str, way: str) -> Entry:
        return self.entries.setdefault((task, peer, way), Entry(task, peer, way))

    def leave_out(self, task: str, peer: str, way: str, status: str, reason: str) -> None:
        """A failure in any round counts, and takes the place of what other rounds brought."""
        self.absent[task, peer, way] = Absent(task, peer, way, status, reason)
        self.entries.pop((task, peer, way), None)


@dataclass(frozen=True)
class Plan:
    """What is run: which tasks, over which files, in how many rounds."""

    groups: Groups
    folder: Path
    sizes: dict[str, int]
    threads: int
    rounds: int

    def job(self, group: str, seed: int) -> str:
        return json.dumps(
            {
                "group": group,
                "tasks": self.groups[group],
                "folder": str(self.folder),
                "sizes": self.sizes,
                "threads": self.threads,
                "seed": seed,
            }
        )


def run(plan: Plan, peers: dict[Kind, str], truth: Truth) -> Results:
    """peers: with the interpreter that runs each."""
    results = Results()
    for number in range(plan.rounds):
        for group in plan.groups:
            order = list(peers) if number % 2 == 0 else list(reversed(peers))
            for kind in order:
                began = time.monotonic()
                _ask(plan, kind, peers[kind], group, number, truth, results)
                took = time.monotonic() - began
                print(
                    f"round {number + 1} of {plan.rounds}, {group}: {kind.title}, {took:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
    return results


def _ask(plan: Plan, kind: Kind, python: str, group: str, number: int, truth: Truth, results: Results) -> None:
    """One process: one group of tasks."""
    missing = {task for task in plan.groups[group] if (task, kind.name, "") not in results.absent}
    if not missing:
        return
    loaded = started = 0.0
    came: dict[tuple[str, str], list[tuple[int, float]]] = {}
    told: set[str] = set()
    ending = ""
    for after, event in _events(python, kind.module, plan.job(group, number + 1)):
        what = event["event"]
        if what == "ready":
            started = after
            results.versions[kind.name], results.settings[kind.name] = event["version"], event["settings"]
        elif what == "loaded":
            loaded = event["s"]
        elif what == "rows":
            came.setdefault((event["task"], event["way"]), []).append((event["n"], event["s"]))
        elif what == "not offered":
            told.add(event["task"])
            results.leave_out(event["task"], kind.name, "", "not offered", event["reason"])
        elif what == "failed":
            told.add(event["task"])
            results.leave_out(event["task"], kind.name, event["way"], "failed", event["reason"])
        elif what == "done":
            told.add(event["task"])
            key = event["task"], kind.name, event["way"]
            if key not in results.absent:
                entry = results.entry(*key)
                _take(entry, event, came.get((event["task"], event["way"]), []), truth)
                entry.taken["load_s"].append(loaded)
                entry.taken["start_s"].append(started)
        else:
            ending = event["reason"]
    for task in missing - told:
        results.leave_out(task, kind.name, "", "failed", ending or "ended without an answer")


def _take(entry: Entry, done: dict[str, Any], came: list[tuple[int, float]], truth: Truth) -> None:
    answer = done["answer"]
    verdict = truth.judge(entry.task, answer)
    if not verdict.right:
        entry.wrong.append(verdict.why)
    if "value" in answer:
        entry.errors.append(verdict.error)
    entry.rows = int(answer["rows"])
    entry.peaks.append(int(done["peak_bytes"]))
    for name in ("wall_s", "cpu_s", "first_time_s"):
        entry.taken[name].append(float(done[name]))
    total = max(entry.rows, 1)
    first = next((s for n, s in came if n > 0), done["wall_s"])
    entry.taken["first_row_s"].append(first)
    for share in SHARES:
        reached = next((s for n, s in came if n >= share * total), done["wall_s"])
        entry.taken[f"share{share * 100:.0f}_s"].append(reached)
    if not entry.curve:
        entry.curve = _thinned([(n / total, s) for n, s in came if n > 0])


def _thinned(curve: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """No more points than a picture shows; the first and the last are kept."""
    if len(curve) <= CURVE:
        return curve
    return [curve[i * (len(curve) - 1) // (CURVE - 1)] for i in range(CURVE)]


def _events(python: str, module: str, job: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """What a peer says, with the seconds since it was started; at last how it ended, if not well.

    It is in a session of its own, so that all it has started ends with it.
    """
    began = time.monotonic()
    with subprocess.Popen(
        [python, "-m", module, job],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        late = threading.Timer(TIMEOUT, _end, [process])
        late.start()
        errors: list[str] = []
        assert process.stdout is not None and process.stderr is not None
        reading = threading.Thread(target=errors.extend, args=[process.stderr])
        reading.start()
        try:
            for line in process.stdout:
                if line.startswith('{"event"'):
                    yield time.monotonic() - began, json.loads(line)
            code = process.wait()
        finally:
            timely = late.is_alive()
            late.cancel()
            _end(process)
            reading.join()
            late.join()
    if code:
        last = next((e.strip() for e in reversed(errors) if e.strip() and not e.startswith(" ")), "")
        words = " ".join(word if word.count("/") < 2 else "..." for word in last.split())
        why = words[:300] or f"exit code {code}" if timely else f"no answer within {TIMEOUT} s"
        yield time.monotonic() - began, {"event": "ended", "reason": why}


def _end(process: subprocess.Popen[str]) -> None:
    """The peer and what it has started, by the number of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
