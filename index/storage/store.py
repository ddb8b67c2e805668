"""A store: a directory with all streams, tables, summaries and standing queries of an installation.

Nothing acknowledged is lost as long as the disk retains what it has synced. Only one process can open it.
"""

import fcntl
import logging
import os
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from promising.errors import (
    BadOptions,
    DuplicateName,
    NotAStore,
    StorageError,
    StorageUnavailable,
    StoreInUse,
    UnknownName,
)
from promising.index.ledger import DAY
from promising.index.memory import Memory
from promising.index.prepared_load import Attached
from promising.index.storage.cold import Cold
from promising.index.storage.cold_cache import Cache
from promising.index.storage.disk import Disk, translated
from promising.index.storage.manifest import Manifest
from promising.index.storage.package import Package
from promising.index.storage.permissions import PRIVATE_FILE, make_private, tighten
from promising.index.storage.store_options import StoreOptions
from promising.index.storage.stream_store import COUNTED, StreamStore
from promising.index.storage.table_store import FOLDER, TableStore, defined, definition
from promising.index.stream import Stream, wall_clock
from promising.index.table import MOST_ROWS, Table

LOCK, MANIFEST = "LOCK", "manifest.sqlite"
OURS = (LOCK, MANIFEST, "streams", FOLDER, "aside")  # prefixes of all names in the directory
TICK = 0.25  # seconds between two checks of what is due
SYNCERS = 2  # threads that sync logs ahead
SYNC = 1.0  # seconds after which a relaxed log is synced
SETTINGS = ("lateness", "max_future", "max_tuples", "max_string_bytes")
ONCE_DEFAULTS = {"max_tuples": 1 << 22, "max_string_bytes": 1 << 30}  # stored by versions whose streams did not grow
LATER = ("keep", "max_jump")  # settings that older stores do not have

logger = logging.getLogger("promising.storage")


