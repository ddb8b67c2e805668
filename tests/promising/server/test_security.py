"""The whole service against those who should not be let in, and its logs against those who read them."""

import asyncio
import io
import json
import logging
import re
import urllib.request

import grpc
import pyarrow as pa
import pytest
from google.protobuf import empty_pb2

from promising.errors import BadSettings
from promising.server import logs, tls
from promising.server.access import METHODS
from promising.server.access_tokens import TokenStore
from promising.server.service import Service
from promising.settings import Auth, Settings, Tls
from promising.v1 import (
    common_pb2,
    queries_pb2,
    queries_pb2_grpc,
    streams_pb2,
    streams_pb2_grpc,
    summaries_pb2,
    summaries_pb2_grpc,
)
from tests.promising.server.certificates import Authority

WAIT = 120  # seconds, so that a test that fails ends
VERSION = "/promising.v1.AdminService/GetVersion"
OURS = sorted(full for full in METHODS if full.startswith("/promising."))


def run(settings, use):
    """`use(service)` against a running service, which is stopped after it."""

    async def whole():
        service = Service(settings)
        await service.start()
        try:
            return await asyncio.wait_for(use(service), WAIT)
        finally:
            await service.stop()

    return asyncio.run(whole())


async def code(channel, full=VERSION, secret=None):
    """The status code of a call with an empty request."""
    make = channel.unary_stream(full, empty_pb2.Empty.SerializeToString, lambda message: message)
    call = make(empty_pb2.Empty(), metadata=bearer(secret), timeout=WAIT)
    return await drained(call)


async def drained(call):
    """Read a call to its end; the name of the code that it ended with."""
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as problem:
        return problem.code().name
    return "OK"


def bearer(secret):
    return None if secret is None else (("authorization", f"Bearer {secret}"),)


def plain(service):
    return grpc.aio.insecure_channel(f"127.0.0.1:{service.port}")


