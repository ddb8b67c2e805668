"""The end of the service: what is under way ends well, what comes then is turned away, and nothing told is lost."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from promising import wire_times
from promising.query.answers import Answer
from promising.server import service
from promising.server.authentication import LOCAL
from promising.v1 import (
    common_pb2,
    queries_pb2,
    queries_pb2_grpc,
    streams_pb2,
    streams_pb2_grpc,
    summaries_pb2,
    summaries_pb2_grpc,
)
from tests.promising.server.serving import (
    CREATE,
    EOF,
    MANY,
    NONE,
    WAIT,
    batch,
    details,
    failed,
    frames,
    much,
    run,
    stocked,
    until,
)

LONG = 2 * WAIT  # a grace that no test waits for
STREAMS = "promising.v1.StreamService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def query(sql):
    return queries_pb2.QueryRequest(sql=sql)


def test_ingest_calls_end_after_what_is_acknowledged():
    """One that waits, and one that sends all the time; with all that was acknowledged in, once."""

    async def body(remote):
        waiting = remote.streams.Ingest(timeout=WAIT)
        await waiting.write(batch(1, producer_id="waits", sequence=1))
        assert (await waiting.read()).appended.accepted == 1
        busy = remote.streams.Ingest(timeout=WAIT)
        acknowledged = []

        async def send():
            with contextlib.suppress(asyncio.InvalidStateError, grpc.RpcError):
                for number in range(1, 1 << 20):
                    await busy.write(batch(7, producer_id="sends", sequence=number))

        async def receive():
            with contextlib.suppress(grpc.RpcError):
                while (told := await busy.read()) is not EOF:
                    assert told.appended.accepted == 7
                    acknowledged.append(told.sequence)

        sending, receiving = asyncio.ensure_future(send()), asyncio.ensure_future(receive())

        async def some():
            return len(acknowledged) > 3

        await until(some)
        await remote.service.stop(LONG)
        problem = await failed(waiting.read())
        assert problem.code() == grpc.StatusCode.UNAVAILABLE
        assert "shutting down; send what was not acknowledged again" in problem.details()
        assert (details(problem).info.reason, details(problem).retry) == ("UNAVAILABLE", 1.0)
        await asyncio.gather(sending, receiving)
        assert acknowledged == list(range(1, len(acknowledged) + 1))
        # What was acknowledged is in. An acknowledgement on its way is lost to a client whose next write fails.
        held = [n for n in range(1, len(acknowledged) + 100) if remote.stream.added("sends", n) is not None]
        assert held == list(range(1, len(held) + 1)) and len(held) >= len(acknowledged)
        assert remote.stream.count == 10 + 1 + 7 * len(held)

    run(body)


async def looks(remote, count):
    """Wait until the service, which is about to end, has looked so often whether anything is under way."""
    busy, seen = remote.service._busy, 0

    def looked():
        nonlocal seen
        seen += 1
        return busy()

    async def enough():
        return seen >= count

    remote.service._busy = looked
    await until(enough)


def test_a_query_that_ends_in_time_ends_well(monkeypatch):
    go, turns = threading.Event(), Answer.turns

    def held(answer):
        for frame in turns(answer):
            assert go.wait(WAIT)
            yield frame

    monkeypatch.setattr(Answer, "turns", held)

    async def body(remote):
        asking = asyncio.ensure_future(remote.query(NONE, budget=wire_times.duration(0.1)))

        async def running():
            return len(await remote.open_queries()) == 1

        await until(running)
        stopping = asyncio.ensure_future(remote.service.stop(LONG))
        await looks(remote, 2)
        go.set()
        await stopping
        last = (await asking)[-1].progress
        assert (last.cut, bool(last.token)) == ("budget", True)

    run(body, session=much())


class Jumping:
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.mark.deep("waits for a service to drain")
@pytest.mark.parametrize("sql", [MANY, NONE])
def test_a_query_that_does_not_sends_what_it_has_and_can_go_on(sql, monkeypatch):
    clock = Jumping()
    monkeypatch.setattr(service, "time", clock)
    monkeypatch.setattr(service, "LAST_FRAMES", WAIT / 2)

    async def body(remote):
        asking = asyncio.ensure_future(frames(remote.queries.Query(query(sql), timeout=WAIT)))

        async def running():
            return any(told.progress.read for told in await remote.open_queries())

        await until(running)
        stopping = asyncio.ensure_future(remote.service.stop(LONG))
        await looks(remote, 5)
        assert not stopping.done() and not asking.done()
        clock.ahead = LONG - WAIT / 2
        got = await asking
        await stopping
        last = got[-1].progress
        assert last.cut == "cancelled"
        assert last.rows == sum(frame.rows.num_rows for frame in got)
        # The session outlives its service.
        rest = remote.session.resume(last.token, budget=0.05, client=LOCAL.client).run()
        assert rest.progress.cpu_seconds > last.cpu_seconds

    run(body, session=much())


def test_a_statement_under_way_is_carried_out(monkeypatch):
    session = stocked()
    begun, go = threading.Event(), threading.Event()
    execute = session.execute_parsed

    def slowly(node, sql):
        begun.set()
        assert go.wait(WAIT)
        return execute(node, sql)

    monkeypatch.setattr(session, "execute_parsed", slowly)

    async def body(remote):
        sql = CREATE.replace("STREAM s", "STREAM t")
        asked = asyncio.ensure_future(remote.queries.Execute(queries_pb2.ExecuteRequest(sql=sql), timeout=WAIT))
        await asyncio.to_thread(begun.wait, WAIT)
        stopping = asyncio.ensure_future(remote.service.stop(LONG))
        await asyncio.sleep(0)
        go.set()
        assert (await asked).done.message == "stream t created"
        await stopping
        assert "t" in session.catalog.streams

    run(body, session=session)


def test_who_comes_late_is_turned_away_and_told_by_the_health_service():
    async def body(remote):
        health = health_pb2_grpc.HealthStub(remote.channel)
        asked = health_pb2.HealthCheckRequest(service="promising.v1.QueryService")
        assert (await health.Check(asked)).status == SERVING
        watching = health.Watch(asked, timeout=WAIT)
        assert (await watching.read()).status == SERVING
        call = remote.queries.Query(query(NONE), timeout=WAIT)  # something to wait for
        await call.read()
        stopping = asyncio.ensure_future(remote.service.stop(LONG))
        assert (await watching.read()).status == NOT_SERVING
        for late in (
            remote.query("SELECT * FROM s"),
            remote.ingest(batch(1)),
            remote.streams.ListStreams(streams_pb2.ListStreamsRequest(), timeout=WAIT),
        ):
            assert (await failed(late)).code() == grpc.StatusCode.UNAVAILABLE
        assert remote.stream.count == 60_000
        call.cancel()
        await stopping
        await remote.service.stop()  # a second time is no harm
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", remote.service.port))

    run(body, session=much())


class Timeouts:
    """asyncio, as the service sees it, with timeouts that a test can let pass."""

    def __init__(self) -> None:
        self.made: list[asyncio.Timeout] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        self.made.append(asyncio.timeout(seconds))
        return self.made[-1]


def test_a_watcher_that_does_not_read_holds_nothing_up(monkeypatch):
    timeouts = Timeouts()
    monkeypatch.setattr(service, "asyncio", timeouts)
    monkeypatch.setattr(service, "LAST_FRAMES", WAIT / 2)

    async def body(remote):
        health = health_pb2_grpc.HealthStub(remote.channel)
        watching = [health.Watch(health_pb2.HealthCheckRequest(service=name), timeout=WAIT) for name in ("", STREAMS)]
        for watcher in watching:
            assert (await watcher.read()).status == SERVING
        async with remote.service._health._server_watchers[""]:  # what a watcher holds until it is told
            stopping = asyncio.ensure_future(remote.service.stop(LONG))
            assert (await watching[1].read()).status == NOT_SERVING
            assert not stopping.done()
            timeouts.made[0].reschedule(asyncio.get_running_loop().time())
            monkeypatch.setattr(service, "LAST_FRAMES", 0.2)  # connections are closed then, whoever has not read
            await stopping
        assert [await watcher.code() for watcher in watching] == [grpc.StatusCode.UNAVAILABLE] * 2

    run(body)


def test_with_no_grace_all_is_ended_at_once():
    async def body(remote):
        calls = [remote.queries.Query(query(sql), timeout=WAIT) for sql in (MANY, NONE)]
        calls.append(remote.streams.Ingest(timeout=WAIT))
        await calls[2].write(batch(1))
        for call in calls:
            await call.read()
        await remote.service.stop()
        for call in calls:
            with pytest.raises(grpc.RpcError) as caught:
                while await call.read() is not EOF:
                    pass
            assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

        async def none():
            return not list(remote.service._parts.queries) and not list(remote.service._parts.ingests)

        await until(none)

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
            await looks(remote, 5)
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

        async def open_calls(count):
            async def so():
                return remote.service._access.under_way == count

            await until(so)

        await open_calls(1)  # the others are counted out
        call.cancel()
        await open_calls(0)

    run(body, session=much())


# --- a process ----------------------------------------------------------------------------------------------------

SERVE = """
import sys
from promising.server.service import serve
from promising.settings import Settings
serve(Settings(listen="127.0.0.1:0", drain_seconds=float(sys.argv[1])), lambda port: print(port, flush=True))
"""


@pytest.mark.deep("waits for a service to drain")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_end_drains_and_ends_well(number):
    process: Any
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(LONG)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            port = int(process.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                queries_pb2_grpc.QueryServiceStub(channel).Execute(queries_pb2.ExecuteRequest(sql=CREATE), timeout=WAIT)
                done = threading.Event()

                def requests():
                    yield batch(5)
                    done.wait(WAIT)

                call: Any = streams_pb2_grpc.StreamServiceStub(channel).Ingest(requests(), timeout=WAIT)
                assert next(call).appended.accepted == 5
                watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=WAIT)
                assert next(watching).status == SERVING
                process.send_signal(number)
                with pytest.raises(grpc.RpcError) as caught:
                    next(call)
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
                done.set()
                assert process.wait(WAIT) == 0
        finally:
            process.kill()
        told = [json.loads(line)["event"] for line in process.stderr if line.startswith(b"{")]
    assert [event for event in told if event in ("started", "draining", "stopped")] == [
        "started",
        "draining",
        "stopped",
    ]