def settings_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The settings of a stream, from its entry in the manifest."""
    found = {name: entry[name] for name in (*SETTINGS, *LATER) if name in SETTINGS or name in entry}
    if not entry.get("grows"):  # a former default was a limit that nobody had set
        found |= {name: None for name, value in ONCE_DEFAULTS.items() if found[name] == value}
    return found


class Store:
    """Open with `Store.open`; after `close`, or a crash, the next start recovers it."""

    def __init__(self, root: Path, lock: int, manifest: Manifest, disk: Disk, clock: Callable[[], int]) -> None:
        self.root = root
        self.queries: dict[str, dict[str, Any]] = {}  # continuous queries by name: text, and what they read
        self.report: list[str] = []  # what the start had to cut or set aside, a sentence each
        self._lock = lock
        self._manifest = manifest
        self._disk = disk
        self._clock = clock
        self._options = StoreOptions()
        self._cache = Cache(0)
        self._memory: Memory | None = None
        self._leaving: deque[StreamStore] = deque()  # dropped, with files to delete
        self._past: Counter[str] = Counter()  # of dropped streams
        self._kept: dict[str, StreamStore] = {}
        self._tables: dict[str, TableStore] = {}
        self._guard = threading.RLock()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._syncers: ThreadPoolExecutor | None = None
        self.id = ""
        self.seed = 0

    # --- open and close --------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        seed: int | None = None,
        clock: Callable[[], int] = wall_clock,
        disk: Disk | None = None,
        options: StoreOptions | None = None,
        fault: Callable[[str], None] = lambda point: None,
    ) -> "Store":
        """Open the store in a directory, or create one there.

        seed: of the key hash, fixed for a store: None takes the existing one, another one is refused.
        fault: called around each commit of the manifest, for tests.
        """
        root, disk = Path(path), disk or Disk()
        with translated(root):
            if root.exists() and not root.is_dir():
                raise NotAStore(f"{root} is a file; a store is a directory")
            if root.is_dir() and not (root / MANIFEST).exists() and (odd := _foreign(root)):
                raise NotAStore(f"{root} has other things in it, such as {odd}; choose an empty or a new directory")
        disk.mkdir(root)
        with translated(root):
            tighten(root, root, root.stat())
        lock = locked(root)
        try:
            with translated(root):
                make_private(root, OURS)
            manifest = Manifest.open(root / MANIFEST, create=not (root / "streams").exists(), fault=fault)
        except BaseException:
            os.close(lock)
            raise
        store = cls(root, lock, manifest, disk, clock)
        try:
            store._start(seed, options or StoreOptions())
        except BaseException:
            store._let_go()
            raise
        return store

    def _start(self, seed: int | None, options: StoreOptions) -> None:
        self._options, self._cache = options, Cache(options.cache_bytes)
        self._memory = None if options.memory_bytes is None else Memory(options.memory_bytes)
        if options.sync == "always" and options.sync_ahead:
            self._syncers = ThreadPoolExecutor(SYNCERS, "promising-sync")
        known = self._manifest.get("store", "store")
        if known is None:
            known = {
                "id": secrets.token_hex(8),
                "seed": secrets.randbits(63) if seed is None else seed,
                "cold": options.cold,
            }
            with self._manifest.change() as change:
                change.put("store", "store", known)
        if seed is not None and seed != known["seed"]:
            raise BadOptions(f"the store in {self.root} was made with another seed; leave the seed out to use its own")
        if options.cold != known["cold"]:
            raise BadOptions(
                f"the cold tuples of the store in {self.root} lie in {known['cold'] or 'its own directory'}, not in"
                f" {options.cold or 'its own directory'}"
            )
        self.id, self.seed = known["id"], known["seed"]
        self._disk.mkdir(self.root / "streams")
        _tidy(self._disk, self._manifest, self.root)
        for name, entry in self._manifest.all("stream").items():
            stream = Stream(entry["name"], dict(entry["types"]), entry["time"], **self._given(entry))
            kept = self._kept[entry["name"]] = self._keep(name, stream)
            kept.recover()
            kept.stream.memory = self._memory
            kept.stream.weigh()
            self.report += kept.report
        for name, entry in self._manifest.all("table").items():
            table = self._tables[entry["name"]] = TableStore(
                self._disk, self._manifest, self.root, name, defined(entry)
            )
            table.recover()
            self._settle(table)
            self.report += [] if table.table.damage is None else [table.table.damage]
        self.queries = {entry["name"]: entry for entry in self._manifest.all("query").values()}
        self._begin(self._keeping)
        if options.sync == "relaxed":
            self._begin(self._syncing)

    def _settle(self, kept: TableStore) -> None:
        """Lost arrivals from before a table's changes: new tuples with their numbers come after the changes."""
        lost = {name: s.arrived for name, s in self.streams.items() if kept.settle(name, s.arrived)}
        if lost:
            with self._manifest.change() as change:
                kept.cap(change, lost)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="promising-store", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _given(self, entry: dict[str, Any]) -> dict[str, Any]:
        return {**settings_of(entry), **self._own()}

    def _own(self) -> dict[str, Any]:
        """The settings that all streams of the store share."""
        return {"clock": self._clock, "seed": self.seed, "producers": round(self._options.producer_days * DAY)}

    def _keep(self, name: str, stream: Stream) -> StreamStore:
        options = self._options
        place = self.root / "streams" / name / "cold" if options.cold is None else f"{options.cold}/{self.id}/{name}"
        cold = Cold(self._disk, place, cache=self._cache)
        return StreamStore(self._disk, self._manifest, self.root, name, stream, cold, options, self._syncers)

    def close(self) -> None:
        """Write a checkpoint of each stream, and release the directory."""
        if self._ended.is_set():
            return
        self._ended.set()
        for thread in self._threads:
            thread.join()
        problems: list[StorageError] = []
        with self._guard:
            try:
                while self._leaving:
                    self._leaving.popleft().remove()
                for kept in self._kept.values():
                    try:
                        kept.close()
                    except StorageError as problem:
                        problems.append(problem)
            finally:
                self._let_go()
        if problems:
            raise problems[0]

    def _let_go(self) -> None:
        self._ended.set()
        if self._syncers is not None:
            self._syncers.shutdown()
        self._manifest.close()
        os.close(self._lock)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- content ---------------------------------------------------------------------------------------------------

    @property
    def streams(self) -> dict[str, Stream]:
        with self._guard:
            return {name: kept.stream for name, kept in self._kept.items()}

    @property
    def tables(self) -> dict[str, Table]:
        with self._guard:
            return {name: kept.table for name, kept in self._tables.items()}

    @property
    def damages(self) -> dict[str, list[str]]:
        """Losses, by stream; only of damaged ones."""
        return {name: list(stream.damages) for name, stream in self.streams.items() if stream.damages}

    @property
    def set_aside(self) -> dict[str, str]:
        """Tables that cannot be used, and why."""
        return {name: table.damage for name, table in self.tables.items() if table.damage is not None}

    def create_stream(self, name: str, types: dict[str, str], time: str, **settings: Any) -> Stream:
        """Create a stream. `settings` are those of `Stream`."""
        with self._guard:
            self._check_open()
            if name in self._kept:
                raise DuplicateName(f"there is a stream {name!r} already")
            stream = Stream(name, types, time, **self._own(), **settings)
            stream.memory = self._memory
            entry = {
                "name": name,
                "types": [[column, kind] for column, kind in types.items()],
                "time": time,
                "lateness": stream.lateness,
                "max_future": stream.max_future,
                "max_tuples": stream.max_tuples,
                "max_string_bytes": stream.max_string_bytes,
                "max_jump": stream.max_jump,
                "keep": stream.keep,
                "grows": True,
            }
            made = _unused(self._manifest, "stream")
            kept = self._keep(made, stream)
            try:
                kept.begin()
                with self._manifest.change() as change:
                    change.put("stream", made, entry)
            except BaseException:
                kept.remove()
                raise
            self._kept[name] = kept
            return stream

    def create_table(
        self, name: str, types: dict[str, str], key: str, *, retroactive: bool = True, max_rows: int = MOST_ROWS
    ) -> Table:
        """Create a table. Its changes are durable before they are acknowledged."""
        with self._guard:
            self._check_open()
            if name in self._tables:
                raise DuplicateName(f"there is a table {name!r} already")
            table = Table(name, types, key, retroactive=retroactive, max_rows=max_rows)
            made = _unused(self._manifest, "table")
            kept = TableStore(self._disk, self._manifest, self.root, made, table)
            kept.begin()
            with self._manifest.change() as change:
                change.put("table", made, definition(table))
            self._tables[name] = kept
            return table

    def drop(self, stream: str | None, queries: Sequence[str] = (), *, table: str | None = None) -> None:
        """Atomically drop a stream with all its summaries, a table, and continuous queries; files are deleted later."""
        with self._guard:
            kept = None if stream is None else self._kept.get(stream)
            if stream is not None and kept is None:
                raise UnknownName(f"there is no stream {stream!r}")
            gone = None if table is None else self._tables.get(table)
            if table is not None and gone is None:
                raise UnknownName(f"there is no table {table!r}")
            with ExitStack() as held:
                if kept is not None:
                    held.enter_context(kept.leaving())
                for one in self._tables.values():
                    held.enter_context(one.table.lock)
                change = held.enter_context(self._manifest.change())
                for query in queries:
                    change.delete("query", query.lower())
                if kept is not None:
                    kept.forget(change)
                    for one in self._tables.values():
                        if one.reaches(kept.stream.name):  # the next stream of that name counts from 0
                            one.cap(change, {kept.stream.name: 0})
                if gone is not None:
                    gone.forget(change)
            for query in queries:
                self.queries.pop(query, None)
            if gone is not None:
                del self._tables[gone.table.name]
                gone.remove()
            if kept is None:
                return
            for one in self._tables.values():
                one.table.cap(kept.stream.name, 0)
            del self._kept[kept.stream.name]
            self._past.update(kept.stats())
        if not kept.remove(wait=False):
            self._leaving.append(kept)

    def attach(self, name: str, package: Package, token: str) -> Attached:
        """Attach a load that was prepared elsewhere; durable on return."""
        with self._guard:
            self._check_open()
            kept = self._kept.get(name)
        if kept is None:
            raise UnknownName(f"there is no stream {name!r}")
        return kept.attach(package, token)

    def drop_stream(self, name: str) -> None:
        self.drop(name)

    def put_query(self, name: str, statement: str, reads: list[str], number: str = "") -> None:
        """Store a continuous query. `number` distinguishes this creation from others of the same name."""
        entry = {"name": name, "statement": statement, "reads": sorted(reads), "number": number}
        with self._manifest.change() as change:
            change.put("query", name.lower(), entry)
        self.queries[name] = entry

    def drop_query(self, name: str) -> None:
        self.drop(None, [name])

    def _check_open(self) -> None:
        if self._ended.is_set():
            raise StorageUnavailable(f"{self.root} is closed; open it again")

    # --- maintenance -----------------------------------------------------------------------------------------------

    def checkpoint(self, name: str | None = None) -> None:
        """Write a checkpoint now, of one stream or of all."""
        with self._guard:
            self._check_open()
            if name is not None and name not in self._kept:
                raise UnknownName(f"there is no stream {name!r}")
            chosen = list(self._kept.values()) if name is None else [self._kept[name]]
        for kept in chosen:
            kept.checkpoint()

    def _keeping(self) -> None:
        """Thread: writes checkpoints that are due."""
        while not self._ended.wait(TICK):
            self._each(lambda kept: kept.checkpoint() if kept.due else None)
            while self._leaving:
                self._leaving.popleft().remove()

    def _syncing(self) -> None:
        """Thread: syncs relaxed logs."""
        while not self._ended.wait(SYNC):
            self._each(lambda kept: kept.wal.sync())

    def _each(self, do: Callable[[StreamStore], object]) -> None:
        with self._guard:
            chosen = list(self._kept.values())
        for kept in chosen:
            try:
                do(kept)
            except StorageError as problem:
                logger.warning("upkeep of stream %r waits: %s", kept.stream.name, problem)
            except Exception:
                logger.exception("upkeep of stream %r failed", kept.stream.name)

    def stats(self) -> dict[str, float]:
        """Counts since the start, over all streams."""
        with self._guard:
            kept = list(self._kept.values())
        found: Counter[str] = self._past + Counter()
        for one in kept:
            found.update(one.stats())
        return {
            **{name: found[name] for name in COUNTED},
            "cold_hits": self._cache.hits,
            "cold_misses": self._cache.misses,
            "damages": sum(len(k.stream.damages) for k in kept) + len(self.set_aside),
        }

    @property
    def checkpointed(self) -> float | None:
        """Wall-clock time of the last checkpoint of any stream."""
        with self._guard:
            return max((k.checkpointed for k in self._kept.values() if k.checkpointed is not None), default=None)


