"""Kill a worker again and again, and hold what it left behind against what it had acknowledged.

Beside the store runs a twin: streams in memory that are fed the same batches in the order in which the store has them,
and never crash. After each kill the next worker says what it recovered, and then:

- every acknowledged batch is there, once, with the answer that was given for it;
- one without acknowledgement is there once or not at all, and none is missing before one that is there;
- every answer is the twin's, and from time to time the oracle's: tuples, probes, estimates, zones, sketches;
- no invariant of a stream is broken, no file is damaged, no stream or summary that was made has to be made again.

Some kills leave half a record behind the log's end. At last, logs are cut below what was synced: that is damage.
"""

import json
import os
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from promising.index.storage.disk import Disk
from promising.index.storage.segments import HEADER
from promising.index.storage.store import Store
from promising.index.storage.synced import SyncedMark
from promising.testing import Oracle
from tests.crash import feed
from tests.crash.worker import DEATHS, Plan, Voice, work
from tests.index.storage.told import differences, digest, told

PATIENCE = 180.0
"""Seconds after which a worker that has not spoken is taken to hang."""
TORN = 0.25  # of the kills
LOOKS = 25
"""Rounds between two looks at the oracle."""
RECENT = 300
"""Batches of a stream that the oracle is fed: more than any summary keeps."""

MODES = ("early", "any time", "in a file", "at a call")


class Lost(AssertionError):
    """The store broke a promise."""


@dataclass
class Life:
    """What one worker said before its end."""

    mode: str
    lines: list[dict[str, Any]]
    status: int


@dataclass
class Tally:
    """What has happened so far."""

    kills: int = 0
    looks: int = 0
    oracles: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    again: int = 0
    torn: int = 0
    modes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        modes = ", ".join(f"{count} {mode}" for mode, count in sorted(self.modes.items()))
        return (
            f"{self.kills} kills ({modes}), {self.looks} recoveries looked at, {self.oracles} of them with the oracle;"
            f" {self.acknowledged:,} batches acknowledged, {self.again:,} sent again,"
            f" {self.unanswered:,} there without an answer, {self.torn} torn ends cut"
        )


