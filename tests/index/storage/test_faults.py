"""A fault at calls that change something on disk, one at a time: nothing acknowledged is lost, nothing is twice.

A script makes streams and summaries, sends batches, drops, writes checkpoints, lets tuples go cold and age, stops and
starts. Its steps can be taken again after an error. What a store must answer after each step is known from streams in
memory; after an error it answers as before the step or as after it, and when the fault is gone the script goes on.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import promising.index.log
import promising.index.storage.store
from promising.errors import StorageError, StorageFull, StorageUnavailable
from promising.index import Stream
from promising.index.check import check_stream
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from tests.crash import feed
from tests.index.storage.flaky import Crash, FlakyDisk
from tests.index.storage.lives import NOW, SEED, abandon
from tests.index.storage.told import differences, digest, told

LIMITS = StoreOptions(
    sync_ahead=False,  # calls come from one thread, always in the same order
    segment_bytes=8 << 10,
    checkpoint_bytes=1 << 40,
    hot_tuples=64,
    run_tuples=128,
    cache_bytes=1 << 20,
)
KINDS = {errno.ENOSPC: StorageFull, errno.EIO: StorageUnavailable}
STRIDE = int(os.environ.get("FAULT_STRIDE", "4"))  # one call in so many; `make crash` takes every one
AGAIN = 2  # times that a step is tried while a fault lasts

World = dict[str, dict[str, str]]
"""What each stream answers."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(promising.index.log, "CHUNK", 64)
    monkeypatch.setattr(promising.index.storage.store, "TICK", 3600.0)
    monkeypatch.setattr(promising.index.storage.store, "AT_ONCE", 1)


# --- the script ------------------------------------------------------------------------------------------------------


