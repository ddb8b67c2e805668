"""A service that keeps its data: what it has acknowledged is there afterwards, once, however it ended."""

import asyncio
import errno
import itertools
import json
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

import promising
from promising.errors import (
    BadSettings,
    NewerFormat,
    NotAStore,
    PromisingError,
    StorageFull,
    StorageUnavailable,
    StoreInUse,
)
from promising.index import Appended
from promising.index.storage.disk import Disk, translated
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.query.session import Session
from promising.server.access_tokens import TokenStore
from promising.server.batch_reader import BatchReader
from promising.server.read_ahead import Batch
from promising.server.streams import StreamService
from promising.settings import Auth, Settings, Storage
from promising.testing.service import running
from tests.promising.cli.running import Serving, finished
from tests.promising.server.serving import (
    CREATE,
    NOW,
    SUMMARISE,
    WAIT,
    Remote,
    batch,
    details,
    serving,
    table,
    until,
)

QUERY = "CREATE CONTINUOUS QUERY busy AS SELECT item, count(*) AS n FROM s GROUP BY item WINDOW 1 HOURS"
ALL = "SELECT ts, item, price, name FROM s ORDER BY price"


class Moody(Disk):
    """A disk that can be full, that can fail to sync, and that can keep a sync waiting."""

    def __init__(self) -> None:
        self.full = self.failing = False
        self.troubles = threading.Semaphore(0)  # one for each call that went wrong
        self.syncs = 0
        self.may_sync = threading.Event()
        self.may_sync.set()

    def write(self, handle, parts):
        with translated(handle.path):
            self._check()
        super().write(handle, parts)

    def sync(self, handle):
        assert self.may_sync.wait(WAIT)
        self.syncs += 1
        with translated(handle.path):
            self._check()
            if self.failing:
                self.troubles.release()
                raise OSError(errno.EIO, "Input/output error")
        super().sync(handle)

    def _check(self) -> None:
        if self.full:
            self.troubles.release()
            raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def kept(path, disk=None, stock=True, **options) -> Iterator[Session]:
    """A session over a directory, with the stream and the summary that tests speak of."""
    store = Store.open(path, seed=7, clock=lambda: NOW, disk=disk, options=StoreOptions(**options))
    with Session(store=store) as session:
        if stock and not store.streams:
            session.execute(CREATE)
            session.execute(SUMMARISE)
        yield session


def rows(path) -> list[dict[str, object]]:
    with kept(path, stock=False) as session:
        found: list[dict[str, object]] = session.query(ALL).to_arrow().to_pylist()
        return found


def run(path, body, disk=None):
    """Run a test's body with a server over a directory."""

    async def inside(session):
        async with serving(session=session) as remote, asyncio.timeout(2 * WAIT):
            await body(remote)

    with kept(path, disk) as session:
        asyncio.run(inside(session))


async def sent(remote: Remote, *requests):
    """What was acknowledged of an ingest call, and how it ended."""
    call, told = remote.streams.Ingest(iter(requests), timeout=WAIT), []
    try:
        async for response in call:
            told.append(response)
    except grpc.aio.AioRpcError as problem:
        return told, problem
    return told, None


def numbered(sequence, size=3):
    return batch(size, producer_id="till 7", sequence=sequence)


# --- a restart ---------------------------------------------------------------------------------------------------


def shown(session, *kinds):
    return [session.execute(f"SHOW {kind}").to_pylist() for kind in kinds or ("STREAMS", "SUMMARIES", "QUERIES")]


def state(session):
    """All that a session can be asked, about."""
    return {
        "rows": session.query(ALL).to_arrow(),
        "estimates": session.estimate("items", [0, 1, 2, 77]).value.tolist(),
        "shown": shown(session),
        "zones": session.describe("items", cells=True).zones,
    }