class Harness:
    """One store and its twin through any number of kills."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.tally = Tally()
        self.answers: dict[tuple[int, int], list[Any]] = {}
        self.there: set[tuple[int, int]] = set()  # batches in the store at the last look
        self.sent = dict.fromkeys(range(feed.PRODUCERS), 0)
        self.twins = {name: feed.make(name, seed) for name in feed.STREAMS}
        self.order: dict[str, list[tuple[int, int]]] = {name: [] for name in feed.STREAMS}
        self.made: set[str] = set()
        self.passing: dict[str, bool | None] = dict.fromkeys(feed.STREAMS, False)

    def round(self, number: int) -> None:
        """One life, its end, and the reckoning."""
        life = self.live(number)
        self.tally.kills += 1
        self.tally.modes[life.mode] += 1
        for line in life.lines:
            getattr(self, f"hear_{line.pop('kind')}")(**line)
        if os.WIFSIGNALED(life.status) and os.WTERMSIG(life.status) == signal.SIGKILL:
            return
        raise Lost(f"the worker ended by itself, with status {life.status}")

    def last_look(self) -> None:
        """What is there after the last kill, with the oracle."""
        looks = self.tally.looks
        for line in self.live(self.tally.kills, "any time").lines:
            getattr(self, f"hear_{line.pop('kind')}")(**line)
        if self.tally.looks == looks:
            raise Lost("the last worker did not say what it found")
        for name, twin in self.twins.items():
            self.ask_oracle(name, told(twin, feed.KEYS))
        self.cut()

    def cut(self) -> None:
        """Every log that is cut below what was synced is missed."""
        cut = 0
        for folder in self.folder.glob("streams/*/wal"):
            newest = max(folder.glob("*.wal"), default=None)
            if newest is not None and SyncedMark(Disk(), folder).read() >= int(newest.stem, 16):
                os.truncate(newest, HEADER)
                cut += 1
        with Store.open(self.folder) as store:
            if len(store.damages) != cut:
                raise Lost(f"{cut} logs were cut below what was synced, and these are missed: {store.damages}")

    def tear(self, rng: np.random.Generator) -> None:
        """Leave half a record behind the end of a log."""
        newest = [max(folder.glob("*.wal"), default=None) for folder in sorted(self.folder.glob("streams/*/wal"))]
        found = [path for path in newest if path is not None]
        if found:
            with found[int(rng.integers(len(found)))].open("ab") as file:
                file.write(rng.bytes(int(rng.integers(1, 100))))

    def live(self, number: int, mode: str | None = None) -> Life:
        """One life, which ends in the given way or a random one."""
        rng = np.random.default_rng([self.seed, number])
        mode = mode or str(rng.choice(MODES, p=[0.15, 0.35, 0.25, 0.25]))
        call = str(rng.choice(list(DEATHS)))
        dies_at = (call, int(rng.integers(1, DEATHS[call] + 1))) if mode == "at a call" else None
        seen = dict.fromkeys(range(feed.PRODUCERS), 0)
        for producer, batch in self.there:
            seen[producer] = max(seen[producer], batch)
        plan = Plan(self.folder, self.seed, number, dict(self.sent), seen, mode == "in a file", dies_at)
        hear, speak = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(hear)
            _be_worker(plan, speak)
        os.close(speak)
        try:
            lines = _Listener(hear, pid, self.folder).until_death(mode, rng)
        finally:
            _, status = os.waitpid(pid, 0)
            os.close(hear)
        if rng.random() < TORN:
            self.tear(rng)
        return Life(mode, lines, status)

    # --- what the worker said ------------------------------------------------------------------------------------

    def hear_failed(self, what: str) -> None:
        raise Lost(f"the worker failed:\n{what}")

    def hear_made(self, what: str) -> None:
        if what in self.made:
            raise Lost(f"{what} had been made, and had to be made again")
        self.made.add(what)

    def hear_passing(self, stream: str, there: bool | None) -> None:
        self.passing[stream] = there

    def hear_answer(self, producer: int, number: int, answer: list[Any]) -> None:
        batch = (producer, number)
        accepted, refused, duplicate = answer
        first = self.answers.get(batch)
        if first is not None:
            self.tally.again += 1
            if not duplicate or [accepted, refused] != first:
                raise Lost(f"batch {batch} was answered {first}, and when sent again {answer}")
            return
        if duplicate != (batch in self.there):
            raise Lost(f"batch {batch} was {'' if batch in self.there else 'not '}in the store, but answered {answer}")
        self.tally.acknowledged += 1
        self.answers[batch] = [accepted, refused]
        self.sent[producer] = max(self.sent[producer], number)

    def hear_found(self, report: list[str], damages: dict[str, list[str]], streams: dict[str, Any]) -> None:
        self.tally.looks += 1
        self.tally.torn += len(report)
        if damages:
            raise Lost(f"files are damaged: {damages}")
        for name, found in streams.items():
            self.follow(name, [(p, n) for p, n in found["order"]], found["added"])
        lost = [batch for batch in self.answers if batch not in self.there]
        if lost:
            raise Lost(f"acknowledged and lost: {lost[:10]}")
        for producer in range(feed.PRODUCERS):
            numbers = {n for p, n in self.there if p == producer}
            if numbers and max(numbers) != len(numbers):
                raise Lost(f"batches of producer {producer} are missing before {max(numbers)}")
        with_oracle = self.tally.looks % LOOKS == 0
        for name, found in streams.items():
            self.compare(name, found, with_oracle)

    def follow(self, name: str, order: list[tuple[int, int]], added: dict[str, dict[str, Any]]) -> None:
        """Feed the twin what is new in the store, in the store's order."""
        known = [batch for batch in order if batch in self.there]
        if known != order[: len(known)]:
            raise Lost(f"stream {name!r}: batches that were there have others before them now: {order}")
        for batch in order[len(known) :]:
            producer, number = batch
            self.there.add(batch)
            self.order[name].append(batch)
            sender = feed.name_of(producer)
            right = self.twins[name].append(feed.batch(self.seed, producer, number), producer=sender, sequence=number)
            answer = added[str(producer)].get(str(number))
            if answer != [right.accepted, right.refused, True]:
                raise Lost(f"batch {batch} is in, but when asked about it the store says {answer}, not {right}")
            said = self.answers.get(batch)
            if said is None:
                self.tally.unanswered += 1
            elif said != [right.accepted, right.refused]:
                raise Lost(f"batch {batch} was answered {said}; it came to {right}")
        for producer_, numbers in added.items():
            for number_ in numbers:
                if (int(producer_), int(number_)) not in self.there:
                    raise Lost(f"batch {number_} of producer {producer_} is remembered, but not there")

    def compare(self, name: str, found: dict[str, Any], with_oracle: bool) -> None:
        answers = told(self.twins[name], feed.KEYS)
        if found["broken"]:
            raise Lost(f"stream {name!r} is not in order:\n" + "\n".join(found["broken"]))
        problems = differences(found["answers"], digest(answers))
        if problems:
            raise Lost(f"stream {name!r} answers otherwise than its twin:\n" + "\n".join(problems))
        there = self.passing[name]
        if there is not None and there != (found["passing"] is not None):
            raise Lost(f"stream {name!r}: the summary that comes and goes should{'' if there else ' not'} be there")
        self.passing[name] = found["passing"] is not None
        if found["passing"] not in (None, digest({"": sorted(answers["tuples"]["id"])})[""]):
            raise Lost(f"stream {name!r}: the summary that comes and goes has other tuples than the stream")
        if with_oracle:
            self.ask_oracle(name, answers)
            self.tally.oracles += 1

    def ask_oracle(self, name: str, answers: dict[str, Any]) -> None:
        """What the twin and so the store answer, by brute force."""
        oracle = Oracle(
            "ts",
            "k",
            granularity=feed.GRANULARITY,
            collapse=feed.COLLAPSE,
            keep=feed.KEEP,
            clock=lambda: 1 << 60,
            lateness=feed.LATENESS,
        )
        for producer, number in self.order[name][-RECENT:]:
            oracle.append(feed.batch(self.seed, producer, number))
        rows = oracle.rows(oracle.live())
        right: dict[str, Any] = {
            "watermark": oracle.watermark,
            "tuples": {c: [r[c] for r in rows] for c in feed.SCHEMA},
        }
        asked = [*feed.KEYS, *(-77, 1 << 40)]
        right["adaptive: probe 0"] = np.array(
            sorted((p, oracle.rows([a])[0]["id"]) for p, a in oracle.join(asked)), np.int64
        )
        problems = differences({question: answers[question] for question in right}, right)
        if problems:
            raise Lost(f"stream {name!r} answers otherwise than the oracle:\n" + "\n".join(problems))


