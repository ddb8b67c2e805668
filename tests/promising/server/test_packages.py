"""Packages in: what a loader is told, what becomes of a package, and of a call that is left alone."""

import asyncio
import threading
from typing import Any

import grpc
import pytest

from promising.errors import (
    BadPackage,
    CeilingReached,
    DataDamaged,
    NoSuchName,
    StorageFull,
    StorageUnavailable,
    TokenReused,
)
from promising.index.prepared_load import Attached
from promising.server.service import Service
from promising.settings import Settings
from promising.v1 import streams_pb2, streams_pb2_grpc
from tests.promising.server.serving import WAIT, batch, details, failed, run, stocked, until

ADDED = Attached(accepted=7, refused={"too_old": 2}, duplicate=False)


def attach(stream="s", path="/some/where", token="t"):
    return streams_pb2.AttachRequest(stream=stream, path=path, token=token)


class Attaching:
    """A session's `attach` that a test holds in its hands."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.done: list[str] = []
        self.go = threading.Event()
        self.problem: type[Exception] | None = None

    def __call__(self, stream: str, path: str, token: str) -> Attached:
        self.asked.append((stream, path, token))
        assert self.go.wait(WAIT)
        if self.problem is not None:
            raise self.problem("this is wrong with it")
        self.done.append(token)
        return ADDED._replace(duplicate=self.done.count(token) > 1)


@pytest.fixture
def attaching(monkeypatch):
    """A session of which `attach` is the test's, at once unless it clears `go`."""
    made, session = Attaching(), stocked()
    made.go.set()
    monkeypatch.setattr(session, "attach", made)
    return made, session


async def asked(remote, made, count):
    async def so():
        return len(made.asked) == count

    await until(so)


def test_a_plan_is_that_of_the_session():
    async def body(remote):
        told = await remote.streams.PlanLoad(streams_pb2.PlanLoadRequest(stream="S"), timeout=WAIT)
        assert told.plan == remote.session.load_plan("s").to_json()
        problem = await failed(remote.streams.PlanLoad(streams_pb2.PlanLoadRequest(stream="t"), timeout=WAIT))
        assert (problem.code(), details(problem).info.reason) == (grpc.StatusCode.NOT_FOUND, "NO_SUCH_NAME")

    session = stocked()
    run(body, session=session)


def test_what_became_of_a_package_is_told_and_counted_once(attaching):
    made, session = attaching

    async def body(remote):
        before = await remote.stats()
        told = [await remote.streams.Attach(attach(), timeout=WAIT) for _ in range(2)]
        assert [(t.accepted, dict(t.refused), t.duplicate) for t in told] == [
            (7, {"too_old": 2}, False),
            (7, {"too_old": 2}, True),
        ]
        assert made.asked == [("s", "/some/where", "t")] * 2
        after = await remote.stats()
        assert (after.accepted - before.accepted, after.batches - before.batches) == (7, 1)
        assert dict(after.refused) == dict(before.refused)  # they never came here

    run(body, session=session)


@pytest.mark.deep("a service for each of many cases")
@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (NoSuchName, "NOT_FOUND"),
        (BadPackage, "FAILED_PRECONDITION"),
        (TokenReused, "ALREADY_EXISTS"),
        (DataDamaged, "DATA_LOSS"),
        (CeilingReached, "RESOURCE_EXHAUSTED"),
        (StorageFull, "RESOURCE_EXHAUSTED"),
        (StorageUnavailable, "UNAVAILABLE"),
        (RuntimeError, "INTERNAL"),
    ],
)
def test_why_a_package_is_not_taken(attaching, problem, code):
    made, session = attaching
    made.problem = problem

    async def body(remote):
        found = await failed(remote.streams.Attach(attach(), timeout=WAIT))
        assert found.code().name == code
        assert details(found)
        assert ("this is wrong with it" in found.details()) == (code != "INTERNAL")
        assert (await remote.stats()).ingesting == 0
        await remote.well()

    run(body, session=session)


