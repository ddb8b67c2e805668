"""Damage of all kinds to the files of a small store, one at a time: it is detected, or it is harmless.

Entry: `python -m tests.index.storage.flips [--flips N] [--seed N]`.

Detected is: the store does not open, or a question is not answered, with an error that says so; or the store opens and
reports it. Harmless is: every answer is as before. What a damaged store still answers are tuples that were sent, whole,
and a stream whose files were not touched answers everything as before.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from promising.errors import StorageError
from promising.index.storage.store import MANIFEST, Store
from tests.crash import feed
from tests.fuzz import byte_mutations
from tests.index.storage import lives
from tests.index.storage.lives import abandon, opened, populate, small_and_quiet
from tests.index.storage.told import digest, told

BATCHES = 24  # of each stream before the last checkpoint
TAIL = 4  # and after it
SEED = 5
LIMITS = replace(lives.LIMITS, run_tuples=2 * feed.CHUNK)
KINDS = ("wal", "checkpoint", "cold", "manifest")
WAYS = {
    "flip": 0.6,
    "number": 0.1,
    "truncate": 0.05,
    "delete": 0.03,
    "zero": 0.07,
    "remove": 0.05,
    "repeat": 0.05,
    "move": 0.05,
}

Answers = dict[str, str]


class Silent(AssertionError):
    """Damage that nobody told of gave another answer."""


@dataclass
class Pristine:
    """A store that is whole, and what it answers."""

    folder: Path
    answers: dict[str, Answers]
    """By stream."""
    earlier: dict[str, list[Answers]]
    """By stream, what it answered after each of the batches that only the log has."""
    owner: dict[str, str]
    """Folder of a stream to its name."""
    files: dict[str, list[Path]]
    """By kind, relative to the folder."""

    def last_log(self, path: Path) -> bool:
        """Whether a file is the newest of its log."""
        others = [p for p in self.files["wal"] if p.parent == path.parent]
        return path in others and path == max(others)


@contextmanager
def pristine() -> Iterator[Pristine]:
    """Two streams, each with two checkpoints, cold runs, several segments of log, and batches in the log alone."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as root:
        folder = Path(root) / "pristine"
        store = opened(folder, options=LIMITS)
        populate(store)
        for number in range(1, BATCHES + 1):
            for producer in (0, 1):
                _send(store, producer, number)
            if number in (BATCHES // 2, BATCHES - TAIL, BATCHES):
                store.checkpoint()
        earlier: dict[str, list[Answers]] = {name: [_answers(store, name)] for name in store.streams}
        for number in range(BATCHES + 1, BATCHES + TAIL + 1):
            for producer in (0, 1):
                _send(store, producer, number)
                name = feed.stream_of(producer)
                earlier[name].append(_answers(store, name))
        owner = {kept.name: name for name, kept in store._kept.items()}
        abandon(store)
        files: dict[str, list[Path]] = {kind: [] for kind in KINDS}
        for path in sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file()):
            if path.parent.name in KINDS:
                files[path.parent.name].append(path)
            elif path.name == MANIFEST:
                files["manifest"].append(path)
        yield Pristine(folder, {name: told_[-1] for name, told_ in earlier.items()}, earlier, owner, files)


def _send(store: Store, producer: int, number: int) -> None:
    stream = store.streams[feed.stream_of(producer)]
    stream.append(feed.batch(SEED, producer, number), producer=feed.name_of(producer), sequence=number, wait=False)
    stream.wait()


def _answers(store: Store, name: str) -> Answers:
    """What a stream answers. Every tuple that can be read was sent, and is whole."""
    found = told(store.streams[name], feed.KEYS[:6], brief=True)
    tuples = found["tuples"]
    right = feed.values(np.array(tuples["id"], np.int64))
    for column in ("k", "s", "x"):
        if tuples[column] != list(right[column]):
            raise Silent(f"column {column!r} of stream {name!r} has values that nobody sent")
    return digest(found)


