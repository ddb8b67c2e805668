"""What a review of the service found, each once."""

import asyncio
import contextlib
import gc
import threading
import weakref
from typing import Any

import grpc
import pyarrow as pa
import pytest

from promising import wire
from promising.query.cursor import Cursor
from promising.v1 import common_pb2, queries_pb2, streams_pb2, summaries_pb2, summaries_pb2_grpc
from tests.promising.server.serving import (
    MANY,
    NONE,
    WAIT,
    ReaderClock,
    details,
    failed,
    much,
    run,
    stocked,
    until,
)
from tests.query.stores import MS, Ticking

SECOND = "CREATE SUMMARY named ON s (name) WITH GRANULARITY 1 HOUR AND COLLAPSE (4, 5)"


def test_a_message_is_small_however_uneven_its_rows_are():
    rows = pa.table({"s": [""] * 65_000 + ["x" * 100_000] * 84, "n": range(65_084)})
    cuts = list(wire.slices(rows, 1 << 18))
    assert [first for first, _ in cuts] == [0, *(first + count for first, count in cuts[:-1])]
    assert sum(count for _, count in cuts) == rows.num_rows
    assert max(rows.slice(*cut).nbytes for cut in cuts) <= 1 << 19
    assert list(wire.slices(pa.table({"s": ["x" * 100, "y" * 100]}), 10)) == [(0, 1), (1, 1)]


def test_what_to_expect_is_not_worked_out_on_the_event_loop(monkeypatch):
    """It asks the summaries, under the lock of a stream that a large batch may hold for long."""
    threads = []
    progress = Cursor.progress

    def noted(*given):
        threads.append(threading.current_thread())
        return progress(*given)

    monkeypatch.setattr(Cursor, "progress", noted)

    async def body(remote):
        await remote.query("SELECT count(*) AS n FROM s")
        assert len(threads) > 1
        assert threading.current_thread() not in threads

    run(body)


@pytest.mark.parametrize("kind", ["STREAM", "SUMMARY"])
def test_a_list_goes_on_when_something_in_it_is_dropped(monkeypatch, kind):
    session = stocked()
    session.execute(SECOND)
    session.execute("CREATE STREAM t (ts TIMESTAMP) TIMESTAMP BY ts")
    sql = {"STREAM": "DROP STREAM t", "SUMMARY": "DROP SUMMARY named"}[kind]
    lock = session.catalog.lock
    left: list[str] = []

    class Dropping:
        """As soon as the names are known, one of them is not there any more."""

        def __enter__(self):
            return lock.__enter__()

        def __exit__(self, *how):
            lock.__exit__(*how)
            if not left:
                left.append(sql)
                session.execute(sql)

    async def body(remote):
        monkeypatch.setattr(session.catalog, "lock", Dropping())
        if kind == "STREAM":
            found = await remote.streams.ListStreams(streams_pb2.ListStreamsRequest(), timeout=WAIT)
            assert "s" in [stream.name for stream in found.streams]
        else:
            asked = summaries_pb2.ListSummariesRequest()
            found = await remote.summaries.ListSummaries(asked, timeout=WAIT)
            assert [summary.name for summary in found.summaries] == ["items"]
        assert left == [sql]

    run(body, session=session)


@pytest.mark.parametrize("method", ["Probe", "QueryBatch"])
def test_probes_and_batches_that_were_cut_hold_on_to_nothing(monkeypatch, method):
    held = []
    clock = ReaderClock(monkeypatch)
    if method == "Probe":
        request: Any = queries_pb2.ProbeRequest(summary="items", keys=common_pb2.Keys(ints=[0, 1] * 200))
    else:
        request = queries_pb2.QueryBatchRequest(sql=[MANY])
    slices = wire.slices

    def noted(rows):
        held.append(weakref.ref(rows))
        return slices(rows)

    monkeypatch.setattr(wire, "slices", noted)

    async def body(remote):
        call = getattr(remote.queries, method)(request, timeout=WAIT)
        assert await call.read()

        async def so():
            clock.tick()
            return (await remote.stats()).queries == 0

        await until(so)
        assert held

        async def let_go():
            gc.collect()
            return all(one() is None for one in held)

        await until(let_go)  # a thread that has just handed its result over lets go of it last
        assert len(list(remote.service._parts.queries)) == 1  # until its reader hears of it
        call.cancel()

    run(body, session=much(), max_rows=1 << 40, slow_reader_seconds=0.2)