def test_packages_come_in_one_at_a_time_and_hold_nothing_else_up(attaching):
    made, session = attaching
    made.go.clear()

    async def body(remote):
        calls = [remote.streams.Attach(attach(token=name), timeout=WAIT) for name in "abc"]
        waiting = [asyncio.ensure_future(_told(call)) for call in calls]
        await asked(remote, made, 1)

        async def all_there():
            return (await remote.stats()).ingesting == 3

        await until(all_there)
        await remote.well()  # batches, queries and questions go on
        assert len(made.asked) == 1
        made.go.set()
        assert [told.accepted for told in await asyncio.gather(*waiting)] == [7, 7, 7]
        assert sorted(made.done) == ["a", "b", "c"]

    run(body, session=session, workers=1)


async def _told(call: Any) -> Any:
    return await call


def test_one_that_has_begun_goes_on_when_its_client_leaves_and_one_that_has_not_does_not(attaching):
    made, session = attaching
    made.go.clear()

    async def body(remote):
        begun = remote.streams.Attach(attach(token="begun"), timeout=WAIT)
        waiting = asyncio.ensure_future(_told(begun))
        await asked(remote, made, 1)
        behind = remote.streams.Attach(attach(token="behind"), timeout=WAIT)
        left = asyncio.ensure_future(_told(behind))

        async def both():
            return (await remote.stats()).ingesting == 2

        await until(both)
        begun.cancel()
        behind.cancel()
        await asyncio.gather(waiting, left, return_exceptions=True)

        async def gone():
            return (await remote.stats()).ingesting == 0

        await until(gone)
        made.go.set()
        told = await remote.streams.Attach(attach(token="begun"), timeout=WAIT)
        assert told.duplicate
        assert made.done == ["begun", "begun"]

    run(body, session=session)


def test_clients_have_no_more_open_than_they_may(attaching):
    made, session = attaching
    made.go.clear()

    async def body(remote):
        first = asyncio.ensure_future(_told(remote.streams.Attach(attach(), timeout=WAIT)))
        await asked(remote, made, 1)
        problem = await failed(remote.streams.Attach(attach(), timeout=WAIT))
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details(problem).retry == 1.0
        assert (await failed(remote.ingest(batch(1)))).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        made.go.set()
        await first
        await remote.well()

    run(body, session=session, max_ingest_streams_per_client=1)


def test_the_service_ends_when_the_package_is_in(attaching):
    made, session = attaching
    made.go.clear()

    async def body(remote):
        call = asyncio.ensure_future(_told(remote.streams.Attach(attach(), timeout=WAIT)))
        await asked(remote, made, 1)
        stopping = asyncio.ensure_future(remote.service.stop(2 * WAIT))
        while not remote.service._parts.draining:
            await asyncio.sleep(0.01)
        refused = await failed(remote.streams.Attach(attach(token="late"), timeout=WAIT))
        assert refused.code() == grpc.StatusCode.UNAVAILABLE
        made.go.set()
        assert (await call).accepted == 7
        await stopping
        assert made.done == ["t"]

    run(body, session=session)


def test_packages_come_from_the_folders_that_are_named(attaching, tmp_path):
    made, session = attaching
    settings = Settings(listen="127.0.0.1:0", load_paths=(str(tmp_path), "s3://lake/in"))

    async def whole():
        service = Service(settings, session)
        port = await service.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub: Any = streams_pb2_grpc.StreamServiceStub(channel)
                for path in (f"{tmp_path}/a", "s3://lake/in/a"):
                    assert (await stub.Attach(attach(path=path), timeout=WAIT)).accepted == 7
                for path in ("/etc", "s3://lake/out", f"{tmp_path}/../x", ""):
                    problem = await failed(stub.Attach(attach(path=path), timeout=WAIT))
                    assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT
                    assert details(problem).violations.keys() == {"path"}
        finally:
            await service.stop()

    asyncio.run(whole())
    assert [path for _, path, _ in made.asked] == [f"{tmp_path}/a", "s3://lake/in/a"]