class Run:
    """The script under way: a store, its disk, and how often the manifest was written."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.disk = FlakyDisk(seed=seed)
        self.store: Store | None = None
        self.commits: list[str] = []
        self.at: tuple[int, str, int] | None = None
        """The commit to fail at: its place in `commits`, and with what; code 0 is a crash."""

    def open(self) -> None:
        self.store = Store.open(
            self.folder, seed=SEED, clock=lambda: NOW, disk=self.disk, options=LIMITS, fault=self.commit
        )

    def commit(self, point: str) -> None:
        self.commits.append(point)
        if self.at is not None and len(self.commits) >= self.at[0]:
            number, kind, code = self.at
            if kind == "crash" and len(self.commits) == number:
                self.disk.crashed = True
                raise Crash
            if point == "before" and (kind == "lasting" or len(self.commits) == number):
                raise OSError(code, os.strerror(code))

    def mend(self) -> None:
        self.disk.mend()
        self.at = None

    def stream(self, name: str = "left") -> Stream:
        assert self.store is not None
        return self.store.streams[name]

    def end(self) -> None:
        if self.store is not None:
            abandon(self.store)
            self.store = None

    def world(self) -> World:
        assert self.store is not None
        assert not self.store.damages
        return {name: answers(stream) for name, stream in sorted(self.store.streams.items())}


@dataclass(frozen=True)
class Step:
    """Something to do to a store, that can be done again if it is not known whether it was; and the same in memory."""

    name: str
    durable: Callable[[Run], None]
    memory: Callable[[dict[str, Stream]], None] = lambda streams: None


def make(name: str) -> Step:
    def durable(run: Run) -> None:
        assert run.store is not None
        if name not in run.store.streams:
            feed.make_durable(run.store, name)

    def memory(streams: dict[str, Stream]) -> None:
        options = {"lateness": feed.LATENESS, "keep": feed.KEEP, "max_tuples": feed.ROOM}
        streams[name] = Stream(name, feed.SCHEMA, "ts", clock=lambda: NOW, seed=SEED, **options)

    return Step(f"make {name}", durable, memory)


def drop(name: str) -> Step:
    def durable(run: Run) -> None:
        assert run.store is not None
        if name in run.store.streams:
            run.store.drop_stream(name)

    def memory(streams: dict[str, Stream]) -> None:
        del streams[name]

    return Step(f"drop {name}", durable, memory)


def summarise(name: str, on: str = "left") -> Step:
    def durable(run: Run) -> None:
        if name not in run.stream(on).summaries:
            feed.summarise(run.stream(on), name)

    return Step(f"summarise {on} by {name}", durable, lambda streams: feed.summarise(streams[on], name))


def drop_summary(name: str, on: str = "left") -> Step:
    def durable(run: Run) -> None:
        if name in run.stream(on).summaries:
            run.stream(on).drop_summary(name)

    return Step(f"drop summary {name}", durable, lambda streams: streams[on].drop_summary(name))


def send(number: int, producer: int = 0) -> Step:
    name, on = feed.name_of(producer), feed.stream_of(producer)

    def durable(run: Run) -> None:
        before = run.stream(on).added(name, number)
        answer = run.stream(on).append(feed.batch(SEED, producer, number), producer=name, sequence=number)
        assert answer.duplicate == (before is not None)
        if before is not None:
            assert (answer.accepted, answer.refused) == (before.accepted, before.refused)

    def memory(streams: dict[str, Stream]) -> None:
        streams[on].append(feed.batch(SEED, producer, number), producer=name, sequence=number)

    return Step(f"send {number} to {on}", durable, memory)


def advance(steps: int) -> Step:
    to = steps * feed.STEP
    return Step(f"advance {steps}", lambda run: run.stream().advance(to), lambda streams: streams["left"].advance(to))


def checkpoint() -> Step:
    def durable(run: Run) -> None:
        assert run.store is not None
        run.store.checkpoint()

    return Step("checkpoint", durable)


def reopen(closing: bool) -> Step:
    def durable(run: Run) -> None:
        if run.store is not None:
            store, run.store = run.store, None
            if closing:
                store.close()
            else:
                abandon(store)
        run.open()

    return Step("close and open" if closing else "leave and open", durable)


START = Step("start", lambda run: run.open() if run.store is None else None)


def query(there: bool) -> Step:
    def durable(run: Run) -> None:
        assert run.store is not None
        if there:
            run.store.put_query("q", "SELECT 1", ["left"])
        elif "q" in run.store.queries:
            run.store.drop_query("q")

    return Step("put query" if there else "drop query", durable)


def sends(first: int, last: int, producer: int = 0) -> list[Step]:
    return [send(number, producer) for number in range(first, last + 1)]


PARTS = [
    [
        make("left"),
        summarise("adaptive"),
        summarise("bare"),
        *sends(1, 4),
        checkpoint(),
        *sends(5, 14),
        checkpoint(),
        drop_summary("bare"),
        send(15),
    ],
    [
        query(True),
        make("right"),
        summarise("adaptive", "right"),
        *sends(1, 2, 1),
        *sends(16, 19),
        summarise("words"),
        checkpoint(),
        drop("right"),
        query(False),
        reopen(closing=True),
        send(20),
    ],
    [
        *sends(21, 22),
        advance(50),
        *sends(51, 53),
        checkpoint(),
        advance(80),
        *sends(81, 83),
        checkpoint(),
        send(84),
        checkpoint(),
        reopen(closing=False),
        send(85),
    ],
]
"""The script. Each part begins with a start on what the part before it left."""


@cache
def expected() -> tuple[tuple[World, ...], ...]:
    """What a store must answer before each step and after the last, part by part."""
    streams: dict[str, Stream] = {}
    out = []
    world: World = {}
    for part in PARTS:
        worlds = [world]
        for step in part:
            step.memory(streams)
            world = {name: answers(stream) for name, stream in sorted(streams.items())}
            worlds.append(world)
        out.append(tuple(worlds))
    return tuple(out)


def answers(stream: Stream) -> dict[str, str]:
    return digest(told(stream, feed.KEYS[:10], brief=True))


# --- faults ----------------------------------------------------------------------------------------------------------


def check(run: Run, part: int, done: int, *, unsure: bool) -> None:
    """The store answers as after `done` steps; if it is not known whether the last was made, that or as before it."""
    found = run.world()
    right = expected()[part][done]
    if found == right or (unsure and done and found == expected()[part][done - 1]):
        return
    name = PARTS[part][done - 1].name if done else "the start"
    problems = [p for s in right for p in differences(found.get(s, {}), right[s])]
    raise AssertionError(f"after {name!r}: streams {list(found)}, should be {list(right)}\n" + "\n".join(problems))


def play(run: Run, part: int, kind: str, code: int = 0) -> bool:
    """A part of the script, with whatever fault is set; says whether it came. Then the power goes, and a last look."""
    struck = False
    for done, step in enumerate([START, *PARTS[part]]):
        tries = 0
        while True:
            try:
                step.durable(run)
                break
            except StorageError as problem:
                assert code and type(problem) is KINDS[code], f"{step.name}: {problem!r}"
            except Crash:
                run.end()
                run.at = None
                run.disk.lose()
                run.open()
            struck = True
            if run.store is not None:
                check(run, part, done, unsure=True)
            tries += 1
            if kind != "lasting" or tries >= AGAIN:
                run.mend()
            assert tries < AGAIN + 2, f"{step.name} fails still"
    run.mend()
    run.end()
    run.disk.lose()
    run.open()
    check(run, part, len(PARTS[part]), unsure=False)
    if kind == "crash":
        assert check_stream(run.stream()) == []
    run.end()
    return struck


class Parts:
    """Stores as each part of the script finds them, in memory where there is such a place: what is on disk is the flaky
    disk's to say."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = (root / str(number) for number in range(1 << 30))
        self.calls: list[list[str]] = []
        self.commits: list[list[str]] = []
        self._bases = [root / "empty"]
        for part in range(len(PARTS)):
            run = self.run(part)
            for step in [START, *PARTS[part]]:
                step.durable(run)
            run.end()
            self.calls.append(run.disk.calls)
            self.commits.append(run.commits)
            self._bases.append(run.folder)

    def run(self, part: int, seed: int = 0) -> Run:
        folder = next(self._names)
        if self._bases[part].exists():
            shutil.copytree(self._bases[part], folder)
        return Run(folder, seed)


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(promising.index.log, "CHUNK", 64)
        patch.setattr(promising.index.storage.store, "TICK", 3600.0)
        yield Parts(Path(root))


