"""Clients that ask and do not read: they are cut, told so, and what was worked out for them is let go of."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import grpc
import pyarrow as pa
import pytest

from promising import wire, wire_times
from promising.errors import LimitReached, NoSuchName
from promising.query.answers import Answer
from promising.server import memory, service
from promising.server.access import Caller
from promising.server.open_calls import Calls
from promising.v1 import common_pb2, queries_pb2, streams_pb2_grpc
from tests.promising.server.serving import (
    EOF,
    MANY,
    NONE,
    WAIT,
    ReaderClock,
    batch,
    details,
    failed,
    much,
    run,
    table,
    until,
)

SOON = {"slow_reader_seconds": 0.2}
ALICE, BOB, ROOT = (Caller(name, frozenset({role})) for name, role in (("a", "query"), ("b", "query"), ("r", "admin")))


@pytest.fixture
def clock(monkeypatch):
    return ReaderClock(monkeypatch)


def query(sql=MANY):
    return queries_pb2.QueryRequest(sql=sql)


async def cut(remote, clock, count=1):
    """Let time go by until so many readers were cut and nothing is at work any more."""

    async def so():
        clock.tick()
        told = await remote.stats()
        return told.queries == 0 and told.ingesting == 0 and told.answered["slow"] == count

    await until(so)


async def rest(call):
    """Read to the end: how many messages there still are, and the error at the end."""
    count = 0
    try:
        while await call.read() is not EOF:
            count += 1
    except grpc.aio.AioRpcError as problem:
        return count, problem
    raise AssertionError("the call ended well")


def test_a_query_that_nobody_reads_is_cut_and_given_back(monkeypatch, clock):
    answers = []
    session = much()
    ask = session.asking

    def noted(*given, **named):
        for answer in ask(*given, **named):
            if answer is not None:
                answers.append(weakref.ref(answer))
            yield answer

    monkeypatch.setattr(session, "asking", noted)

    async def body(remote):
        call = remote.queries.Query(query(), timeout=WAIT)
        await call.read()
        await cut(remote, clock)

        async def given_back():
            gc.collect()
            return [found() for found in answers] == [None]

        await until(given_back)  # the thread that worked on it lets go of it last
        assert not len(remote.session._shelf)
        assert all(one.answer is None for one in remote.service._parts.queries)
        await remote.well()  # before the client has read anything
        count, problem = await rest(call)
        assert count < 100
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "nothing was read for 0.2 seconds" in problem.details()
        assert details(problem).info.reason == "LIMIT_REACHED"
        assert list(remote.service._parts.queries) == []
        await remote.well()

    run(body, session=session, **SOON)


def test_memory_is_given_back_when_the_last_of_them_has_left(monkeypatch, clock):
    """Not only when they are cut: until they leave, what they have not read is still there."""
    given_back, looks = [], []
    monkeypatch.setattr(service, "TICK", 0.02)
    monkeypatch.setattr(memory, "IDLE", 0.0)
    monkeypatch.setattr(memory, "trim", lambda: given_back.append(True))

    def resident_bytes():
        looks.append(True)
        return 1 << 20  # no more than before, whatever happens

    monkeypatch.setattr(service, "resident_bytes", resident_bytes)

    async def body(remote):
        call = remote.queries.Query(query(), timeout=WAIT)
        await call.read()
        await cut(remote, clock)
        before = 0

        async def more():
            return len(given_back) > before

        await until(more)
        before, looked = len(given_back), len(looks)

        async def some_looks():
            return len(looks) > looked + 10

        await until(some_looks)
        assert len(given_back) == before  # once is enough
        call.cancel()
        await until(more)

    run(body, session=much(), **SOON)


def test_what_many_of_them_hold_is_bounded_by_what_their_client_may_have(clock):
    async def body(remote):
        calls = [remote.queries.Query(query(), timeout=WAIT) for _ in range(4)]
        for call in calls:
            await call.read()
        await cut(remote, clock, 4)
        # They no longer count against all, but still against their client, who has not read them.
        problem = await failed(remote.query("SELECT * FROM s LIMIT 1"))
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "4 queries of this client are open" in problem.details()
        calls[0].cancel()
        _, problem = await rest(calls[1])
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

        async def room():
            return len(list(remote.service._parts.queries)) == 2

        await until(room)
        await remote.well()
        for call in calls:
            call.cancel()

    run(body, session=much(), max_queries=5, max_queries_per_client=4, **SOON)


@pytest.mark.parametrize("method", ["Probe", "QueryBatch"])
def test_probes_and_batches_are_cut_too(method, clock):
    async def body(remote):
        if method == "Probe":
            request: Any = queries_pb2.ProbeRequest(summary="items", keys=common_pb2.Keys(ints=[0, 1] * 1000))
        else:
            request = queries_pb2.QueryBatchRequest(sql=[MANY])
        call = getattr(remote.queries, method)(request, timeout=WAIT)
        assert await call.read()

        async def so():
            clock.tick()
            return (await remote.stats()).queries == 0

        await until(so)
        _, problem = await rest(call)
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "nothing was read" in problem.details()
        await remote.well()

    run(body, session=much(), max_rows=1 << 40, **SOON)


@pytest.mark.deep("waits until memory is given back")
@pytest.mark.parametrize("method", ["Probe", "QueryBatch"])
def test_probes_and_batches_that_were_cut_hold_on_to_nothing(monkeypatch, method, clock):
    held = []
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

    run(body, session=much(), max_rows=1 << 40, **SOON)


@pytest.mark.deep("waits for slow readers")
def test_who_sends_and_never_reads_is_held_back_and_cut(clock):
    size = 1 << 15
    bad = batch(wire.ipc(table(1).append_column("x" * 3000, pa.array(["y" * size]))))
    sent, read = 0, threading.Event()

    def endless():
        nonlocal sent
        while True:
            sent += 1
            yield bad  # the answer is a refusal of two thousand letters

    def client(port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = streams_pb2_grpc.StreamServiceStub(channel).Ingest(endless(), timeout=WAIT)
            read.wait(WAIT)
            answered = 0
            try:
                for _ in call:
                    answered += 1
            except grpc.RpcError as problem:
                return answered, problem

    async def body(remote):
        calling = asyncio.ensure_future(asyncio.to_thread(client, remote.service.port))

        before, alike = 0, 0

        async def held_back():
            nonlocal before, alike
            alike = alike + 1 if sent == before > 0 else 0
            before = sent
            return alike > 50  # looks at which it had sent no more than at the one before

        await until(held_back)

        async def cut_off():
            clock.tick()
            return any(call.slow for call in remote.service._parts.ingests)

        await until(cut_off)
        assert (await remote.stats()).ingesting == 0
        held = sent  # once its call is over, what it still sends is thrown away
        read.set()
        answered, problem = await calling
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "nothing was read" in problem.details()
        assert (held - answered) * size < 16 << 20  # what it can make the service hold
        assert remote.stream.count == 10
        await remote.well()

    run(body, **SOON)


def test_who_waits_for_work_is_not_slow(monkeypatch, clock):
    """A query that works for long without a row has a reader that waits for it."""
    monkeypatch.setattr(service, "TICK", 0.01)
    looks = threading.Semaphore(0)
    cut_slow, turns = Calls.cut_slow, Answer.turns
    long = 0

    def looked(calls):
        found = cut_slow(calls)
        looks.release()
        return found

    def slowly(answer):
        nonlocal long
        for frame in turns(answer):
            if frame is None:
                yield None
                continue
            clock.now += 100
            while looks.acquire(blocking=False):
                pass
            for _ in range(4):  # two kinds of calls, and those that were being looked at just now
                assert looks.acquire(timeout=WAIT)
            long += 1
            yield frame

    monkeypatch.setattr(Calls, "cut_slow", looked)
    monkeypatch.setattr(Answer, "turns", slowly)

    async def body(remote):
        got = await remote.query(NONE, budget=wire_times.duration(0.5))
        assert got[-1].progress.cut == "budget"
        assert long == len(got) > 1
        assert (await remote.stats()).answered["slow"] == 0

    run(body, session=much(), **SOON)


# --- the book of calls ---------------------------------------------------------------------------------------------


def test_only_who_waits_for_its_reader_for_too_long_is_cut(clock):
    async def body():
        calls = Calls("queries", 10, 10, 5.0)
        with calls.admitted(ALICE) as call:
            call.task = asyncio.ensure_future(asyncio.Event().wait())
            clock.now += 100
            assert calls.cut_slow() == 0  # it works
            for _ in range(10):
                with call.writing():
                    clock.now += 4
                    assert calls.cut_slow() == 0  # its reader is slow, but reads
            with call.writing():
                clock.now += 6
                assert (len(calls), calls.cut_slow()) == (1, 1)
                assert (len(calls), calls.cut_slow()) == (0, 0)
                assert call.slow
            await asyncio.wait([call.task])
            assert call.task.cancelled()
        assert (len(calls), list(calls)) == (0, [])

    asyncio.run(body())


def test_who_was_cut_counts_against_its_client_alone(clock):
    async def body():
        calls = Calls("queries", 2, 1, 5.0)
        with calls.admitted(ALICE) as slow, calls.admitted(BOB):
            with pytest.raises(LimitReached, match="2 queries are open"), calls.admitted(ROOT):
                pass
            slow.task = asyncio.ensure_future(asyncio.Event().wait())
            with slow.writing():
                clock.now += 6
                assert calls.cut_slow() == 1
            with calls.admitted(ROOT):
                assert len(calls) == 2
            with pytest.raises(LimitReached, match="1 queries of this client"), calls.admitted(ALICE):
                pass
            await asyncio.wait([slow.task])
        with calls.admitted(ALICE), calls.admitted(BOB):
            assert len(calls) == 2
        assert len(calls) == 0

    asyncio.run(body())


def test_a_call_that_fails_is_forgotten():
    async def body():
        calls = Calls("queries", 1, 1, 5.0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), calls.admitted(ALICE):
                raise ZeroDivisionError
        assert not calls._by_client
        assert not calls._open

    asyncio.run(body())


def test_a_call_is_found_by_its_owner_and_by_admins():
    async def body():
        calls = Calls("queries", 9, 9, 5.0)
        with calls.admitted(ALICE) as call:
            assert calls.find(call.id, ALICE) is calls.find(call.id, ROOT) is call
            with pytest.raises(NoSuchName, match="it may have ended"):
                calls.find(call.id, BOB)
        with pytest.raises(NoSuchName, match="it may have ended"):
            calls.find(call.id, ALICE)

    asyncio.run(body())


def test_what_is_ended_while_it_is_planned_is_ended_when_it_is():
    async def body():
        calls = Calls("queries", 9, 9, 5.0)
        told: list[bool] = []
        with calls.admitted(ALICE) as call:
            call.end()
            assert call.ending
            call.answer = Answer(iter(()), lambda: None, pa.schema([]), told.append)  # type: ignore[arg-type, return-value]  # it is not asked for its progress
            call.end()
            assert told == [True]

    asyncio.run(body())
