"""Plans and tuples for those who read elsewhere: in parts, within limits, and cut when nobody reads."""

import json
import threading
from collections.abc import Iterator

import grpc
import pyarrow as pa
import pytest

from promising import wire
from promising.index.scan_plan import ScanPlan
from promising.v1 import queries_pb2
from tests.promising.server.serving import EOF, WAIT, ReaderClock, details, failed, much, run, stocked, table, until

SQL = "SELECT item, price FROM s WHERE item = 3"


def plan(sql=SQL, **more):
    return queries_pb2.PlanScanRequest(sql=sql, **more)


def fetch(first=0, last=10, columns=("item", "name"), stream="s"):
    return queries_pb2.FetchRequest(stream=stream, first=first, last=last, columns=columns)


async def gathered(call):
    return [message async for message in call]


def tables(told):
    return pa.concat_tables([wire.table(part.rows) for part in told])


# --- plans -------------------------------------------------------------------------------------------------------


def test_a_plan_is_that_of_the_session():
    async def body(remote):
        told = await gathered(remote.queries.PlanScan(plan(), timeout=WAIT))
        assert ScanPlan.from_json("".join(part.plan for part in told)) == remote.session.plan_scan(SQL)

    run(body)


def test_a_large_plan_comes_in_parts(monkeypatch):
    session = stocked()
    sql = "é" * (3 * wire.PART + 5)  # two bytes each
    large = ScanPlan([], sql, None, (), 7, 1.0, 1.0)
    asked = []

    def plan_scan(sql, *, share=1.0):
        asked.append(share)
        return large

    monkeypatch.setattr(session, "plan_scan", plan_scan)
    monkeypatch.setattr(ScanPlan, "to_json", lambda self: json.dumps(self.sql, ensure_ascii=False))

    async def body(remote):
        told = await gathered(remote.queries.PlanScan(plan(), timeout=WAIT))
        assert len(told) == 4
        assert max(part.ByteSize() for part in told) < 1 << 20
        assert json.loads("".join(part.plan for part in told)) == sql
        await gathered(remote.queries.PlanScan(plan(share=0.5), timeout=WAIT))
        await gathered(remote.queries.PlanScan(plan(share=0.0), timeout=WAIT))
        assert asked == [1.0, 0.5, 0.0]  # one that was left out is all, and none is none

    run(body, session=session)


@pytest.mark.parametrize(
    ("request_", "code", "reason"),
    [
        (plan("SELECT nothing FROM s"), "NOT_FOUND", "NO_SUCH_NAME"),
        (plan("SHOW STREAMS"), "UNIMPLEMENTED", "UNSUPPORTED"),
        (plan(share=0.0), "INVALID_ARGUMENT", "BAD_QUESTION"),
        (plan(share=float("nan")), "INVALID_ARGUMENT", "BAD_QUESTION"),
        (plan("SELECT 1 " + "x" * 1000), "RESOURCE_EXHAUSTED", "LIMIT_REACHED"),
    ],
)
def test_what_cannot_be_planned_is_refused(request_, code, reason):
    async def body(remote):
        problem = await failed(gathered(remote.queries.PlanScan(request_, timeout=WAIT)))
        assert (problem.code().name, details(problem).info.reason) == (code, reason)

    run(body, max_sql_bytes=500)


# --- tuples ------------------------------------------------------------------------------------------------------


def test_tuples_come_by_arrival():
    async def body(remote):
        told = tables(await gathered(remote.queries.Fetch(fetch(2, 9), timeout=WAIT)))
        assert told.to_pydict() == table(10).slice(2, 7).select(["item", "name"]).to_pydict()
        assert await gathered(remote.queries.Fetch(fetch(4, 4), timeout=WAIT)) == []

    run(body)


