"""Every limit: what is over it is refused with the right code and a detail that names it, and all else goes on."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from promising import wire, wire_times
from promising.index import probing
from promising.server import summaries, worker_threads
from promising.server.queries import QueryService
from promising.v1 import common_pb2, queries_pb2, streams_pb2, summaries_pb2
from tests.promising.server.serving import MANY, NONE, WAIT, batch, details, failed, idle, much, run, stocked, until

KEYS = common_pb2.Keys(ints=range(5))


def query(sql):
    return queries_pb2.QueryRequest(sql=sql)


async def gathered(call):
    return [message async for message in call]


def probe(remote, keys=KEYS, **more):
    request = queries_pb2.ProbeRequest(summary="items", keys=keys, **more)
    return gathered(remote.queries.Probe(request, timeout=WAIT))


def many(remote, *sql):
    return gathered(remote.queries.QueryBatch(queries_pb2.QueryBatchRequest(sql=sql), timeout=WAIT))


async def refused(call, *words, retry=None):
    """A call that is over a limit, which the message names."""
    problem = await failed(call)
    assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, problem
    told = details(problem)
    assert told.info.reason == "LIMIT_REACHED"
    assert told.retry == retry
    assert all(word in problem.details() for word in words), problem.details()


# --- how many calls ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits, said",
    [({"max_queries": 3}, "3 queries are open"), ({"max_queries_per_client": 3}, "3 queries of this client are open")],
    ids=["all", "client"],
)
def test_queries_at_one_time(limits, said):
    async def body(remote):
        calls = [remote.queries.Query(query(NONE), timeout=WAIT) for _ in range(3)]
        for call in calls:
            await call.read()
        for more in (
            remote.query("SELECT * FROM s"),
            remote.queries.Explain(queries_pb2.ExplainRequest(sql=MANY), timeout=WAIT),
            remote.queries.Execute(queries_pb2.ExecuteRequest(sql=f"EXPLAIN ANALYZE {MANY}"), timeout=WAIT),
            probe(remote),
            many(remote, "SELECT * FROM s"),
        ):
            await refused(more, said, retry=1.0)
        assert len(await remote.open_queries()) == (await remote.stats()).queries == 3
        (told,) = await remote.ingest(batch(1))  # tuples still come in
        assert told.appended.accepted == 1
        calls[0].cancel()

        async def room():
            return (await remote.stats()).queries < 3

        await until(room)
        assert await remote.query("SELECT * FROM s LIMIT 1")
        for call in calls:
            call.cancel()
        await idle(remote)
        await remote.well()

    run(body, session=much(), **limits)


def test_ingest_calls_of_one_client():
    async def body(remote):
        calls = [remote.streams.Ingest(timeout=WAIT) for _ in range(2)]
        for call in calls:
            await call.write(batch(1))
            assert (await call.read()).appended.accepted == 1
        before = remote.stream.count
        await refused(remote.ingest(batch(5)), "2 ingest calls of this client are open", retry=1.0)
        assert remote.stream.count == before
        await calls[0].done_writing()
        assert await calls[0].code() == grpc.StatusCode.OK
        await remote.well()
        await calls[1].done_writing()
        assert await calls[1].code() == grpc.StatusCode.OK
        await idle(remote)

    run(body, max_ingest_streams_per_client=2)


def test_plans_under_load_come_when_it_is_their_turn():
    async def body(remote):
        calls = [remote.queries.Query(query(NONE), timeout=WAIT) for _ in range(8)]
        for call in calls:
            await call.read()
        asked = queries_pb2.ExplainRequest(sql=NONE, analyze=True, budget=wire_times.duration(0.01))
        plans = await asyncio.gather(*(remote.queries.Explain(asked, timeout=WAIT) for _ in range(8)))
        assert all(plan.explanation.progress.cut == common_pb2.CUT_BUDGET for plan in plans)
        # One that its client leaves alone is no longer worked on.
        left = remote.queries.Explain(queries_pb2.ExplainRequest(sql=NONE, analyze=True), timeout=WAIT)

        async def begun():
            return (await remote.stats()).queries == 9

        await until(begun)
        left.cancel()
        for call in calls:
            call.cancel()
        await idle(remote)
        await remote.well()

    run(body, session=much())


# --- how much in one -----------------------------------------------------------------------------------------------


def test_long_statements():
    async def body(remote):
        sql = "SELECT * FROM s -- " + "x" * 200
        name = "x" * 200
        columns = [streams_pb2.Column(name="ts", type=streams_pb2.COLUMN_TYPE_TIMESTAMP)]
        stream = streams_pb2.CreateStreamRequest(name=name, columns=columns, time_column="ts")
        summary = summaries_pb2.CreateSummaryRequest(
            name=name, stream="s", key="item", granularity=Duration(seconds=60)
        )
        for call in (
            remote.query(sql),
            remote.queries.Execute(queries_pb2.ExecuteRequest(sql=sql)),
            remote.queries.Explain(queries_pb2.ExplainRequest(sql=sql)),
            many(remote, "SELECT * FROM s", sql),
            remote.streams.CreateStream(stream),
            remote.summaries.CreateSummary(summary),
            remote.streams.DropStream(streams_pb2.DropStreamRequest(name=name, if_exists=True)),
        ):
            await refused(call, "a statement of 2", "200 is the most")
        assert list(remote.session.catalog.streams) == ["s"]
        await remote.well()

    run(body, max_sql_bytes=200)


def test_letters_count_by_their_bytes():
    async def body(remote):
        await refused(remote.query("SELECT 'é' " * 6), "72 bytes; 70 is the most")
        await remote.well()

    run(body, max_sql_bytes=70)


def test_keys_in_one_question():
    async def body(remote):
        for keys in (common_pb2.Keys(ints=range(11)), common_pb2.Keys(strings=["x"] * 11)):
            for call in (
                remote.summaries.Estimate(summaries_pb2.EstimateRequest(summary="items", keys=keys)),
                remote.summaries.Regions(summaries_pb2.RegionsRequest(summary="items", keys=keys)),
                probe(remote, keys),
            ):
                await refused(call, "11 keys in one question; 10 is the most")
        keys = common_pb2.Keys(ints=range(10))
        found = await remote.summaries.Estimate(summaries_pb2.EstimateRequest(summary="items", keys=keys))
        assert len(found.value) == 10
        await remote.well()

    run(body, max_keys=10)


def test_pairs_of_key_and_zone(monkeypatch):
    monkeypatch.setattr(summaries, "MOST_PAIRS", 4)

    async def body(remote):
        asked = summaries_pb2.RegionsRequest(summary="items", keys=KEYS)
        await refused(remote.summaries.Regions(asked), "5 pairs of key and zone; 4 is the most")
        await remote.well()

    run(body)


@pytest.mark.parametrize("least", [summaries.LEAST_REGION, 1], ids=["before they are written", "after"])
def test_bytes_of_regions(monkeypatch, least):
    monkeypatch.setattr(summaries, "LEAST_REGION", least)

    async def body(remote):
        asked = summaries_pb2.RegionsRequest(summary="items", keys=common_pb2.Keys(ints=[1] * 60))
        await refused(remote.summaries.Regions(asked), "the regions take", "1,024 is the most")
        asked = summaries_pb2.RegionsRequest(summary="items", keys=KEYS)
        assert len((await remote.summaries.Regions(asked)).key) == 5
        await remote.well()

    run(body, max_message_bytes=1024)


def test_a_region_takes_at_least_what_is_said():
    session = stocked(1)
    made = wire.regions_to(session.regions("items", [0] * 1000))
    assert len(made.key) == 1000
    assert made.ByteSize() >= 1000 * summaries.LEAST_REGION


def test_statements_in_one_batch():
    async def body(remote):
        await refused(many(remote, *["SELECT * FROM s"] * 4), "4 statements in one batch; 3 is the most")
        assert {one.statement for one in await many(remote, *["SELECT * FROM s"] * 3)} == {0, 1, 2}
        await remote.well()

    run(body, max_statements=3)


def test_rows_of_probes_and_batches():
    async def body(remote):
        await refused(probe(remote), "more than 9 rows")
        await refused(many(remote, "SELECT * FROM s"), "more than 9 rows")
        await refused(many(remote, *["SELECT * FROM s LIMIT 5"] * 2), "more than 9 rows")
        some = await probe(remote, common_pb2.Keys(ints=[1, 2]))
        assert sum(wire.table(one.rows).num_rows for one in some) == 4
        assert len(await remote.query("SELECT * FROM s")) > 0  # the rows of a query are not limited
        await idle(remote)
        await remote.well()

    run(body, max_rows=9)


def test_copies_of_a_hot_key_do_not_hold_up_others(monkeypatch):
    """A probe of them takes turns on the one thread: a query beside it is answered long before the probe is."""
    monkeypatch.setattr(probing, "SLICE", 1 << 10)
    monkeypatch.setattr(worker_threads, "SMALL", 0.0)  # the steps of the query wait for the same thread

    async def body(remote):
        call = remote.queries.Probe(
            queries_pb2.ProbeRequest(summary="items", keys=common_pb2.Keys(ints=[0] * 100_000)), timeout=WAIT
        )
        first = wire.table((await call.read()).rows)
        assert first.num_rows <= 1 << 10 and len(set(first["probe"].to_pylist())) > 1
        *_, frame = await remote.query("SELECT count(*) AS n FROM s")
        assert frame.rows.to_pylist() == [{"n": 60_000}]
        assert not call.done()
        call.cancel()
        await idle(remote)
        await remote.well()

    run(body, session=much(), max_rows=1 << 40, workers=1)


def test_copies_of_a_hot_key_are_within_the_limits_of_rows_and_cpu_time():
    async def body(remote):
        await refused(probe(remote, common_pb2.Keys(ints=[0] * 100_000)), "more than 1,000,000 rows")
        await idle(remote)
        await remote.well()

    run(body, session=much(), max_rows=1_000_000)


def test_cpu_time_of_a_batch():
    async def body(remote):
        await refused(many(remote, NONE), "more than 0.05 seconds of CPU time")
        await idle(remote)
        await remote.well()

    run(body, session=much(), max_budget_seconds=0.05)


@pytest.mark.deep("waits for deadlines")
@pytest.mark.parametrize("method", ["Probe", "QueryBatch"])
def test_probes_and_batches_end_when_their_time_is_over(method, monkeypatch):
    monkeypatch.setattr(QueryService, "_allowed", lambda *_: WAIT)  # the query at the end has all the time it needs

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
        await remote.well()

    run(body, session=much(), max_rows=1 << 40, max_deadline_seconds=2.0)


def test_a_batch_with_one_bad_statement_answers_none():
    async def body(remote):
        call = remote.queries.QueryBatch(queries_pb2.QueryBatchRequest(sql=["SELECT * FROM s", "SELECT nope FROM s"]))
        problem = await failed(call.read())
        assert problem.code() == grpc.StatusCode.NOT_FOUND
        assert details(problem).info.metadata["column"] == "8"
        assert await many(remote) == []
        await remote.well()

    run(body)


def test_a_description_has_so_many_cells_and_no_more(monkeypatch):
    monkeypatch.setattr("promising.server.summaries.MOST_CELLS", 63)

    async def body(remote):
        ask = summaries_pb2.DescribeSummaryRequest
        await refused(remote.summaries.DescribeSummary(ask(name="items", cells=True)), "63 cells is the most")
        assert (await remote.summaries.DescribeSummary(ask(name="items"))).summary.zones

    run(body)