def test_a_restart_keeps_everything(tmp_path):
    settings = Settings(listen="127.0.0.1:0", data=tmp_path / "new" / "data")
    with running(settings) as target, promising.connect(target) as session:
        for sql in (CREATE, SUMMARISE, QUERY):
            session.execute(sql)
        first = session.ingest("s", table(500), producer="till 7", sequence=3)
        session.advance("s", 10_000_000_000)
        before = state(session)
    with running(settings) as target, promising.connect(target) as session:
        assert state(session) == before
        again = session.ingest("s", table(500), producer="till 7", sequence=3)
        assert again == Appended(first.accepted, first.refused, duplicate=True)
        assert session.query(ALL).to_arrow().num_rows == 500
        session.execute("DROP STREAM s CASCADE")
    with running(settings) as target, promising.connect(target) as session:
        assert shown(session) == [[], [], []]


def sums(target):
    with promising.connect(target) as session:
        (row,) = (
            session.query("SELECT count(*) AS n, count(price) AS m, sum(item) AS total FROM s").to_arrow().to_pylist()
        )
        return row


@pytest.mark.deep("kills a service at work")
@pytest.mark.parametrize(("sync", "lives"), [("always", 2), ("relaxed", 1)])
def test_a_killed_service_has_what_it_acknowledged_once(tmp_path, sync, lives):
    """kill -9 in the middle of the work; relaxed holds that, too, as the machine stays up."""
    flags = ("--data", str(tmp_path / "data"), "--set", f"storage.sync={sync}")
    acknowledged: dict[int, Appended] = {}
    sequences = itertools.count(1)
    for life in range(lives):
        server = Serving(tmp_path / f"log{life}", *flags)
        target = server.target()
        with promising.connect(target, retries=0) as session:
            session.execute(CREATE.replace("STREAM s", "STREAM IF NOT EXISTS s"))
            session.execute(SUMMARISE.replace("SUMMARY items", "SUMMARY IF NOT EXISTS items"))
            enough = threading.Event()

            def send(session=session, enough=enough):
                for sequence in sequences:
                    try:
                        acknowledged[sequence] = session.ingest("s", table(40), producer="till 7", sequence=sequence)
                    except PromisingError:
                        return
                    if len(acknowledged) % 30 == 0:
                        enough.set()

            sending = threading.Thread(target=send)
            sending.start()
            assert enough.wait(WAIT)
            server.process.kill()
            assert server.process.wait(WAIT) == -signal.SIGKILL
            sending.join()
    last = Serving(tmp_path / "log", *flags)
    try:
        target = last.target()
        held = sums(target)["n"]
        # The one that was under way at each kill may be in, or not.
        assert 0 <= held - 40 * len(acknowledged) <= 40 * lives
        with promising.connect(target) as session:
            for sequence, first in list(acknowledged.items())[-200:]:
                again = session.ingest("s", table(40), producer="till 7", sequence=sequence)
                assert again == Appended(first.accepted, first.refused, duplicate=True), sequence
        assert sums(target)["n"] == held
    finally:
        assert last.stop() == 0
    events = [json.loads(line) for line in last.log.read_text().splitlines()]
    (opened,) = (event for event in events if event["event"] == "opened")
    assert opened["streams"] == 1
    assert opened["tuples"] == held
    names = [event["event"] for event in events]
    assert names.index("opening") < names.index("opened") < names.index("started")
    assert names.index("draining") < names.index("closed") < names.index("stopped")
    warned = [event["level"] for event in events if event["event"] == "sync_relaxed"]
    assert warned == (["warning"] if sync == "relaxed" else [])


# --- acknowledgements --------------------------------------------------------------------------------------------


def test_nothing_is_acknowledged_before_it_is_on_disk(tmp_path):
    disk = Moody()

    async def body(remote):
        disk.may_sync.clear()
        call = remote.streams.Ingest(timeout=WAIT)
        await call.write(numbered(1))
        reading = asyncio.ensure_future(call.read())

        async def added():
            return remote.stream.count == 3

        await until(added)
        again = asyncio.ensure_future(sent(remote, numbered(1)))  # a duplicate of what is not durable yet

        async def both():
            return (await remote.stats()).ingesting == 2

        await until(both)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert not reading.done() and not again.done()
        assert (await remote.query("SELECT count(*) AS n FROM s"))[-1].rows.to_pylist() == [{"n": 3}], "queries go on"
        disk.may_sync.set()
        assert (await reading).appended.accepted == 3
        (told,), problem = await again
        assert (told.appended.duplicate, problem) == (True, None)
        await call.done_writing()

    run(tmp_path / "data", body, disk)
    assert len(rows(tmp_path / "data")) == 3