def test_many_come_in_messages_of_some_size():
    async def body(remote):
        told = await gathered(remote.queries.Fetch(fetch(0, 60_000, ["ts", "item", "price", "name"]), timeout=WAIT))
        assert tables(told).num_rows == 60_000
        assert max(part.ByteSize() for part in told) < 2 * wire.PART + 4096
        assert len(told) > 3

    run(body, session=much())


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (fetch(stream="t"), "NO_SUCH_NAME"),
        (fetch(columns=["nothing"]), "UNKNOWN_NAME"),
        (fetch(columns=[]), "BAD_QUESTION"),
        (fetch(5, 4), "BAD_QUESTION"),
        (fetch(0, 11), "BAD_QUESTION"),
        (fetch(0, (1 << 64) - 1), "BAD_QUESTION"),
    ],
)
def test_what_is_not_there_is_refused(request_, reason):
    async def body(remote):
        problem = await failed(gathered(remote.queries.Fetch(request_, timeout=WAIT)))
        assert details(problem).info.reason == reason
        await remote.well()

    run(body)


class Endless:
    """Tuples without end, one table each time that somebody asks; it knows when it was let go of."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self, stream: str, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]:
        self.begun.set()
        try:
            while True:
                yield table(4_000)
                assert self.go.wait(WAIT)
        finally:
            self.ended.set()


@pytest.fixture
def endless(monkeypatch):
    made, session = Endless(), stocked()
    monkeypatch.setattr(session, "fetch", made)
    return made, session


async def let_go(remote, made):
    """A call that was over before the first tuple was asked for has nothing to let go of."""

    async def so():
        return made.ended.is_set() == made.begun.is_set() and (await remote.stats()).queries == 0

    await until(so)


def test_who_leaves_is_not_worked_for(endless):
    made, session = endless

    async def body(remote):
        call = remote.queries.Fetch(fetch(), timeout=WAIT)
        assert await call.read()
        call.cancel()
        await let_go(remote, made)
        assert list(remote.service._parts.queries) == []

    run(body, session=session)


def test_who_does_not_read_is_cut(endless, monkeypatch):
    made, session = endless
    clock = ReaderClock(monkeypatch)

    async def body(remote):
        call = remote.queries.Fetch(fetch(), timeout=WAIT)
        assert await call.read()

        async def cut():
            clock.tick()
            return (await remote.stats()).queries == 0

        await until(cut)
        await let_go(remote, made)
        held = 0
        with pytest.raises(grpc.aio.AioRpcError, match="nothing was read for") as ended:
            while await call.read() is not EOF:
                held += 1
        assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert held < 100  # messages that were on their way
        await remote.well()

    run(body, session=session, slow_reader_seconds=0.2)


def test_a_call_takes_no_more_time_than_calls_have(endless):
    made, session = endless

    async def body(remote):
        problem = await failed(gathered(remote.queries.Fetch(fetch(), timeout=WAIT)))
        assert problem.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "0.3 seconds, which is all a call may take" in problem.details()
        await let_go(remote, made)

    run(body, session=session, max_deadline_seconds=0.3)


def test_a_step_that_outlasts_its_call_is_let_go_of_when_it_ends(endless):
    made, session = endless
    made.go.clear()

    async def body(remote):
        problem = await failed(gathered(remote.queries.Fetch(fetch(), timeout=WAIT)))
        assert problem.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert not made.ended.is_set()
        made.go.set()
        await let_go(remote, made)

    run(body, session=session, max_deadline_seconds=0.3)


def test_a_call_takes_no_more_cpu_than_a_question_may_cost(endless):
    made, session = endless

    async def body(remote):
        problem = await failed(gathered(remote.queries.Fetch(fetch(), timeout=WAIT)))
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "0.05 seconds of CPU time" in problem.details()
        await let_go(remote, made)

    run(body, session=session, max_budget_seconds=0.05)


def test_plans_and_tuples_count_as_queries(endless):
    _, session = endless

    async def body(remote):
        call = remote.queries.Fetch(fetch(), timeout=WAIT)
        assert await call.read()
        for more in (remote.queries.Fetch(fetch(), timeout=WAIT), remote.queries.PlanScan(plan(), timeout=WAIT)):
            problem = await failed(gathered(more))
            assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert details(problem).retry == 1.0
        call.cancel()

    run(body, session=session, max_queries=1)
