"""A store with files of every kind, and ways to spoil it."""

import hashlib
from pathlib import Path

from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.index.summary import SummaryState
from tests.crash import feed
from tests.index.storage.lives import LIMITS, opened, populate
from tests.index.storage.told import digest, told

BATCHES = 60


def filled(folder: Path, options: StoreOptions = LIMITS, batches: int = BATCHES) -> Store:
    """An open store: two checkpoints, cold runs, and batches in the log that no checkpoint has."""
    store = opened(folder, options=options)
    populate(store, ("left",))
    for number in range(1, batches + 1):
        send(store, number)
        if number in (batches // 2, 2 * batches // 3):
            store.checkpoint()
    return store


def send(store: Store, number: int) -> None:
    store.streams["left"].append(feed.batch(5, 0, number), producer="till", sequence=number)


def answers(store: Store) -> dict[str, str]:
    """All that the store can be asked."""
    return digest(told(store.streams["left"], feed.KEYS))


def contents(folder: Path) -> dict[str, str]:
    """Every file but the lock, by what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "LOCK"
    }


def files(folder: Path, kind: str) -> list[Path]:
    """Oldest first: "image", "wal" or "parquet"."""
    return sorted(folder.glob(f"streams/*/*/*.{kind}"))


def flip(path: Path, at: float, bit: int = 2) -> None:
    """Change one bit, that share of the way through the file."""
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 1 << bit
    path.write_bytes(content)


def spoil(store: Store, summary: str) -> None:
    """Let a summary say what is not so."""
    state = store.streams["left"].summaries[summary].state
    assert isinstance(state, SummaryState)
    state.coarse.levels[3].peekitem(0)[1].counts.counters[0, 0] += 1