class _Listener:
    """The parent's end of the pipe, and its finger on the trigger."""

    def __init__(self, fd: int, pid: int, folder: Path) -> None:
        self._fd = fd
        self._pid = pid
        self._folder = folder
        self._text = b""

    def until_death(self, mode: str, rng: np.random.Generator) -> list[dict[str, Any]]:
        if mode == "early":
            self._listen(rng.exponential(0.05), None)
        elif self._listen(PATIENCE, b'"found"'):
            if mode == "any time":
                self._listen(rng.uniform(0.0, 0.5), None)
            elif mode == "in a file":
                self._listen(0.6, None, self._writing)
                time.sleep(rng.choice([0.0, 0.0005, 0.003]))
            else:
                self._listen(0.6, None)
        os.kill(self._pid, signal.SIGKILL)
        self._listen(PATIENCE, None)
        lines = self._text.split(b"\n")[:-1]  # what has no end was cut off
        return [json.loads(line) for line in lines]

    def _writing(self) -> bool:
        return any(name.endswith(".tmp") for _, _, names in os.walk(self._folder) for name in names)

    def _listen(self, seconds: float, word: bytes | None, until: Any = None) -> bool:
        """Take in what comes, for so long, or until that word has come; False if the worker is gone."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if until is not None and until():
                return True
            ready, _, _ = select.select([self._fd], [], [], min(left, 0.001) if until is not None else left)
            if not ready:
                continue
            came = os.read(self._fd, 1 << 16)
            if not came:
                return False
            self._text += came
            if word is not None and word in self._text and self._text.endswith(b"\n"):
                return True
            if b'"failed"' in came:
                return True
        return True


def _be_worker(plan: Plan, fd: int) -> None:
    """The child's whole life: never returns."""
    voice = Voice(fd)
    try:
        work(plan, voice)
    except BaseException:
        voice.say("failed", what=traceback.format_exc())
    finally:
        os._exit(3)


def run(kills: int, seed: int, progress: float = 10.0) -> Tally:
    """So many kills, and a last look. What is left of a store that broke a promise is kept."""
    feed.small_chunks()
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    harness = Harness(folder / "store", seed)
    started = told_at = time.monotonic()
    try:
        for number in range(kills):
            harness.round(number)
            if time.monotonic() - told_at > progress:
                told_at = time.monotonic()
                print(f"  {harness.tally.kills} of {kills} kills, {told_at - started:.0f} s", flush=True)
        harness.last_look()
    except Lost as problem:
        print(f"round {harness.tally.kills} of seed {seed}, store kept in {folder}\n{problem}", flush=True)
        raise
    shutil.rmtree(folder)
    return harness.tally
