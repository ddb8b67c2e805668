"""Packages and scans over a connection that breaks: what is asked again, and from where."""

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import promising
from promising import wire
from promising.client import aio
from promising.client.session import RemoteSession
from promising.errors import (
    BadPackage,
    BadQuestion,
    BadRequest,
    DataDamaged,
    LimitReached,
    NoSuchName,
    PromisingError,
    StorageFull,
    TokenExpired,
    TokenReused,
    Unavailable,
    UnknownName,
)
from promising.index.load_plan import LoadPlan
from promising.index.prepared_load import Attached
from promising.index.scan_plan import ScanPlan
from promising.v1 import queries_pb2, streams_pb2
from tests.promising.client.flaky import Flaky, end, serving

GONE = Unavailable("not now")
LOAD = LoadPlan("s", {"ts": "timestamp"}, "ts", ("k",), 7, None, 0, 99, None, 5, 5, [])
SCAN = ScanPlan([], "SELECT 1", [3, -4], ("k", None), 7, 12.5, 0.75)
PART = 10  # tuples of a message


@dataclass
class Loading(Flaky):
    """A service that adds packages by token, and has a stream of numbers; both can break off.

    breaking: after how many messages a Fetch call ends, call by call.
    """

    tokens: list[str] = field(default_factory=list)
    lost: bool = False  # the answer to the next package is lost
    breaking: list[int] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)

    def PlanLoad(self, request: Any, context: Any) -> streams_pb2.PlanLoadResponse:
        self.begin("PlanLoad", context)
        return streams_pb2.PlanLoadResponse(plan=LOAD.to_json())

    def Attach(self, request: Any, context: Any) -> streams_pb2.AttachResponse:
        self.begin("Attach", context)
        duplicate = request.token in self.tokens
        self.tokens.append(request.token)
        if self.lost:
            self.lost = False
            end(context, GONE)
        return wire.attached_to(Attached(4, {"too_old": 1}, duplicate))

    def PlanScan(self, request: Any, context: Any) -> Iterator[queries_pb2.PlanScanResponse]:
        self.begin("PlanScan", context)
        for part in wire.text_parts(SCAN.to_json(), 7):
            yield queries_pb2.PlanScanResponse(plan=part)
            if self.after is not None:
                problem, self.after = self.after, None
                end(context, problem)

    def Fetch(self, request: Any, context: Any) -> Iterator[queries_pb2.FetchResponse]:
        self.begin("Fetch", context)
        context.add_callback(self.ended.set)
        self.asked.append((request.first, request.last))
        left = self.breaking.pop(0) if self.breaking else 1 << 30
        for first in range(request.first, request.last, PART):
            if not left:
                end(context, GONE if self.after is None else self.after)
            left -= 1
            numbers = range(first, min(first + PART, request.last))
            yield queries_pb2.FetchResponse(rows=wire.ipc(pa.table({"n": list(numbers)})))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Loading:
    monkeypatch.setattr("promising.client.retries.SHORTEST_WAIT", 0.001)
    return Loading()  # type: ignore[abstract]  # calls that no test makes are left out


@pytest.fixture
def session(service: Loading) -> Iterator[RemoteSession]:
    with serving(service) as target, promising.connect(target, retries=3) as made:
        yield made


def numbers(tables: Any) -> list[int]:
    return [number for table in tables for number in table["n"].to_pylist()]


def test_plans_are_asked_for_again(service: Loading, session: RemoteSession):
    service.problems = [GONE, GONE]
    assert session.load_plan("s") == LOAD
    service.problems = [GONE]
    service.after = GONE  # after its first part, too
    assert session.plan_scan("SELECT n FROM s", share=0.5) == SCAN
    assert service.calls == ["PlanLoad"] * 3 + ["PlanScan"] * 3


def test_a_package_whose_acknowledgement_is_lost_is_in_once(service: Loading, session: RemoteSession):
    service.problems = [GONE, StorageFull("no space"), LimitReached("busy", retry_seconds=0.001)]
    assert session.attach("s", "/p", "a") == Attached(4, {"too_old": 1}, False)
    service.lost = True
    assert session.attach("s", "/p", "b") == Attached(4, {"too_old": 1}, True)
    assert service.tokens == ["a", "b", "b"]