def test_batches_of_one_call_share_a_sync(tmp_path):
    disk = Moody()

    async def body(remote):
        service = StreamService(remote.service._parts)
        requests = [numbered(sequence) for sequence in range(1, 21)]
        requests[7] = batch(b"no arrow", producer_id="till 7", sequence=8)
        before = disk.syncs
        taken = service._add_all([Batch(request, request.arrow) for request in requests], BatchReader(1000, 1 << 20))
        settled = taken.settled()
        assert disk.syncs == before + 1
        assert settled.problem is None
        assert [response.WhichOneof("outcome") for _, response in settled.batches] == [
            "refusal" if sequence == 8 else "appended" for sequence in range(1, 21)
        ]

    run(tmp_path / "data", body, disk)
    assert len(rows(tmp_path / "data")) == 19 * 3


def test_calls_at_the_same_time_share_syncs(tmp_path):
    disk = Moody()

    async def body(remote):
        disk.may_sync.clear()
        before = disk.syncs
        calls = [
            asyncio.ensure_future(sent(remote, batch(3, producer_id=f"till {till}", sequence=1))) for till in range(16)
        ]

        async def added():
            return remote.stream.count == 16 * 3

        await until(added)
        disk.may_sync.set()
        for told, problem in await asyncio.gather(*calls):
            assert problem is None
            assert told[0].appended.accepted == 3
        assert disk.syncs - before <= 3

    run(tmp_path / "data", body, disk)
    assert len(rows(tmp_path / "data")) == 16 * 3


def test_what_one_stream_loses_leaves_what_came_before_it(tmp_path):
    """Batches of two streams in one call; the disk fails for the second only."""

    async def body(remote):
        remote.session.execute(CREATE.replace("STREAM s", "STREAM t"))
        other = remote.session.stream("t")
        service = StreamService(remote.service._parts)
        requests = [numbered(1), batch(3, stream="t"), numbered(2)]
        taken = service._add_all([Batch(request, request.arrow) for request in requests], BatchReader(1000, 1 << 20))

        def fails():
            raise StorageUnavailable("not now")

        other.wait = fails
        settled = taken.settled()
        del other.wait
        assert [response.sequence for _, response in settled.batches] == [1]
        assert str(settled.problem) == "not now"

    run(tmp_path / "data", body)


# --- a disk that does not do -------------------------------------------------------------------------------------


def test_a_full_disk_ends_the_call_and_it_goes_on_when_there_is_space(tmp_path):
    disk = Moody()

    async def body(remote):
        told, problem = await sent(remote, numbered(1), numbered(2))
        assert ([response.sequence for response in told], problem) == ([1, 2], None)
        disk.full = True
        told, problem = await sent(remote, numbered(3), numbered(4))
        assert told == []
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "No space left" in problem.details()
        assert (details(problem).info.reason, details(problem).retry) == ("STORAGE_FULL", 1.0)
        with pytest.raises(StorageFull):
            remote.session.execute("DROP SUMMARY items")
        with pytest.raises(StorageFull):
            remote.session.advance("s", NOW)
        assert remote.session.estimate("items", [1]).value.tolist() == [2.0], "it is still there, and works"
        assert (await remote.query("SELECT count(*) AS n FROM s"))[-1].rows.to_pylist() == [{"n": 6}], "queries go on"
        disk.full = False
        told, problem = await sent(remote, numbered(3), numbered(4), numbered(2))
        assert problem is None
        assert [(r.sequence, r.appended.accepted, r.appended.duplicate) for r in told] == [
            (3, 3, False),
            (4, 3, False),
            (2, 3, True),
        ]
        await remote.well()

    run(tmp_path / "data", body, disk)
    assert len(rows(tmp_path / "data")) == 4 * 3 + 3