@dataclass
class Verdicts:
    """How often what happened to what."""

    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = []
        for kind in KINDS:
            for way in WAYS:
                found = {v: n for (k, w, v), n in sorted(self.seen.items()) if (k, w) == (kind, way)}
                if found:
                    said = ", ".join(f"{n} {verdict}" for verdict, n in found.items())
                    lines.append(f"  {kind:10} {way:8} {said}")
        return "\n".join(lines)

    def count(self, verdict: str) -> int:
        return sum(n for (_, _, v), n in self.seen.items() if v == verdict)


def damage(path: Path, way: str, rng: random.Random) -> str:
    """Do it; what was done, in words. Ways but `delete` are those of `tests.fuzz.byte_mutations`."""
    if way == "delete":
        path.unlink()
        return "deleted"
    data = bytearray(path.read_bytes())
    done = getattr(byte_mutations, way)(rng, data)
    path.write_bytes(data)
    return str(done)


def try_one(whole: Pristine, seed: int, number: int, verdicts: Verdicts) -> None:
    """One damage, to a copy; raises `Silent` if it gives a wrong answer and nobody says so."""
    rng = random.Random(f"{seed} {number}")
    kind = KINDS[number % len(KINDS)]
    way = rng.choices(list(WAYS), list(WAYS.values()))[0]
    path = rng.choice(whole.files[kind])
    folder = whole.folder.with_name("damaged")
    shutil.copytree(whole.folder, folder)
    try:
        what = f"damage {number} of seed {seed}: {path} ({kind}), {damage(folder / path, way, rng)}"
        try:
            verdict = look(whole, folder, path, way)
        except BaseException as problem:
            problem.add_note(what)
            raise
        verdicts.seen[kind, way, verdict] += 1
    finally:
        shutil.rmtree(folder)


def look(whole: Pristine, folder: Path, path: Path, way: str) -> str:
    """Open it, ask everything, and judge."""
    try:
        store = opened(folder, options=LIMITS)
    except StorageError:
        return "detected at the start"
    try:
        touched = whole.owner.get(path.parts[1]) if path.parts[0] == "streams" else None
        said = bool(store.report or store.damages)
        wrong = []
        for name, right in whole.answers.items():
            try:
                if name not in store.streams:
                    wrong.append(f"stream {name!r} is gone")
                    continue
                answers = _answers(store, name)
            except StorageError as problem:
                if touched is not None and name != touched:
                    raise Silent(f"stream {name!r}, which is whole, does not answer: {problem}") from problem
                return "detected when asked"
            if answers == right:
                continue
            if name != touched and touched is not None:
                raise Silent(f"stream {name!r}, which is whole, answers otherwise")
            if way in ("truncate", "delete", "remove") and whole.last_log(path) and answers in whole.earlier[name]:
                if not said:
                    return "as if the power had gone earlier"
                continue
            wrong.append(f"stream {name!r} answers otherwise to {[q for q in right if answers.get(q) != right[q]]}")
        if wrong and not said:
            raise Silent("; ".join(wrong))
        return "reported" if said else "harmless"
    finally:
        abandon(store)


def run(flips: int, seed: int, progress: float = 10.0) -> Verdicts:
    verdicts = Verdicts()
    started = told_at = time.monotonic()
    with small_and_quiet(), pristine() as whole:
        for kind, paths in whole.files.items():
            assert paths, f"no file of kind {kind}"
        for number in range(flips):
            try_one(whole, seed, number, verdicts)
            if time.monotonic() - told_at > progress:
                told_at = time.monotonic()
                print(f"  {number + 1:,} of {flips:,} damages, {told_at - started:.0f} s", flush=True)
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.index.storage.flips", description="Damage a small store.")
    parser.add_argument("--flips", type=int, default=10_000, help="how many (10,000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31), help="to repeat a run")
    given = parser.parse_args()
    print(f"{given.flips:,} damages with --seed {given.seed}", flush=True)
    verdicts = run(given.flips, given.seed)
    print(f"{verdicts}\nnone gave a wrong answer in silence")
    return 0


if __name__ == "__main__":
    sys.exit(main())