def locked(root: Path) -> int:
    """Lock the directory for this process, until the handle is closed or the process ends."""
    with translated(root / LOCK):
        handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid = os.read(handle, 20).decode("ascii", "replace").strip()
        os.close(handle)
        who = f"process {pid}" if pid else "another process"
        raise StoreInUse(f"{root} is in use by {who}; stop it first, or choose another directory") from None
    with suppress(OSError):  # only for people to read
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle


def _unused(manifest: Manifest, kind: str) -> str:
    made = secrets.token_hex(8)
    return made if manifest.get(kind, made) is None else _unused(manifest, kind)


def _foreign(root: Path) -> str | None:
    """The name of a foreign file in a directory, if any."""
    return next((p.name for p in sorted(root.iterdir()) if not p.name.startswith(OURS)), None)


def _tidy(disk: Disk, manifest: Manifest, root: Path) -> None:
    """Delete the files of streams and tables that were dropped, or never completed."""
    known = manifest.all("stream")
    for name in disk.names(root / "streams"):
        if name not in known:
            for part in ("wal", "checkpoint", "cold"):
                _empty(disk, root / "streams" / name / part)
    known = manifest.all("table")
    for name in disk.names(root / FOLDER) if disk.exists(root / FOLDER) else ():
        if name not in known:
            _empty(disk, root / FOLDER / name)


def _empty(disk: Disk, folder: Path) -> None:
    if disk.exists(folder):
        for name in disk.names(folder):
            disk.unlink(folder / name)