def test_what_is_durable_is_acknowledged_before_the_call_ends(tmp_path, monkeypatch):
    """The disk fills up between two batches that were read together."""
    disk = Moody()

    async def body(remote):
        added = 0
        append = remote.stream.append

        def filling(*given, **named):
            nonlocal added
            disk.full = added == 2
            found = append(*given, **named)
            added += 1
            return found

        monkeypatch.setattr(remote.stream, "append", filling)
        service = StreamService(remote.service._parts)
        requests = [numbered(sequence) for sequence in range(1, 5)]
        taken = service._add_all([Batch(request, request.arrow) for request in requests], BatchReader(1000, 1 << 20))
        disk.full = False
        settled = taken.settled()
        assert [response.sequence for _, response in settled.batches] == [1, 2]
        assert isinstance(settled.problem, StorageFull)

    run(tmp_path / "data", body, disk)
    assert len(rows(tmp_path / "data")) == 2 * 3


def test_a_sync_that_fails_acknowledges_nothing_and_loses_nothing(tmp_path):
    disk = Moody()

    async def body(remote):
        disk.failing = True
        told, problem = await sent(remote, numbered(1), numbered(2))
        assert told == []
        assert problem.code() == grpc.StatusCode.UNAVAILABLE
        assert details(problem).info.reason == "STORAGE_UNAVAILABLE"
        disk.failing = False
        told, problem = await sent(remote, numbered(1), numbered(2), numbered(3))
        assert problem is None
        assert [response.appended.accepted for response in told] == [3, 3, 3]

    run(tmp_path / "data", body, disk)
    assert len(rows(tmp_path / "data")) == 3 * 3


@pytest.mark.parametrize("mood", ["full", "failing"])
def test_a_client_goes_on_when_the_disk_does(tmp_path, monkeypatch, mood):
    monkeypatch.setattr("promising.client.retries.LONGEST_WAIT", 0.1)
    disk = Moody()
    with kept(tmp_path / "data", disk) as kept_session, running(session=kept_session) as target:
        with promising.connect(target, retries=1000) as session:
            told: list[Appended] = []

            def acknowledged(added):
                told.append(added)
                if len(told) == 10:
                    setattr(disk, mood, True)
                    mending.start()

            def mend():
                for _ in range(3):
                    assert disk.troubles.acquire(timeout=WAIT)
                setattr(disk, mood, False)

            mending = threading.Thread(target=mend)
            total = session.ingest_many("s", [table(7)] * 40, on_ack=acknowledged)
            mending.join()
        assert (total, told) == (Appended(280), [Appended(7)] * 40)
        with promising.connect(target, retries=1) as session:
            setattr(disk, mood, True)
            with pytest.raises(StorageFull if mood == "full" else StorageUnavailable):
                session.ingest("s", table(1))
            setattr(disk, mood, False)
            session.ingest("s", table(1))
    # A batch whose sync failed is in memory, and so it is in when its sync comes.
    assert len(rows(tmp_path / "data")) in (281, 282)


# --- directories that will not do --------------------------------------------------------------------------------


def start(path, **more):
    """Start a service over a directory, and end it."""
    with running(Settings(**{"listen": "127.0.0.1:0"} | more, data=path)):
        pass


@pytest.mark.deep("starts many processes")
def test_a_second_process_is_refused(tmp_path):
    data = tmp_path / "data"
    with running(Settings(listen="127.0.0.1:0", data=data)) as target, promising.connect(target) as session:
        with pytest.raises(StoreInUse, match="data"):
            start(data)
        ended = finished("serve", "--data", str(data), "--listen", "127.0.0.1:0")
        assert ended.code == 2
        assert "error: " in ended.err
        assert "Traceback" not in ended.err
        session.execute(CREATE)
    start(data)


@pytest.mark.deep("starts many processes")
def test_a_newer_version_is_refused(tmp_path):
    data = tmp_path / "data"
    start(data)
    with sqlite3.connect(data / "manifest.sqlite") as manifest:
        manifest.execute("PRAGMA user_version = 999")
        manifest.execute("UPDATE digest SET version = 999")
    manifest.close()
    with pytest.raises(NewerFormat):
        start(data)
    ended = finished("serve", "--data", str(data), "--listen", "127.0.0.1:0")
    assert (ended.code, "Traceback" in ended.err) == (2, False)