def secure(service, root, pair=None):
    key, certificate = (None, None) if pair is None else (pair.key.read_bytes(), pair.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(root.read_bytes(), key, certificate)
    return grpc.aio.secure_channel(f"127.0.0.1:{service.port}", credentials)


@pytest.fixture
def tokens(tmp_path):
    store = TokenStore(tmp_path / "tokens.db")
    yield store
    store.close()


# --- tokens and roles --------------------------------------------------------------------------------------------


def test_every_call_is_shut_without_a_token_and_to_the_wrong_role(tokens):
    secrets = {role: tokens.create(role, role) for role in ("admin", "ingest", "query")}

    async def use(service):
        async with plain(service) as channel:
            for full in OURS:
                assert await code(channel, full) == "UNAUTHENTICATED", full
                assert await code(channel, full, "garbage") == "UNAUTHENTICATED", full
                for role, secret in secrets.items():
                    allowed = METHODS[full]
                    may = role == "admin" or allowed == "any" or role in allowed
                    found = await code(channel, full, secret)
                    assert (found == "PERMISSION_DENIED") is not may, (full, role, found)
                    assert found not in ("UNAUTHENTICATED", "INTERNAL", "UNKNOWN"), (full, role, found)
        assert (len(service.session.catalog.streams), len(service.session.catalog.summaries)) == (0, 0)

    run(Settings(listen="127.0.0.1:0", auth=Auth(tokens=tokens.path)), use)


@pytest.mark.parametrize("role", ["ingest", "query"])
def test_execute_asks_for_the_role_that_the_statement_needs(tokens, role):
    secret, admin = tokens.create(role, role), tokens.create("admin", "admin")
    create = "CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts"

    async def use(service):
        async with plain(service) as channel:
            stub = queries_pb2_grpc.QueryServiceStub(channel)

            async def execute(sql, who):
                call = stub.Execute(queries_pb2.ExecuteRequest(sql=sql), metadata=bearer(who))
                return (await call.code()).name

            for statement in (create, "DROP STREAM s", "DROP STREAM IF EXISTS s CASCADE"):
                assert await execute(statement, secret) == "PERMISSION_DENIED"
            assert len(service.session.catalog.streams) == 0
            assert await execute(create, admin) == "OK"
            expected = "OK" if role == "query" else "PERMISSION_DENIED"
            assert await execute("SHOW STREAMS", secret) == expected
            assert await execute("EXPLAIN SELECT k FROM s", secret) == expected

    run(Settings(listen="127.0.0.1:0", auth=Auth(tokens=tokens.path)), use)


def test_health_is_open_and_reflection_is_not(tokens):
    secret = tokens.create("any", "ingest")
    reflection = [full for full in METHODS if "reflection" in full]

    async def use(service):
        async with plain(service) as channel:
            assert await code(channel, "/grpc.health.v1.Health/Check") == "OK"
            for full in reflection:
                assert await code(channel, full) == "UNAUTHENTICATED"
                assert await code(channel, full, secret) == "OK"

    run(Settings(listen="127.0.0.1:0", auth=Auth(tokens=tokens.path)), use)


def test_expired_and_revoked_tokens_are_refused(tmp_path):
    now = 1_000.0
    old = TokenStore(tmp_path / "tokens.db", clock=lambda: now)
    expired = old.create("expired", "admin", expires_seconds=60)
    revoked = old.create("revoked", "admin")

    async def use(service):
        async with plain(service) as channel:
            assert await code(channel, secret=expired) == "UNAUTHENTICATED"
            assert await code(channel, secret=revoked) == "OK"
            old.revoke("revoked")
            assert await code(channel, secret=revoked) == "UNAUTHENTICATED"

    run(Settings(listen="127.0.0.1:0", auth=Auth(tokens=old.path)), use)
    old.close()


# --- addresses ---------------------------------------------------------------------------------------------------


def test_off_loopback_it_does_not_start_without_authentication(tokens):
    tokens.create("one", "query")
    with pytest.raises(BadSettings, match="nobody is asked"):
        Service(Settings(listen="0.0.0.0:0"))
    with pytest.raises(BadSettings, match="plain text"):
        Service(Settings(listen="0.0.0.0:0", auth=Auth(tokens=tokens.path)))


def test_a_file_of_tokens_that_is_not_there_keeps_it_from_starting(tmp_path):
    async def never(service):
        raise AssertionError

    with pytest.raises(BadSettings, match=r"^auth\.tokens: .*promising token create"):
        run(Settings(listen="127.0.0.1:0", auth=Auth(tokens=tmp_path / "none.db")), never)


# --- TLS ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def own(authority):
    return authority.server()


def over_tls(own, client_ca=None, **more):
    return Settings(
        listen="127.0.0.1:0", tls=Tls(certificate=own.certificate, key=own.key, client_ca=client_ca, **more)
    )


def test_plain_text_to_a_tls_port_is_refused(authority, own):
    async def use(service):
        async with plain(service) as stranger, secure(service, authority.certificate) as friend:
            assert await code(stranger) == "UNAVAILABLE"
            assert await code(friend) == "OK"

    run(over_tls(own), use)


def test_a_client_of_tls_does_not_talk_to_a_plain_port(authority):
    async def use(service):
        async with secure(service, authority.certificate) as channel:
            assert await code(channel) == "UNAVAILABLE"

    run(Settings(listen="127.0.0.1:0"), use)


def test_a_server_that_the_client_does_not_trust_is_not_talked_to(authority, own, tmp_path):
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")

    async def use(service):
        async with secure(service, other.certificate) as channel:
            assert await code(channel) == "UNAVAILABLE"

    run(over_tls(own), use)


def test_an_expired_server_does_not_start_and_would_not_be_talked_to(authority, monkeypatch):
    expired = authority.expired_server()

    async def use(service):
        async with secure(service, authority.certificate) as channel:
            return await code(channel)

    with pytest.raises(BadSettings, match=r"^tls\.certificate: .*expired"):
        run(over_tls(expired), use)
    monkeypatch.setattr(tls, "_check_pair", lambda certificate, key: None)
    assert run(over_tls(expired), use) == "UNAVAILABLE"


def test_only_good_certificates_of_the_right_authority_come_in(authority, own, tmp_path):
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")

    async def use(service):
        for stranger in (None, authority.expired_client(), other.client()):
            async with secure(service, authority.certificate, stranger) as channel:
                assert await code(channel) == "UNAVAILABLE"
        async with plain(service) as channel:
            assert await code(channel) == "UNAVAILABLE"
        async with secure(service, authority.certificate, authority.client()) as channel:
            assert await code(channel) == "OK"
            assert await code(channel, "/promising.v1.SummaryService/Estimate") not in ("PERMISSION_DENIED", "OK")
            assert await code(channel, "/promising.v1.StreamService/CreateStream") == "PERMISSION_DENIED"
            assert await code(channel, "/promising.v1.StreamService/Ingest") == "PERMISSION_DENIED"

    run(over_tls(own, authority.certificate), use)


def test_a_token_over_mutual_tls_decides(authority, own, tokens):
    admin, ingest = tokens.create("a", "admin"), tokens.create("b", "ingest")
    settings = over_tls(own, authority.certificate).model_copy(update={"auth": Auth(tokens=tokens.path)})

    async def use(service):
        async with secure(service, authority.certificate, authority.client()) as channel:
            estimate = "/promising.v1.SummaryService/Estimate"
            config = "/promising.v1.AdminService/GetConfig"
            assert await code(channel, config, admin) == "OK"
            assert await code(channel, config) == "PERMISSION_DENIED"
            assert await code(channel, estimate, ingest) == "PERMISSION_DENIED"
            assert await code(channel, estimate, "garbage") == "UNAUTHENTICATED"

    run(settings, use)


# --- nothing leaks -----------------------------------------------------------------------------------------------

# Each of these is in a request below, and must be in no log, no metric and nothing that is printed.
ITEM, PRICE, WORD, STREAM, SUMMARY, COLUMN = 918_273_645, 1357.24689, "zanzibar", "warehouse13", "sums13", "secretcol"
MARKS = [str(ITEM), "1357.2", WORD, STREAM, SUMMARY, COLUMN, "SELECT", "TIMESTAMP BY", "prm_", "garbage-token"]


@pytest.fixture
def logged():
    root = logging.getLogger()
    before, level, ours = root.handlers[:], root.level, logs.LOGGER.level
    stream = io.StringIO()
    logs.setup("debug", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)
    logs.LOGGER.setLevel(ours)


def ipc(**columns):
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


async def everything(service, admin, wrong):
    """Good and bad calls of most kinds, each with values of its own; returns the codes that came."""
    codes = []
    async with plain(service) as channel:
        streams = streams_pb2_grpc.StreamServiceStub(channel)
        summaries = summaries_pb2_grpc.SummaryServiceStub(channel)
        queries = queries_pb2_grpc.QueryServiceStub(channel)

        async def unary(make, request, who=admin):
            codes.append((await make(request, metadata=bearer(who)).code()).name)

        async def many(make, request):
            codes.append(await drained(make(request, metadata=bearer(admin))))

        for sql in (
            f"CREATE STREAM {STREAM} (ts TIMESTAMP, {COLUMN} BIGINT, price DOUBLE, word VARCHAR) TIMESTAMP BY ts",
            f"CREATE SUMMARY {SUMMARY} ON {STREAM} ({COLUMN}) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)",
            f"CREATE STREAM {STREAM} (ts TIMESTAMP, {COLUMN} BIGINT) TIMESTAMP BY ts",
            f"DROP STREAM no{STREAM}",
            f"SELEKT {WORD}",
        ):
            await unary(queries.Execute, queries_pb2.ExecuteRequest(sql=sql))
        await unary(queries.Execute, queries_pb2.ExecuteRequest(sql=f"CREATE STREAM {STREAM}2"), "garbage-token")
        await unary(queries.Execute, queries_pb2.ExecuteRequest(sql=f"DROP STREAM {STREAM}"), wrong)

        good = ipc(
            **{
                "ts": pa.array([1, 2], pa.timestamp("us")),
                COLUMN: [ITEM, 7],
                "price": [PRICE, 0.0],
                "word": [WORD, "a"],
            }
        )
        null = ipc(
            **{
                "ts": pa.array([1], pa.timestamp("us")),
                COLUMN: pa.nulls(1, pa.int64()),
                "price": [PRICE],
                "word": [WORD],
            }
        )
        batches = [
            streams_pb2.IngestRequest(stream=name, producer_id=WORD, sequence=number + 1, arrow=arrow)
            for number, (name, arrow) in enumerate(
                [
                    (STREAM, good),
                    (STREAM, null),
                    (STREAM, ipc(**{WORD: [1]})),
                    (STREAM, WORD.encode()),
                    ("no" + STREAM, good),
                ]
            )
        ]
        outcomes = []
        ingest = streams.Ingest(iter(batches), metadata=bearer(admin))
        async for response in ingest:
            outcomes.append(response.WhichOneof("outcome"))
        assert outcomes == ["appended", "refusal", "refusal", "refusal", "refusal"]
        codes.append((await ingest.code()).name)

        for sql in (
            f"SELECT {COLUMN}, price, word FROM {STREAM} WHERE {COLUMN} = {ITEM} AND word = '{WORD}'",
            f"SELECT {COLUMN} / (price - price) FROM {STREAM}",
            f"SELECT CAST(word AS BIGINT) FROM {STREAM}",
            f"SELECT no{COLUMN} FROM {STREAM}",
            f"SELECT '{WORD}",
        ):
            await many(queries.Query, queries_pb2.QueryRequest(sql=sql))
        await many(queries.Query, queries_pb2.QueryRequest(resume_token=f"garbage-token-{WORD}"))
        keys = common_pb2.Keys(ints=[ITEM])
        await unary(summaries.Estimate, summaries_pb2.EstimateRequest(summary=SUMMARY, keys=keys))
        await unary(summaries.Estimate, summaries_pb2.EstimateRequest(summary="no" + SUMMARY, keys=keys))
        await unary(
            summaries.Estimate, summaries_pb2.EstimateRequest(summary=SUMMARY, keys=common_pb2.Keys(strings=[WORD]))
        )
        await many(queries.Probe, queries_pb2.ProbeRequest(summary=SUMMARY, keys=keys))
        await many(queries.QueryBatch, queries_pb2.QueryBatchRequest(sql=[f"SELECT {COLUMN} FROM {STREAM}", WORD]))
        await code(channel, f"/{WORD}.{STREAM}/{SUMMARY}", admin)
    return codes


def test_nothing_of_users_gets_into_logs_metrics_or_stderr(tokens, logged, capfd):
    admin, wrong = tokens.create("ann", "admin"), tokens.create("bob", "query")
    settings = Settings(
        listen="127.0.0.1:0", metrics_listen="127.0.0.1:0", auth=Auth(tokens=tokens.path), log_level="debug"
    )

    async def use(service):
        codes = await everything(service, admin, wrong)
        address = f"http://127.0.0.1:{service._endpoint.port}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(address, timeout=WAIT).read().decode())
        return codes, text

    codes, metrics = run(settings, use)
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "UNAUTHENTICATED", "PERMISSION_DENIED"} <= set(
        codes
    )
    assert "INTERNAL" not in codes
    assert "UNKNOWN" not in codes

    events = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert sum(event["event"] == "rpc" for event in events) == len(codes) + 1
    assert {event["client"] for event in events if event["event"] == "rpc"} == {"ann", "bob", "anonymous"}
    printed = capfd.readouterr()
    for where, text in {
        "log": logged.getvalue(),
        "metrics": metrics,
        "stdout": printed.out,
        "stderr": printed.err,
    }.items():
        assert [mark for mark in MARKS if re.search(re.escape(mark), text, re.IGNORECASE)] == [], where
    assert 'promising_ingest_tuples_total{outcome="accepted"} 2.0' in metrics


def test_a_fault_tells_its_number_and_nothing_else(logged, capfd, monkeypatch):
    async def use(service):
        def broken(*args, **kwargs):
            raise RuntimeError(f"{WORD} {ITEM}")

        monkeypatch.setattr(service.session, "estimate", broken)
        async with plain(service) as channel:
            stub = summaries_pb2_grpc.SummaryServiceStub(channel)
            request = summaries_pb2.EstimateRequest(summary=SUMMARY, keys=common_pb2.Keys(ints=[ITEM]))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Estimate(request)
            return caught.value.code(), caught.value.details()

    found, details = run(Settings(listen="127.0.0.1:0"), use)
    assert found is grpc.StatusCode.INTERNAL
    (fault,) = [event for line in logged.getvalue().splitlines() if (event := json.loads(line))["event"] == "fault"]
    assert fault["log_id"] in details
    assert (fault["error"], fault["level"]) == ("RuntimeError", "error")
    printed = capfd.readouterr()
    for text in (details, logged.getvalue(), printed.out, printed.err):
        assert WORD not in text
        assert str(ITEM) not in text