@pytest.mark.parametrize(
    "problem", [BadPackage("no"), TokenReused("no"), DataDamaged("no"), NoSuchName("no"), BadRequest("no", "path")]
)
def test_a_package_that_is_refused_is_not_sent_again(problem: PromisingError, service: Loading, session: RemoteSession):
    service.problems = [problem]
    with pytest.raises(type(problem), match="no"):
        session.attach("s", "/p", "t")
    assert service.calls == ["Attach"]


@pytest.mark.parametrize(("path", "token"), [("\ud800", "t"), ("/p", "\ud800"), (b"/p", "t"), ("/p", None)])
def test_what_cannot_be_sent_is_refused(path: Any, token: Any, service: Loading, session: RemoteSession):
    with pytest.raises(BadRequest, match="is a text in UTF-8"):
        session.attach("s", path, token)
    assert service.calls == []


def test_tuples_go_on_where_they_broke_off(service: Loading, session: RemoteSession):
    service.breaking = [0, 2, 1, 0, 0, 3]
    assert numbers(session.fetch("s", 5, 100, ["n"])) == list(range(5, 100))
    assert service.asked == [(first, 100) for first in (5, 5, 25, 35, 35, 35, 65)]


def test_tuples_are_given_up_after_tries_that_brought_nothing(service: Loading, session: RemoteSession):
    service.breaking = [1, 0, 0, 0]
    found = session.fetch("s", 0, 100, ["n"])
    assert next(found).num_rows == PART
    with pytest.raises(Unavailable, match="not now"):
        next(found)
    assert len(service.calls) == 4


def test_tuples_that_are_gone_are_not_asked_for_again(service: Loading, session: RemoteSession):
    service.breaking = [1]
    service.after = TokenExpired("let go of")
    with pytest.raises(TokenExpired, match="let go of"):
        numbers(session.fetch("s", 0, 100, ["n"]))
    assert service.calls == ["Fetch"]


def test_tuples_that_nobody_reads_any_more_end_their_call(service: Loading, session: RemoteSession):
    found = session.fetch("s", 0, 1 << 40, ["n"])
    next(found)
    assert not service.ended.is_set()
    del found
    gc.collect()
    assert service.ended.wait(60)


def test_nothing_is_asked_before_somebody_reads_and_what_is_wrong_is_told_at_once(
    service: Loading, session: RemoteSession
):
    session.fetch("s", 0, 5, ["n"])
    for wrong in ((-1, 5), (6, 5), (0, 1 << 63)):
        with pytest.raises(BadQuestion, match="arrivals go from"):
            session.fetch("s", *wrong, ["n"])
    with pytest.raises(UnknownName, match="no column"):
        session.fetch("s", 0, 5, ["\ud800"])
    with pytest.raises(NoSuchName, match="no stream"):
        session.fetch("\ud800", 0, 5, ["n"])
    assert service.calls == []


def test_the_same_in_an_event_loop(service: Loading):
    async def scenario(target: str) -> None:
        async with aio.connect(target, retries=3) as session:
            service.problems = [GONE]
            assert await session.load_plan("s") == LOAD
            service.lost = True
            assert (await session.attach("s", "/p", "t")).duplicate
            assert await session.plan_scan("SELECT n FROM s") == SCAN
            service.breaking = [0, 2, 1]
            assert numbers([table async for table in session.fetch("s", 5, 100, ["n"])]) == list(range(5, 100))
            service.breaking, service.after = [1], TokenExpired("let go of")
            with pytest.raises(TokenExpired):
                assert [table async for table in session.fetch("s", 0, 100, ["n"])]
            service.ended.clear()
            async for _ in session.fetch("s", 0, 1 << 40, ["n"]):
                break
            assert await asyncio.to_thread(service.ended.wait, 60)
        with pytest.raises(Unavailable, match="the session is closed"):
            await anext(session.fetch("s", 0, 5, ["n"]))

    with serving(service) as target:
        asyncio.run(scenario(target))