@pytest.mark.parametrize("method", ["Probe", "QueryBatch"])
def test_probes_and_batches_end_when_their_time_is_over(method):
    async def body(remote):
        if method == "Probe":
            request: Any = queries_pb2.ProbeRequest(summary="items", keys=common_pb2.Keys(ints=[0, 1] * 1000))
        else:
            request = queries_pb2.QueryBatchRequest(sql=[NONE] * 100)

        async def asked():
            async for _ in getattr(remote.queries, method)(request, timeout=WAIT):
                await asyncio.sleep(0.01)  # it reads, and never fast

        problem = await failed(asked())
        assert problem.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert details(problem).info.reason == "DEADLINE_EXCEEDED"
        assert "more than 2 seconds" in problem.details()
        await remote.well()  # whose calls have no more time than that, either

    run(body, session=much(), max_rows=1 << 40, max_deadline_seconds=2.0)


def test_an_answer_that_is_resumed_is_counted_once():
    async def body(remote):
        rows, token = 0, ""
        for _ in range(4):
            *_, last = found = await remote.query(
                **({"resume_token": token} if token else {"sql": MANY}), budget=wire.duration(0.05)
            )
            rows += sum(frame.rows.num_rows for frame in found)
            token = last.progress.token
        told = await remote.stats()
        assert rows > 0
        assert told.rows == rows == last.progress.rows
        assert told.query_cpu_seconds == pytest.approx(last.progress.cpu_seconds, rel=0.05)

    session = much()
    session._cpu = Ticking(MS // 2)  # a busy machine would tell other times
    run(body, session=session)


def test_a_batch_leaves_nothing_to_resume():
    async def body(remote):
        request = queries_pb2.QueryBatchRequest(sql=[f"{NONE} BUDGET 1 MILLISECOND"] * 3)
        assert len([part async for part in remote.queries.QueryBatch(request, timeout=WAIT)]) >= 3
        assert not remote.session._shelf._cursors

    run(body, session=much())


def test_an_answer_on_its_way_is_waited_for():
    """The work is done and the response handed over, but the network is slow: the service must not go away yet."""
    keys = 100_000

    async def body(remote):
        go = asyncio.Event()

        async def carry(reader, writer, gate):
            with contextlib.suppress(ConnectionError):  # one side has gone: what the other sends still goes its way
                while data := await reader.read(1 << 16):
                    if gate and taken[0] > keys:  # bytes
                        await go.wait()
                    taken[0] += len(data) if gate else 0
                    writer.write(data)
                    await writer.drain()
            writer.close()

        async def accept(reader, writer):
            there = await asyncio.open_connection("127.0.0.1", remote.service.port)
            await asyncio.gather(carry(reader, there[1], False), carry(there[0], writer, True))

        taken = [0]
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        small = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 14)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=small) as channel:
            asking: Any = summaries_pb2_grpc.SummaryServiceStub(channel)
            request = summaries_pb2.EstimateRequest(summary="items", keys=common_pb2.Keys(ints=range(keys)))
            asked = asyncio.ensure_future(asking.Estimate(request, timeout=WAIT))

            async def answered():
                return taken[0] > keys and not remote.service._parts.work.busy

            await until(answered)
            stopping = asyncio.ensure_future(remote.service.stop(WAIT))
            await asyncio.wait([stopping], timeout=1.0)  # several looks at what is under way
            assert not stopping.done()
            go.set()
            assert len((await asked).value) == keys
            await stopping
        server.close()
        await server.wait_closed()

    run(body)


def test_answers_of_a_call_that_ends_well_are_all_counted_out():
    async def body(remote):
        await remote.well()
        call = remote.queries.Query(queries_pb2.QueryRequest(sql=MANY), timeout=WAIT)
        await call.read()
        assert remote.service._access.under_way == 1
        call.cancel()

        async def none():
            return remote.service._access.under_way == 0

        await until(none)

    run(body, session=much())