def test_the_script_reaches_every_kind_of_call(parts):
    calls = [call for part in parts.calls for call in part]
    print({call: calls.count(call) for call in sorted(set(calls))})
    assert {"create", "append", "write", "sync", "rename", "unlink", "sync_dir", "mkdir"} <= set(calls)
    for commits in parts.commits:
        assert commits.count("before") == commits.count("after") > 1
    for part in range(len(PARTS)):
        assert not play(parts.run(part), part, "none")


@pytest.mark.deep("a fault at many calls of the disk, one at a time")
@pytest.mark.parametrize("part", range(len(PARTS)))
@pytest.mark.parametrize("kind", ["once", "lasting", "crash"])
def test_a_fault_at_any_call_loses_nothing_and_doubles_nothing(parts, kind, part):
    for number, call in enumerate(parts.calls[part], 1):
        if (number + part) % STRIDE:
            continue
        run = parts.run(part, seed=number)
        code = 0 if kind == "crash" else (errno.ENOSPC, errno.EIO)[number % 2]
        if code:
            run.disk.fail_at(number, code, lasting=kind == "lasting", short=number % 4 < 2)
        else:
            run.disk.crash_at(number)
        try:
            play(run, part, kind, code)
        except BaseException as problem:
            problem.add_note(f"{kind} at call {number} ({call}), code {code}")
            run.end()
            raise
        shutil.rmtree(run.folder)


@pytest.mark.deep("a fault at every commit, one at a time")
@pytest.mark.parametrize("part", range(len(PARTS)))
@pytest.mark.parametrize("kind", ["once", "lasting", "crash"])
def test_a_fault_at_every_commit_of_the_manifest_loses_nothing(parts, kind, part):
    for number, point in enumerate(parts.commits[part], 1):
        if kind != "crash" and point == "after":
            continue  # done is done
        run = parts.run(part, seed=number)
        code = 0 if kind == "crash" else (errno.ENOSPC, errno.EIO)[number // 2 % 2]
        run.at = number, kind, code
        try:
            assert play(run, part, kind, code)
        except BaseException as problem:
            problem.add_note(f"{kind} {point} commit {number}, code {code}")
            run.end()
            raise