@pytest.mark.deep("starts many processes")
def test_a_file_is_no_directory_and_a_folder_of_other_things_is_no_store(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "beach.jpg").write_text("sea")
    for path in (tmp_path / "file", tmp_path / "photos"):
        with pytest.raises(NotAStore):
            start(path)
        ended = finished("serve", "--data", str(path), "--listen", "127.0.0.1:0")
        assert (ended.code, "Traceback" in ended.err) == (2, False)
        assert str(path) in ended.err.replace("\n", "")
    assert (tmp_path / "photos" / "beach.jpg").read_text() == "sea"


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EACCES, StorageUnavailable), (errno.EROFS, StorageUnavailable), (errno.ENOSPC, StorageFull)],
)
def test_a_directory_that_cannot_be_written_is_told(tmp_path, monkeypatch, number, kind):
    def refused(self, path):
        with translated(path):
            raise OSError(number, "no")

    monkeypatch.setattr(Disk, "mkdir", refused)
    with pytest.raises(kind):
        start(tmp_path / "data")


@pytest.mark.deep("starts many processes")
def test_the_seed_is_kept_and_another_is_refused(tmp_path):
    start(tmp_path / "data", seed=5)
    start(tmp_path / "data", seed=5)
    start(tmp_path / "data")
    with pytest.raises((BadSettings, PromisingError), match="seed"):
        start(tmp_path / "data", seed=6)
    ended = finished("serve", "--data", str(tmp_path / "data"), PROMISING_SEED="6", PROMISING_LISTEN="127.0.0.1:0")
    assert ended.code == 2
    assert "seed" in ended.err


@pytest.mark.deep("starts many processes")
def test_a_start_that_fails_lets_go_of_the_data(tmp_path):
    data = tmp_path / "data"
    with running() as taken, pytest.raises(BadSettings, match="is taken"):
        start(data, listen=taken)
    start(data)


# --- what is told ------------------------------------------------------------------------------------------------


def test_where_data_is_is_told_to_admins_only(tmp_path):
    tokens = TokenStore(tmp_path / "tokens.db")
    secrets = {role: tokens.create(role, [role]) for role in ("admin", "query")}
    tokens.close()
    settings = Settings(listen="127.0.0.1:0", data=tmp_path / "data", auth=Auth(tokens=tmp_path / "tokens.db"))
    told = {}
    with running(settings) as target:
        for role, secret in secrets.items():
            with promising.connect(target, token=secret) as session:
                told[role] = session.admin.stats()
    assert {role: (stats.durable, stats.data) for role, stats in told.items()} == {
        "admin": (True, str(tmp_path / "data")),
        "query": (True, ""),
    }


def test_stats_and_metrics_tell_of_the_store(tmp_path):
    settings = Settings(listen="127.0.0.1:0", data=tmp_path / "data", storage=Storage(sync="relaxed"))
    with running(settings) as target, promising.connect(target) as session:
        session.execute(CREATE)
        session.ingest("s", table(100))
        told = session.admin.stats()
    assert (told.durable, told.data, told.damages) == (True, str(tmp_path / "data"), {})
    with running() as target, promising.connect(target) as session:
        told = session.admin.stats()
    assert (told.durable, told.data, told.checkpoint, told.damages) == (False, "", None, {})

    async def body(remote):
        def read(name):
            return remote.service.metrics.registry.get_sample_value(f"promising_storage_{name}")

        before = {name: read(name) for name in ("log_bytes_total", "syncs_total", "checkpoints_total")}
        await remote.ingest(numbered(1))
        remote.session.store.checkpoint()
        assert {name: read(name) > before[name] for name in before} == dict.fromkeys(before, True)
        assert read("damages") == 0
        stats = await remote.stats()
        assert abs(stats.checkpoint.ToSeconds() - time.time()) < 3600

    run(tmp_path / "other", body)
