"""Thousands of callers at once: each gets an answer, or is told when to ask again."""

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from promising.client.aio import connect
from promising.errors import LimitReached
from promising.v1 import common_pb2, queries_pb2, summaries_pb2, summaries_pb2_grpc
from tests.promising.server.serving import NONE, WAIT, details, failed, idle, much, run, stocked

CALLERS = 2_000
LONG = 35.0  # seconds
KEYS = common_pb2.Keys(ints=range(5))


def ask(remote: Any, number: int) -> Any:
    """A call of one of several kinds."""
    queries, summaries = remote.queries, remote.summaries
    calls = (
        lambda: queries.Query(queries_pb2.QueryRequest(sql="SELECT count(*) AS n FROM s"), timeout=WAIT),
        lambda: queries.Probe(queries_pb2.ProbeRequest(summary="items", keys=KEYS), timeout=WAIT),
        lambda: summaries.Estimate(summaries_pb2.EstimateRequest(summary="items", keys=KEYS), timeout=WAIT),
        lambda: queries.Execute(queries_pb2.ExecuteRequest(sql="SHOW STREAMS"), timeout=WAIT),
    )
    return calls[number % len(calls)]()


async def outcome(call: Any) -> str:
    """How a call ended; one that was refused for now says when to come again."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as problem:
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, problem
        assert details(problem).retry == 1.0
        return "refused"
    return "answered"


@pytest.mark.deep("thousands of calls")
@pytest.mark.parametrize("limits", [{}, {"max_calls": 100}, {"max_queries_per_client": 4}, {"max_queries": 4}])
@pytest.mark.parametrize("connections", [1, 100])
def test_each_is_answered_or_told_when_to_ask_again(limits, connections):
    async def body(remote: Any) -> None:
        target = f"127.0.0.1:{remote.service.port}"
        own = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(target, own) for _ in range(connections)]
        remotes = [type(remote)(remote.service, channel) for channel in channels]
        told = Counter(await asyncio.gather(*(outcome(ask(remotes[n % connections], n)) for n in range(CALLERS))))
        assert told.total() == CALLERS and told["answered"]
        await asyncio.gather(*(channel.close(None) for channel in channels))
        await idle(remote)
        await remote.well()

    run(body, **limits)


@pytest.mark.deep("holds a service up for more than the 30 seconds after which gRPC drops what waits")
def test_who_waits_long_to_be_looked_at_is_answered():
    async def body(remote: Any) -> None:
        with ThreadPoolExecutor(1) as pool, grpc.insecure_channel(f"127.0.0.1:{remote.service.port}") as channel:
            stub = summaries_pb2_grpc.SummaryServiceStub(channel)
            request = summaries_pb2.EstimateRequest(summary="items", keys=KEYS)
            await asyncio.get_running_loop().run_in_executor(pool, lambda: stub.Estimate(request, timeout=WAIT))
            calls = [stub.Estimate.future(request, timeout=WAIT) for _ in range(100)]
            time.sleep(LONG)  # of the event loop
            last = stub.Estimate.future(request, timeout=WAIT)
            for call in [*calls, last]:
                assert len((await asyncio.to_thread(call.result)).value) == 5

    run(body)


def test_calls_of_all_kinds_at_one_time():
    async def body(remote: Any) -> None:
        calls = [remote.queries.Query(queries_pb2.QueryRequest(sql=NONE), timeout=WAIT) for _ in range(3)]
        for call in calls:
            await call.read()
        for number in range(4):
            call = ask(remote, number)
            problem = await failed(call.read() if hasattr(call, "read") else call)
            assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "3 calls are open" in problem.details() and details(problem).retry == 1.0
        for call in calls:
            call.cancel()
        while remote.service._access.under_way:
            await asyncio.sleep(0.01)
        await remote.well()

    run(body, session=much(), max_calls=3)


@pytest.mark.deep("waits as long as it is told to")
def test_clients_come_again_when_they_are_told_to():
    async def body(remote: Any) -> None:
        async with (
            connect(f"127.0.0.1:{remote.service.port}") as session,
            connect(f"127.0.0.1:{remote.service.port}", retries=0) as hasty,
        ):
            asked = [session.query_many(["SELECT count(*) AS n FROM s"]) for _ in range(24)]
            found = await asyncio.gather(*asked)
            assert [table.to_pylist() for (table,) in found] == [[{"n": 10}]] * 24
            ends = await asyncio.gather(
                *(hasty.query_many(["SELECT count(*) AS n FROM s"]) for _ in range(24)), return_exceptions=True
            )
            refused = [end for end in ends if isinstance(end, BaseException)]
            assert all(isinstance(end, LimitReached) and end.retry_seconds == 1.0 for end in refused)

    run(body, session=stocked(), max_queries=8)
