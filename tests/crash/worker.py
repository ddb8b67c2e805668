"""The process that is killed: it opens a store, says what it found, and then does everything at once until the end.

What it says goes line by line into a pipe, as JSON with a `kind`:

    found      what the store answers after recovery (only the tuples and batches since `Plan.sent` are listed)
    made       a stream or a summary was created or dropped
    answer     a batch was acknowledged, with the answer
    failed     something went wrong that must not
"""

import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from promising.index import Stream
from promising.index.check import check_stream
from promising.index.storage.disk import Disk, Handle
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from tests.crash import feed
from tests.index.storage.told import digest, told

LIMITS = StoreOptions(
    segment_bytes=64 << 10,
    checkpoint_bytes=256 << 10,
    hot_tuples=4 * feed.CHUNK,
    run_tuples=8 * feed.CHUNK,
    cache_bytes=1 << 20,
)
MOST = 40
"""Batches of a producer between two looks at the store, so that none is gone before somebody has seen it."""
AGAIN = 4
"""Batches that each producer sends again after a restart."""


@dataclass
class Plan:
    """What one life of the worker is to do."""

    folder: Path
    seed: int
    round: int
    sent: dict[int, int]
    """By producer, the last batch acknowledged."""
    seen: dict[int, int]
    """By producer, the last batch that was known to be in the store when it was last looked at."""
    busy_checkpoints: bool = False
    dies_at: tuple[str, int] | None = None
    """Die by one's own hand at the n-th call of that kind."""


class Voice:
    """Lines into a pipe. Each is a single write, and what was written outlives the writer."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def say(self, kind: str, **more: Any) -> None:
        line = json.dumps({"kind": kind, **more}).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]


class DyingDisk(Disk):
    """A disk whose user is killed at the n-th call of one kind, sometimes just before it, sometimes just after."""

    def __init__(self, kind: str, number: int) -> None:
        super().__init__()
        self._kind = kind
        self._left = number

    def _die(self, kind: str) -> None:
        if kind == self._kind:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def create(self, path: Path) -> Handle:
        made = super().create(path)
        self._die("create")
        return made

    def write(self, handle: Handle, parts: Any) -> None:
        if self._kind == "half" and len(parts) > 1:
            super().write(handle, parts[: len(parts) // 2])
            self._die("half")
            super().write(handle, parts[len(parts) // 2 :])
        else:
            super().write(handle, parts)
        self._die("write")

    def sync(self, handle: Handle) -> None:
        self._die("sync")
        super().sync(handle)

    def truncate(self, handle: Handle, size: int) -> None:
        self._die("truncate")
        super().truncate(handle, size)

    def rename(self, old: Path, new: Path) -> None:
        self._die("before rename")
        super().rename(old, new)
        self._die("after rename")

    def unlink(self, path: Path) -> None:
        self._die("before unlink")
        super().unlink(path)
        self._die("after unlink")


DEATHS = {
    "create": 8,
    "half": 30,
    "write": 30,
    "sync": 30,
    "before rename": 6,
    "after rename": 6,
    "before unlink": 4,
    "after unlink": 4,
}
"""Kinds of calls to die at, and how many of them to wait for at most."""


def work(plan: Plan, voice: Voice) -> None:
    """Live until killed."""
    disk = DyingDisk(*plan.dies_at) if plan.dies_at else None
    store = Store.open(plan.folder, seed=plan.seed, clock=lambda: 1 << 60, disk=disk, options=LIMITS)
    for name in feed.STREAMS:
        if name not in store.streams:
            feed.make_durable(store, name)
            voice.say("made", what=name)
        for summary in feed.SUMMARIES:
            if summary not in store.streams[name].summaries:
                feed.summarise(store.streams[name], summary)
                voice.say("made", what=f"{name} {summary}")
    voice.say("found", **found(store, plan))
    pace = Pace(plan)
    jobs: list[Callable[[], None]] = [lambda p=p: produce(store, plan, p, pace, voice) for p in range(feed.PRODUCERS)]  # type: ignore[misc]  # the default binds p
    jobs += [lambda: checkpoints(store, plan), lambda: questions(store, plan), lambda: comings(store, plan, voice)]
    threads = [threading.Thread(target=guarded, args=(job, voice), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def guarded(job: Callable[[], None], voice: Voice) -> None:
    try:
        job()
    except BaseException:
        voice.say("failed", what=traceback.format_exc())


def found(store: Store, plan: Plan) -> dict[str, Any]:
    """What the store has and answers."""
    out: dict[str, Any] = {"report": list(store.report), "damages": dict(store.damages), "streams": {}}
    for name in feed.STREAMS:
        stream = store.streams[name]
        answers = told(stream, feed.KEYS)
        ids = np.array(answers["tuples"]["id"], np.int64)
        order = list(dict.fromkeys(feed.sender(ids)))
        passing = {q: a for q, a in answers.items() if q.startswith(f"{feed.PASSING}:")}
        contents = sorted(i for _, part in passing.get(f"{feed.PASSING}: contents", []) for i in part)
        steady = {q: a for q, a in answers.items() if q not in passing} | {"summaries": sorted(feed.SUMMARIES)}
        out["streams"][name] = {
            "order": order,
            "broken": check_stream(stream),
            "answers": digest(steady),
            "passing": digest({"": contents})[""] if feed.PASSING in stream.summaries else None,
            "added": {p: added(stream, p, plan) for p in range(feed.PRODUCERS) if feed.stream_of(p) == name},
        }
    return out


def added(stream: Stream, producer: int, plan: Plan) -> dict[int, Any]:
    """What the stream remembers of the batches around the last one that was acknowledged."""
    last = plan.sent[producer]
    out = {}
    for number in range(max(1, last - 100), last + MOST + 10):
        answer = stream.added(feed.name_of(producer), number)
        if answer is not None:
            out[number] = [answer.accepted, answer.refused, answer.duplicate]
    return out


class Pace:
    """Keeps the producers together in event time, and from going on forever."""

    def __init__(self, plan: Plan) -> None:
        self._at = dict(plan.sent)
        self._end = {p: seen + MOST for p, seen in plan.seen.items()}
        self._moved = threading.Condition()

    def may_send(self, producer: int, number: int) -> None:
        """Returns when it is this batch's turn, if ever."""
        with self._moved:
            self._moved.wait_for(
                lambda: number <= self._end[producer] and number <= min(self._at.values()) + feed.AHEAD
            )

    def sent(self, producer: int, number: int) -> None:
        with self._moved:
            self._at[producer] = max(self._at[producer], number)
            self._moved.notify_all()


