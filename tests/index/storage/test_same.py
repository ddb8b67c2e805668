"""Same batches, same seed: the same bytes; and a stop, of whatever kind, at whatever point, changes no later answer."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import promising.index.log
import promising.index.storage.store
from promising.index import Stream
from promising.index.check import check_stream
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.testing import ManualClock
from tests.index.storage import stores
from tests.index.storage.lives import abandon
from tests.index.storage.told import differences, told
from tests.index.world import SCHEMA, SMALL, STRUCTURES, UNPOSTED, columns, part
from tests.tiers import examples

ROOT = Path(__file__).resolve().parents[3]
KEYS = list(range(-3, 27))
OPTIONS = replace(SMALL, maxlength=300)


# --- the same bytes --------------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, bytes]:
    """Checkpoints and cold tuples by stream and name."""
    found = {}
    for stream in sorted((folder / "streams").iterdir()):
        for kind in ("checkpoint", "cold"):
            for path in sorted((stream / kind).iterdir()):
                found[f"{kind}/{path.name}"] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return written(tmp_path_factory.mktemp("plain"), "1")


def written(folder: Path, hash_seed: str, *how: str) -> dict[str, bytes]:
    command = [sys.executable, "-m", "tests.index.storage.scripted", str(folder / "store"), *how]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return files(folder / "store")


@pytest.mark.deep("starts processes")
@pytest.mark.parametrize("how", [["asking"], ["threads"], ["threads", "asking", "stopping"]])
def test_the_same_batches_give_the_same_bytes_in_another_process(plain, tmp_path, how):
    again = written(tmp_path, "2", *how)
    assert sum(name.startswith("cold/") for name in plain) > 3
    assert again.keys() == plain.keys()
    for name, content in plain.items():
        assert again[name] == content, f"{name} differs"


@pytest.mark.usefixtures("small_chunks")
def test_strings_are_given_back_alike_with_and_without_a_start(tmp_path, monkeypatch):
    monkeypatch.setattr("promising.index.log.SLICE", 64)
    options = replace(stores.SMALL, hot_tuples=1 << 40)

    def lived(folder: Path, restarted: bool):
        def rows(k: int, at: int, width: int):
            return {"ts": at + np.arange(64), "k": np.full(64, k), "s": ["x" * width] * 64}

        store = stores.opened(folder, options, seed=7)
        types = {"ts": "timestamp", "k": "int", "s": "string"}
        stream = store.create_stream("a", types, "ts", max_tuples=1 << 14, max_string_bytes=64 * 3000, keep=8000)
        stream.create_summary("k", "k", granularity=1000, collapse=(2, 2), options=stores.OPTIONS)
        for number in range(60):
            stream.append(rows(number % 5, number * 10, 20))
        stream.append(rows(1, 20_000, 800))
        if restarted:
            stores.crash(store)
            store = stores.opened(folder, options, seed=7)
            stream = store.streams["a"]
        stream.create_summary("late", "k", granularity=1000, collapse=(2, 2), options=stores.OPTIONS)
        store.checkpoint()
        found = stream.count, stream.summaries["late"].describe().expired
        store.close()
        return found, [path.read_bytes() for path in stores.files(folder, "checkpoint")]

    once, twice = lived(tmp_path / "once", False), lived(tmp_path / "twice", True)
    assert once[0] == twice[0] == (64, 0)
    assert once[1] == twice[1]


# --- the same answers ------------------------------------------------------------------------------------------------

seeds = st.integers(0, 1 << 32)
sizes = st.one_of(st.integers(1, 30), st.integers(60, 250))


class Machine(RuleBasedStateMachine):
    """A stream in a store that is stopped and started, and one in memory that never is."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.folder = Path(tempfile.mkdtemp(prefix="same-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.store: Store | None = None

    def teardown(self) -> None:
        if self.store is not None:
            abandon(self.store)
        self.patch.undo()
        shutil.rmtree(self.folder)

    @initialize(
        granularity=st.integers(8, 40),
        rate=st.integers(2, 4),
        depth=st.integers(1, 4),
        lateness=st.sampled_from([0, 0, 7, 90]),
        chunk=st.sampled_from([64, 256]),
        room=st.sampled_from([2_000, 30_000]),
        hot=st.sampled_from([0, 128, 1 << 20]),
    )
    def start(self, granularity, rate, depth, lateness, chunk, room, hot):
        self.patch.setattr(promising.index.log, "CHUNK", chunk)
        self.patch.setattr(promising.index.storage.store, "TICK", 3600.0)
        self.clock = ManualClock(0)
        self.limits = StoreOptions(
            segment_bytes=4096, checkpoint_bytes=1 << 40, hot_tuples=hot, run_tuples=2 * chunk, cache_bytes=8192
        )
        self.seed = granularity
        self.geometry = (granularity, (rate, depth))
        self.newest = 0
        self.seen = self.sent = 0
        self.open()
        options = {"lateness": lateness, "max_future": 50, "max_tuples": room, "keep": 20 * granularity}
        assert self.store is not None
        self.store.create_stream("s", SCHEMA, "ts", **options)
        self.twin = Stream("s", SCHEMA, "ts", clock=self.clock, seed=self.seed, **options)
        for structure in ("adaptive", "none"):
            self.create(structure)

    def open(self) -> None:
        self.store = Store.open(self.folder / "store", seed=self.seed, clock=self.clock, options=self.limits)
        assert not self.store.damages and not self.store.report
        for stream in self.store.streams.values():
            assert check_stream(stream) == []

    @property
    def stream(self) -> Stream:
        assert self.store is not None
        return self.store.streams["s"]

    def both(self):
        return self.stream, self.twin

    def create(self, name: str) -> None:
        granularity, collapse = self.geometry
        key = "s" if name == "text" else UNPOSTED.get(name, "k")
        structure = name if name in STRUCTURES else "adaptive"
        options = replace(OPTIONS, postings=name not in UNPOSTED)
        for stream in self.both():
            stream.create_summary(
                name, key, granularity=granularity, collapse=collapse, structure=structure, options=options
            )

    # --- what happens --------------------------------------------------------------------------------------------

    def feed(self, times: np.ndarray, rng: np.random.Generator, cut: int, among: list[int] = KEYS) -> None:
        weights = 1.0 / np.arange(1, len(among) + 1)
        keys = rng.choice(among, len(times), p=weights / weights.sum())
        batch = columns(times, keys, self.seen)
        self.seen += len(times)
        for start, stop in ((0, cut), (cut, len(times))):
            if start < stop:
                self.sent += 1
                self.offer(part(batch, start, stop), self.sent)

    def offer(self, batch, number: int, again: bool = False) -> None:
        answers = []
        for stream in self.both():
            try:
                answers.append(stream.append(batch, producer="till", sequence=number))
            except Exception as problem:
                answers.append((type(problem), str(problem)))
        assert answers[0] == answers[1]
        self.last = batch, number

    @rule(seed=seeds, n=sizes, pace=st.sampled_from([0.02, 0.3, 3.0]), share=st.floats(0, 1))
    def ordered(self, seed, n, pace, share):
        rng = np.random.default_rng(seed)
        times = self.newest + np.cumsum(rng.exponential(pace, n)).astype(np.int64)
        self.newest = int(times[-1])
        self.clock.set(max(self.clock(), self.newest))
        self.feed(times, rng, int(n * share))

    @rule(seed=seeds, n=st.integers(260, 500), popular=st.integers(1, 8), stop=st.sampled_from(["", "stop", "crash"]))
    def one_instant(self, seed, n, popular, stop):
        """Enough tuples of one block for a zone to be cut, with a stop while it is open."""
        rng = np.random.default_rng(seed)
        before = int(rng.integers(1, 250))
        for part_of in (before, n - before):
            self.feed(np.full(part_of, self.newest), rng, 0, KEYS[:popular])
            if stop == "stop" and part_of == before:
                self.stop_and_start()
            if stop == "crash" and part_of == before:
                self.checkpoint()
                self.crash_and_start()

    @rule(seed=seeds, n=sizes, reach=st.integers(1, 60))
    def late(self, seed, n, reach):
        rng = np.random.default_rng(seed)
        self.feed(self.newest - rng.integers(-60, reach * self.geometry[0], n), rng, 0)

    @rule()
    def again(self):
        if self.sent:
            batch, number = self.last
            self.offer(batch, number)

    @rule(periods=st.integers(1, 30))
    def advance(self, periods):
        self.newest += periods * self.geometry[0]
        self.clock.set(max(self.clock(), self.newest))
        for stream in self.both():
            stream.advance(self.newest)

    @rule(keep=st.sampled_from([None, 8, 20, 100]))
    def keep(self, keep):
        span = None if keep is None else max(keep * self.geometry[0], self.twin.lateness)
        removed = {stream.set_keep(span) for stream in self.both()}
        assert len(removed) == 1

    @rule(name=st.sampled_from([*STRUCTURES, "text", *UNPOSTED]))
    def come_or_go(self, name):
        if name in self.twin.summaries:
            for stream in self.both():
                stream.drop_summary(name)
        else:
            self.create(name)

    @rule()
    def checkpoint(self):
        assert self.store is not None
        self.store.checkpoint()

    @rule()
    def stop_and_start(self):
        assert self.store is not None
        self.store.close()
        self.open()

    @rule()
    def crash_and_start(self):
        assert self.store is not None
        abandon(self.store)
        self.open()

    # --- what holds ----------------------------------------------------------------------------------------------

    @invariant()
    def both_tell_the_same(self):
        if self.store is not None:
            problems = differences(told(self.stream, KEYS), told(self.twin, KEYS))
            assert not problems, "\n".join(problems)


Machine.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMachine = pytest.mark.deep("random lives of a store")(Machine.TestCase)
