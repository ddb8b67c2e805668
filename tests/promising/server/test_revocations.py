"""A token that is revoked takes its running calls with it, and nobody else's."""

import asyncio
import contextlib
import os
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from promising import wire
from promising.server import access_tokens
from promising.server.access_tokens import TokenStore
from promising.v1 import admin_pb2, queries_pb2
from tests.promising.server.serving import EOF, MANY, NONE, WAIT, batch, details, failed, much, run, stocked, until

DEEP = pytest.mark.deep("starts a service each")


@dataclass
class People:
    """The tokens of a service, and calls with them."""

    store: TokenStore
    secrets: dict[str, str]

    def told(self, name: str) -> Any:
        return (("authorization", f"Bearer {self.secrets[name]}"),)

    async def asking(self, remote: Any, name: str, sql: str = NONE) -> Any:
        """A query that runs."""
        call = remote.queries.Query(queries_pb2.QueryRequest(sql=sql), metadata=self.told(name), timeout=WAIT)
        assert (await call.read()).opened.query_id
        return call

    async def adding(self, remote: Any, name: str) -> Any:
        """An open Ingest call, one of whose batches is acknowledged."""
        call = remote.streams.Ingest(metadata=self.told(name), timeout=WAIT)
        await call.write(batch(3))
        assert (await call.read()).appended.accepted == 3
        return call

    async def watching(self, remote: Any, name: str) -> Any:
        """An open Subscribe call with its first frame."""
        call = remote.queries.Subscribe(metadata=self.told(name), timeout=WAIT)
        await call.write(queries_pb2.SubscribeRequest(add=queries_pb2.Subscription(number=1, query="q")))
        assert (await call.read()).sections
        return call

    async def loading(self, remote: Any, name: str) -> Any:
        """A LoadTable call whose client has stopped in the middle."""
        call = remote.queries.LoadTable(metadata=self.told(name), timeout=WAIT)
        await call.write(queries_pb2.LoadTableRequest(table="t", arrow=wire.ipc(pa.table({"k": [1]}))))
        return call

    async def who_asks(self, remote: Any) -> list[str]:
        listed = await remote.admin.ListQueries(
            admin_pb2.ListQueriesRequest(), metadata=self.told("root"), timeout=WAIT
        )
        return sorted(query.client for query in listed.queries)


@pytest.fixture
def people(tmp_path):
    store = TokenStore(tmp_path / "tokens.db")
    roles = {"eve": ["query", "ingest"], "bob": ["query"], "root": ["admin"]}
    yield People(store, {name: store.create(name, role) for name, role in roles.items()})
    store.close()


async def ended(call: Any) -> Any:
    """The error that a call ends with, once all before it is read."""
    while True:
        try:
            if await call.read() is EOF:
                return None
        except grpc.aio.AioRpcError as problem:
            return problem


def refused(problem: Any) -> None:
    assert problem is not None
    assert problem.code() is grpc.StatusCode.UNAUTHENTICATED
    assert details(problem).info.reason == "UNAUTHENTICATED"
    assert problem.details() == "the token was revoked or has expired, which ends its calls"


@pytest.mark.parametrize(
    "how",
    [
        "revoked",
        *(pytest.param(how, marks=pytest.mark.deep("starts a service each")) for how in ("expired", "renamed")),
    ],
)
def test_the_query_of_a_revoked_token_ends_and_others_go_on(people, tmp_path, how):
    async def body(remote):
        eve, bob = await people.asking(remote, "eve"), await people.asking(remote, "bob")
        unread = await people.asking(remote, "eve", MANY)
        assert await people.who_asks(remote) == ["bob", "eve", "eve"]
        if how == "revoked":
            people.store.revoke("eve")
        elif how == "expired":
            with contextlib.closing(sqlite3.connect(people.store.path)) as other, other:
                other.execute("UPDATE tokens SET expires = 1 WHERE name = 'eve'")
        else:
            (tmp_path / "new.db").write_bytes(people.store.path.read_bytes())
            other_store = TokenStore(tmp_path / "new.db")
            other_store.revoke("eve")
            other_store.close()
            (tmp_path / "new.db").rename(people.store.path)
        refused(await ended(eve))
        assert await people.who_asks(remote) == ["bob"]  # without waiting for those who do not read
        refused(await ended(unread))
        bob.cancel()
        assert len(remote.session._shelf) == 0

    run(body, session=much(), tokens=people.store.path)