def produce(store: Store, plan: Plan, producer: int, pace: Pace, voice: Voice) -> None:
    """Send what was sent last once more, then go on: one at a time, or several before one wait."""
    stream = store.streams[feed.stream_of(producer)]
    rng = np.random.default_rng([plan.seed, plan.round, producer])
    last = plan.sent[producer]
    for number in range(max(1, last - AGAIN + 1), last + 1):
        answer = stream.append(
            feed.batch(plan.seed, producer, number), producer=feed.name_of(producer), sequence=number
        )
        voice.say(
            "answer", producer=producer, number=number, answer=[answer.accepted, answer.refused, answer.duplicate]
        )
    number = last + 1
    while True:
        answers = []
        together = int(rng.choice([1, 1, 2, 5]))
        for n in range(number, number + together):
            pace.may_send(producer, n)
            batch = feed.batch(plan.seed, producer, n)
            name = feed.name_of(producer)
            answers.append((n, stream.append(batch, producer=name, sequence=n, wait=together == 1)))
            pace.sent(producer, n)
        if together > 1:
            stream.wait()
        for n, answer in answers:
            voice.say("answer", producer=producer, number=n, answer=[answer.accepted, answer.refused, answer.duplicate])
        number += together


def checkpoints(store: Store, plan: Plan) -> None:
    rng = np.random.default_rng([plan.seed, plan.round, 100])
    while True:
        time.sleep(rng.exponential(0.01 if plan.busy_checkpoints else 0.1))
        store.checkpoint(None if rng.random() < 0.3 else str(rng.choice(feed.STREAMS)))


def questions(store: Store, plan: Plan) -> None:
    """Ask while everything moves: bounds are in order, and every tuple is one that was sent, whole."""
    rng = np.random.default_rng([plan.seed, plan.round, 101])
    while True:
        time.sleep(rng.exponential(0.01))
        stream = store.streams[str(rng.choice(feed.STREAMS))]
        summary = stream.summaries[str(rng.choice(["adaptive", "bare"]))]
        now = stream.watermark or 0
        window = None if rng.random() < 0.2 else (now - int(rng.integers(feed.STEP * 200)), now)
        keys = rng.choice(feed.KEYS, 3)
        guess = summary.estimate(keys, window)
        assert (guess.lower <= guess.value).all() and (guess.value <= guess.upper).all()
        place, table = summary.fetch(keys, window)
        ids = table.column("id").to_numpy()
        right = feed.values(ids)
        assert table.column("k").to_pylist() == keys[place].tolist() == right["k"].tolist()
        assert table.column("s").to_pylist() == right["s"]
        assert table.column("x").to_pylist() == right["x"]
        assert len(set(zip(place.tolist(), ids.tolist(), strict=True))) == len(ids)


def comings(store: Store, plan: Plan, voice: Voice) -> None:
    """A summary that is created and dropped all the time."""
    rng = np.random.default_rng([plan.seed, plan.round, 102])
    while True:
        time.sleep(rng.exponential(0.1))
        name = str(rng.choice(feed.STREAMS))
        stream = store.streams[name]
        if feed.PASSING in stream.summaries:
            voice.say("passing", stream=name, there=None)
            stream.drop_summary(feed.PASSING)
            voice.say("passing", stream=name, there=False)
        else:
            voice.say("passing", stream=name, there=None)
            feed.summarise(stream, feed.PASSING)
            voice.say("passing", stream=name, there=True)