def test_every_kind_of_call_ends(people):
    session = stocked()
    session.execute("CREATE TABLE t (k BIGINT, PRIMARY KEY (k))")
    session.execute("CREATE CONTINUOUS QUERY q AS SELECT item FROM s WINDOW 1 HOUR")

    async def body(remote):
        health = health_pb2_grpc.HealthStub(remote.channel).Watch(health_pb2.HealthCheckRequest(), timeout=WAIT)
        assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
        calls = [await begin(remote, "eve") for begin in (people.adding, people.watching)]
        half = await people.loading(remote, "eve")
        staying = await people.watching(remote, "bob")

        async def began():
            return len(remote.service._parts.ingests) == 2

        await until(began)
        people.store.revoke("eve")
        for call in calls:
            refused(await ended(call))
        refused(await failed(half))

        async def left():
            parts = remote.service._parts
            return (len(parts.ingests), len(parts.subscriptions)) == (0, 1)

        await until(left)
        assert remote.stream.count == 13
        assert remote.session.table("t").num_rows == 0
        staying.cancel()
        assert not health.done()
        health.cancel()

    run(body, session=session, tokens=people.store.path)


@DEEP
def test_a_token_of_the_same_secret_with_other_roles_ends_calls_too(people):
    async def body(remote):
        eve = await people.asking(remote, "eve")
        with contextlib.closing(sqlite3.connect(people.store.path)) as other, other:
            other.execute("UPDATE tokens SET roles = 'ingest' WHERE name = 'eve'")
        refused(await ended(eve))

    run(body, session=much(), tokens=people.store.path)


@pytest.mark.deep("waits until a client's window is full")
def test_one_that_does_not_read_its_end_holds_up_no_shutdown(people):
    async def body(remote):
        unread = await people.asking(remote, "eve", MANY)
        (call,) = remote.service._parts.queries

        async def stuck():
            return call.waiting is not None and time.monotonic() - call.waiting > 0.5

        await until(stuck)
        people.store.revoke("eve")
        access = remote.service._access

        async def cut():
            return access.revoked == 1 and access.under_way == 1

        await until(cut)
        assert not remote.service._busy()
        refused(await ended(unread))

    run(body, session=much(), tokens=people.store.path)


# --- a file that cannot be read ----------------------------------------------------------------------------------


async def version(remote: Any, people: People) -> Any:
    return await remote.admin.GetVersion(admin_pb2.GetVersionRequest(), metadata=people.told("bob"), timeout=WAIT)


@contextlib.contextmanager
def locked(path: Any) -> Any:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        os.utime(path)  # as its first page is written
        yield
        other.execute("ROLLBACK")


def test_while_the_file_is_written_calls_wait_and_the_service_does_not(people):
    async def body(remote):
        eve = await people.asking(remote, "eve")
        with locked(people.store.path):
            waiting = [asyncio.ensure_future(version(remote, people)) for _ in range(20)]

            async def waits():
                return remote.service._authentication._waiting is not None

            await until(waits)
            check = health_pb2_grpc.HealthStub(remote.channel).Check
            assert (await check(health_pb2.HealthCheckRequest(), timeout=WAIT)).status == 1
            assert not any(task.done() for task in waiting)
        assert all(await asyncio.gather(*waiting))
        assert not eve.done()
        eve.cancel()

    run(body, session=much(), tokens=people.store.path)


@DEEP
@pytest.mark.parametrize("wrong", ["locked", "missing", "empty", "text"])
def test_without_a_readable_file_nobody_new_comes_in_and_nobody_is_put_out(people, monkeypatch, wrong):
    monkeypatch.setattr(access_tokens, "WAIT_SECONDS", 0.05)
    path = people.store.path
    content = path.read_bytes()

    async def body(remote):
        eve = await people.asking(remote, "eve")
        with locked(path) if wrong == "locked" else contextlib.nullcontext():
            if wrong == "missing":
                path.unlink()
            elif wrong == "empty":
                path.write_bytes(b"")
            elif wrong == "text":
                path.write_bytes(b"no tokens " * 1000)
            problem = await failed(version(remote, people))
            assert problem.code() is grpc.StatusCode.UNAVAILABLE
            assert problem.details() == "the service cannot read its tokens now; its log says why"
            assert remote.service._access.end_revoked() == 0
        if wrong != "locked":
            path.write_bytes(content)
        assert await version(remote, people)
        assert not eve.done()
        people.store.revoke("eve")
        refused(await ended(eve))

    run(body, session=much(), tokens=path)
