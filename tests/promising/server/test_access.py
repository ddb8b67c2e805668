"""Every call passes the interceptor: who may, how it ends, what is told of it."""

import asyncio
import io
import json
import logging
import re
from pathlib import Path

import grpc
import pytest
from google.protobuf import wrappers_pb2

from promising import wire_errors
from promising.errors import (
    BadSettings,
    Forbidden,
    Incompatible,
    InternalError,
    LimitReached,
    NoSuchName,
    PromisingError,
    Unauthenticated,
)
from promising.server import access, logs
from promising.server.access import METHODS, AccessInterceptor, Caller
from promising.server.access_tokens import TokenStore
from promising.server.authentication import Authentication
from promising.server.metrics import Metrics
from promising.server.open_calls import Calls
from promising.settings import Auth, Settings, Tls
from tests.promising.server.certificates import Authority

PROTO = Path(__file__).resolve().parents[3] / "proto" / "promising" / "v1"
KINDS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]
TEXT = wrappers_pb2.StringValue
QUERY = "/promising.v1.QueryService/Query"
INGEST = "/promising.v1.StreamService/Ingest"
CREATE = "/promising.v1.StreamService/CreateStream"
EXECUTE = "/promising.v1.QueryService/Execute"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
UNLISTED = "/promising.v1.StreamService/Backdoor"
EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
WAIT = 120  # seconds, so that a test that fails ends


class Told:
    """What one server has logged and counted."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.stream = io.StringIO()

    def events(self, name: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if line["event"] == name]

    def codes(self) -> dict[tuple[str, str], float]:
        (family,) = self.metrics.rpcs_total.collect()
        samples = [sample for sample in family.samples if sample.name.endswith("_total")]
        return {(sample.labels["method"], sample.labels["code"]): sample.value for sample in samples}


@pytest.fixture
def told():
    """With logging set up for it, and put back after it."""
    root = logging.getLogger()
    before, level, own = root.handlers[:], root.level, logs.LOGGER.level
    made = Told()
    logs.setup("debug", made.stream)
    yield made
    root.handlers[:] = before
    root.setLevel(level)
    logs.LOGGER.setLevel(own)


def handler(kind, behaviour):
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(behaviour, TEXT.FromString, TEXT.SerializeToString)


def answering(kind, body):
    """A handler of a kind that answers with what `body` gives; `body` gets the request's text."""

    async def one(request, context):
        return TEXT(value=await body(request.value, context))

    async def many(request, context):
        yield TEXT(value=await body(request.value, context))

    async def from_stream(requests, context):
        texts = [request.value async for request in requests]
        return TEXT(value=await body("".join(texts), context))

    async def both(requests, context):
        async for request in requests:
            yield TEXT(value=await body(request.value, context))

    behaviours = {"unary_unary": one, "unary_stream": many, "stream_unary": from_stream, "stream_stream": both}
    return handler(kind, behaviours[kind])


def serve(told, methods, use, settings=None, credentials=None, channel_credentials=None):
    """Run `use(channel)` against a server with these handlers, by full method; returns what it returns."""

    async def run():
        authentication = Authentication(settings or Settings())
        interceptor = AccessInterceptor(authentication, told.metrics, Calls("health watches", 3, 2, WAIT), 100)
        server = grpc.aio.server(interceptors=(interceptor,))
        for full, found in methods.items():
            service, method = full[1:].split("/")
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: found}),))
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        try:
            if channel_credentials is None:
                channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            else:
                channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", channel_credentials)
            async with channel:
                return await asyncio.wait_for(use(channel), WAIT)
        finally:
            await server.stop(None)
            authentication.close()

    return asyncio.run(run())


async def nothing_yet():
    """Requests of a client that waits for an answer first: one that writes to a call that has ended is told no more."""
    await asyncio.Event().wait()
    yield TEXT()


async def call(channel, full, kind, text="hello", raw=None, requests=None, **options):
    """The text of a call's answer."""
    serialise = (lambda _: raw) if raw is not None else TEXT.SerializeToString
    make = getattr(channel, kind)(full, request_serializer=serialise, response_deserializer=TEXT.FromString)
    request = TEXT(value=text)
    found = make((requests or iter([request])) if kind.startswith("stream") else request, **options)
    if kind.endswith("unary"):
        return (await found).value
    return "".join([response.value async for response in found])


async def refused(channel, full, kind="unary_unary", **options):
    """The error that a call ends with, as a client of ours would raise it."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, full, kind, **options)
    return wire_errors.from_rpc_error(caught.value)


def bearer(secret):
    return (("authorization", f"Bearer {secret}"),)


async def name(text, context):
    return f"{text} {access.caller().name}"


@pytest.fixture
def tokens(tmp_path):
    """A token of each role, and the settings that ask for them."""
    store = TokenStore(tmp_path / "tokens.db")
    secrets = {role: store.create(f"the-{role}", role) for role in ("admin", "ingest", "query")}
    yield Settings(auth=Auth(tokens=store.path)), secrets, store
    store.close()


# --- the list ----------------------------------------------------------------------------------------------------


def test_every_call_of_the_contract_is_listed_with_the_role_that_it_names():
    found = {}
    for path in sorted(PROTO.glob("*.proto")):
        text = path.read_text(encoding="utf-8")
        for service, body in re.findall(r"^service (\w+) \{\n(.*?)^\}", text, re.M | re.S):
            for comment, method in re.findall(r"^  // (.*)\n  rpc (\w+)", body, re.M):
                role = re.search(r"[Rr]ole: (\w+)", comment)
                assert role, f"{method} names no role"
                found[f"/promising.v1.{service}/{method}"] = role.group(1)
    assert found[EXECUTE] == "admin"  # or query, by the statement; anyone may send one
    found[EXECUTE] = "any"
    listed = {full: allowed for full, allowed in METHODS.items() if full.startswith("/promising.")}
    assert {full: allowed if allowed == "any" else "".join(allowed) for full, allowed in listed.items()} == found


# --- who ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_caller_is_known_inside_every_kind_of_handler(told, tokens, kind):
    settings, secrets, _ = tokens

    async def use(channel):
        return await call(channel, QUERY, kind, metadata=bearer(secrets["query"]))

    assert serve(told, {QUERY: answering(kind, name)}, use, settings) == "hello the-query"


def test_calls_at_the_same_time_keep_their_callers_apart(told, tokens):
    settings, secrets, _ = tokens
    both = asyncio.Barrier(2)

    async def late(text, context):
        await both.wait()
        return access.caller().name

    async def use(channel):
        calls = (call(channel, EXECUTE, "unary_unary", metadata=bearer(secrets[role])) for role in ("admin", "query"))
        return await asyncio.gather(*calls)

    assert serve(told, {EXECUTE: answering("unary_unary", late)}, use, settings) == ["the-admin", "the-query"]


def test_without_authentication_everyone_is_the_local_admin(told):
    async def use(channel):
        return [await call(channel, full, "unary_unary") for full in (CREATE, INGEST, QUERY)]

    methods = {full: answering("unary_unary", name) for full in (CREATE, INGEST, QUERY)}
    assert serve(told, methods, use) == ["hello local"] * 3


@pytest.mark.deep("every call, with every kind of token")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", ["nothing", "garbage", "unknown", "basic", "twice", "bare", "revoked"])
def test_without_a_good_token_nothing_runs(told, tokens, kind, given):
    settings, secrets, store = tokens
    ran = []

    async def body(text, context):
        ran.append(text)
        return text

    good = secrets["admin"]
    metadata = {
        "nothing": (),
        "garbage": bearer("garbage"),
        "unknown": bearer("prm_" + "0" * 12 + "_" + "0" * 64),
        "basic": (("authorization", f"Basic {good}"),),
        "twice": bearer(good) + bearer("garbage"),
        "bare": (("authorization", good),),
        "revoked": bearer(good),
    }[given]
    if given == "revoked":
        store.revoke("the-admin")

    async def use(channel):
        return await refused(channel, QUERY, kind, metadata=metadata, requests=nothing_yet())

    problem = serve(told, {QUERY: answering(kind, body)}, use, settings)
    assert type(problem) is Unauthenticated
    assert good not in str(problem)
    assert ran == []
    assert told.codes() == {(QUERY, "UNAUTHENTICATED"): 1}


def test_a_revoked_token_is_refused_at_the_next_call(told, tokens):
    settings, secrets, store = tokens

    async def use(channel):
        before = await call(channel, QUERY, "unary_unary", metadata=bearer(secrets["query"]))
        store.revoke("the-query")
        return before, await refused(channel, QUERY, metadata=bearer(secrets["query"]))

    before, after = serve(told, {QUERY: answering("unary_unary", name)}, use, settings)
    assert before == "hello the-query"
    assert type(after) is Unauthenticated


def test_a_token_revoked_before_the_request_has_come_is_refused(told, tokens, monkeypatch):
    settings, secrets, store = tokens
    known, open_, ran = asyncio.Event(), asyncio.Event(), []
    before = Authentication.known

    async def noted(self, metadata):
        found = await before(self, metadata)
        known.set()
        return found

    async def late():
        await open_.wait()
        yield TEXT(value="hello")

    async def body(text, context):
        ran.append(text)
        return text

    async def use(channel):
        coming = refused(channel, CREATE, "stream_unary", requests=late(), metadata=bearer(secrets["admin"]))
        task = asyncio.ensure_future(coming)
        await known.wait()
        store.revoke("the-admin")
        open_.set()
        return await task

    monkeypatch.setattr(Authentication, "known", noted)
    assert type(serve(told, {CREATE: answering("unary_unary", body)}, use, settings)) is Unauthenticated
    assert ran == []
    assert told.codes() == {(CREATE, "UNAUTHENTICATED"): 1}


@pytest.mark.parametrize("role", ["admin", "ingest", "query"])
def test_a_role_opens_its_calls_and_no_others(told, tokens, role):
    settings, secrets, _ = tokens
    theirs = {CREATE: {"admin"}, INGEST: {"admin", "ingest"}, QUERY: {"admin", "query"}, EXECUTE: {role}}

    async def use(channel):
        for full, roles in theirs.items():
            if role in roles:
                assert await call(channel, full, "unary_unary", metadata=bearer(secrets[role])) == f"hello the-{role}"
            else:
                problem = await refused(channel, full, metadata=bearer(secrets[role]))
                assert type(problem) is Forbidden
                assert f"the-{role} has {role}" in str(problem)

    serve(told, {full: answering("unary_unary", name) for full in theirs}, use, settings)
    for event in told.events("rpc"):
        assert event["client"] == f"the-{role}"


def test_require_asks_for_a_role_inside_a_call(told, tokens):
    settings, secrets, _ = tokens

    async def body(text, context):
        access.require("admin")
        return "done"

    async def use(channel):
        assert await call(channel, EXECUTE, "unary_unary", metadata=bearer(secrets["admin"])) == "done"
        return await refused(channel, EXECUTE, metadata=bearer(secrets["query"]))

    assert type(serve(told, {EXECUTE: answering("unary_unary", body)}, use, settings)) is Forbidden


def test_health_needs_no_token(told, tokens):
    async def use(channel):
        return await call(channel, CHECK, "unary_unary")

    assert serve(told, {CHECK: answering("unary_unary", name)}, use, tokens[0]) == "hello anonymous"
    assert [event["level"] for event in told.events("rpc")] == ["debug"]


def watching(channel, full, **options):
    """An open call of a client that has the first response."""
    return channel.unary_stream(full, TEXT.SerializeToString, TEXT.FromString)(TEXT(), **options)


async def endless(request, context):
    await context.write(TEXT(value=access.caller().name))
    await asyncio.Event().wait()


def test_health_watches_are_limited_for_each_address(told):
    async def use(channel):
        open_ = [watching(channel, WATCH) for _ in range(2)]
        for found in open_:
            assert (await found.read()).value == "anonymous"
        problem = await refused(channel, WATCH, "unary_stream")
        assert await call(channel, CHECK, "unary_unary") == "hello anonymous"
        open_[0].cancel()
        while isinstance(await _first(watching(channel, WATCH)), grpc.aio.AioRpcError):
            await asyncio.sleep(0.01)
        open_[1].cancel()
        return problem

    methods = {WATCH: handler("unary_stream", endless), CHECK: answering("unary_unary", name)}
    problem = serve(told, methods, use)
    assert type(problem) is LimitReached
    assert str(problem) == "2 health watches of this client are open, which is all it may have"
    assert problem.retry_seconds == 1.0


async def _first(found):
    try:
        return await found.read()
    except grpc.aio.AioRpcError as problem:
        return problem


def test_streams_of_grpcs_own_services_are_limited_in_all(told, tokens):
    settings, secrets, _ = tokens

    async def use(channel):
        for role in ("admin", "query", "ingest"):
            assert (await watching(channel, REFLECT, metadata=bearer(secrets[role])).read()).value == f"the-{role}"
        return await refused(channel, REFLECT, "unary_stream", metadata=bearer(secrets["admin"]))

    problem = serve(told, {REFLECT: handler("unary_stream", endless)}, use, settings)
    assert str(problem) == "3 health watches are open, which is all this service takes"


def test_a_method_that_nobody_listed_is_closed_to_all(told, tokens):
    settings, secrets, _ = tokens

    async def use(channel):
        return await refused(channel, UNLISTED, metadata=bearer(secrets["admin"]))

    assert type(serve(told, {UNLISTED: answering("unary_unary", name)}, use, settings)) is Forbidden


def test_unknown_methods_share_one_label(told):
    async def use(channel):
        for number in range(5):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(channel, f"/some.Service/Method{number}", "unary_unary")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    serve(told, {QUERY: answering("unary_unary", name)}, use)
    assert told.codes() == {("other", "UNIMPLEMENTED"): 5}
    assert "Method3" not in told.stream.getvalue()


def test_a_missing_file_of_tokens_keeps_the_server_from_starting(tmp_path):
    with pytest.raises(BadSettings, match=r"auth\.tokens"):
        Authentication(Settings(auth=Auth(tokens=tmp_path / "none.db")))


# --- certificates ------------------------------------------------------------------------------------------------


@pytest.fixture
def mutual(tmp_path):
    """Runs a use of a channel whose client has a certificate of this name."""
    authority = Authority(tmp_path)
    server = authority.server()
    tls = Tls(certificate=server.certificate, key=server.key, client_ca=authority.certificate, client_role="ingest")
    root = authority.certificate.read_bytes()
    own = grpc.ssl_server_credentials([(server.key.read_bytes(), server.certificate.read_bytes())], root, True)

    def run(told, common_name, methods, use, auth=Auth()):  # noqa: B008  # a frozen value
        client = authority.client(common_name)
        shown = grpc.ssl_channel_credentials(root, client.key.read_bytes(), client.certificate.read_bytes())
        return serve(told, methods, use, Settings(tls=tls, auth=auth), own, shown)

    return run


def test_a_certificate_names_its_client_and_has_its_role(told, mutual):
    async def use(channel):
        assert await call(channel, INGEST, "unary_unary") == "hello till-7"
        return await refused(channel, QUERY)

    methods = {full: answering("unary_unary", name) for full in (INGEST, QUERY)}
    assert type(mutual(told, "till-7", methods, use)) is Forbidden
    assert [event["client"] for event in told.events("rpc")] == ["till-7", "till-7"]


def test_of_token_and_certificate_the_token_decides(told, mutual, tokens):
    settings, secrets, _ = tokens

    async def use(channel):
        assert await call(channel, QUERY, "unary_unary", metadata=bearer(secrets["query"])) == "hello the-query"
        assert await call(channel, INGEST, "unary_unary") == "hello till-7"
        assert type(await refused(channel, INGEST, metadata=bearer(secrets["query"]))) is Forbidden
        return await refused(channel, INGEST, metadata=bearer("garbage"))

    methods = {full: answering("unary_unary", name) for full in (INGEST, QUERY)}
    assert type(mutual(told, "till-7", methods, use, settings.auth)) is Unauthenticated


def test_a_certificate_without_a_name_is_refused(told, mutual):
    async def use(channel):
        return await refused(channel, INGEST)

    assert type(mutual(told, "", {INGEST: answering("unary_unary", name)}, use)) is Unauthenticated


# --- how calls end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_call_is_told_once(told, kind):
    async def use(channel):
        return await call(channel, QUERY, kind)

    assert serve(told, {QUERY: answering(kind, name)}, use) == "hello local"
    assert told.codes() == {(QUERY, "OK"): 1}
    (event,) = told.events("rpc")
    assert (event["method"], event["code"], event["client"]) == (QUERY, "OK", "local")
    assert isinstance(event["seconds"], float)
    assert str(event["peer"]).startswith("ipv4:127.0.0.1:")
    assert told.metrics.registry.get_sample_value("promising_rpc_seconds_count", {"method": QUERY}) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (lambda: NoSuchName("no stream 'x'", "SELECT x", 7), "NOT_FOUND"),
        (lambda: LimitReached("too much", 2.5), "RESOURCE_EXHAUSTED"),
    ],
)
def test_an_error_of_ours_becomes_its_status(told, kind, problem, code):
    async def body(text, context):
        raise problem()

    async def use(channel):
        return await refused(channel, QUERY, kind)

    found = serve(told, {QUERY: answering(kind, body)}, use)
    assert (type(found), str(found)) == (type(problem()), str(problem()))
    assert told.codes() == {(QUERY, code): 1}
    assert told.events("fault") == []
    assert "no stream" not in told.stream.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", [ValueError, Incompatible])
def test_a_fault_has_a_number_and_tells_no_values(told, kind, problem):
    async def body(text, context):
        raise problem("item-4711 costs 13.37")

    async def use(channel):
        return await refused(channel, QUERY, kind)

    found = serve(told, {QUERY: answering(kind, body)}, use)
    assert type(found) is InternalError
    assert told.codes() == {(QUERY, "INTERNAL"): 1}
    (fault,) = told.events("fault")
    assert str(fault["log_id"]) in str(found)
    assert fault["error"] == problem.__name__
    assert isinstance(fault["frames"], list)
    assert fault["frames"][-1].startswith("server/test_access.py:")
    for text in (told.stream.getvalue(), str(found)):
        assert "4711" not in text
        assert "13.37" not in text


def test_an_abort_of_the_handler_keeps_its_code(told):
    async def body(text, context):
        await context.abort(grpc.StatusCode.DATA_LOSS, "gone")

    async def use(channel):
        return await refused(channel, QUERY)

    assert isinstance(serve(told, {QUERY: answering("unary_unary", body)}, use), PromisingError)
    assert told.codes() == {(QUERY, "DATA_LOSS"): 1}


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_request_are_refused(told, kind):
    async def use(channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel, QUERY, kind, raw=b"\xff\xff\xff")
        return caught.value.code()

    assert serve(told, {QUERY: answering(kind, name)}, use) is grpc.StatusCode.INVALID_ARGUMENT
    assert told.codes() == {(QUERY, "INVALID_ARGUMENT"): 1}
    assert told.events("fault") == told.events("library") == []


@pytest.mark.deep("waits for clients that leave")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ended", ["cancel", "deadline"])
def test_a_call_that_its_client_leaves_is_cancelled_inside(told, kind, ended, monkeypatch):
    # The service counts the deadline from when the call arrives: on a busy machine it is later than the client's.
    monkeypatch.setattr(access, "LATE", WAIT)
    seen = []

    def leaves(seconds):
        """Whether the call had begun when its client left."""
        begun, over = asyncio.Event(), asyncio.Event()

        async def body(text, context):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as problem:
                seen.append(type(problem))
                raise
            finally:
                over.set()
            return ""

        async def use(channel):
            await channel.channel_ready()
            task = asyncio.ensure_future(call(channel, QUERY, kind, timeout=seconds))
            beginning = asyncio.ensure_future(begun.wait())
            await asyncio.wait([task, beginning], return_when=asyncio.FIRST_COMPLETED)
            beginning.cancel()
            if ended == "cancel":
                task.cancel()
            with pytest.raises(asyncio.CancelledError if ended == "cancel" else grpc.aio.AioRpcError):
                await task
            if begun.is_set():
                await over.wait()

        serve(told, {QUERY: answering(kind, body)}, use)
        return begun.is_set()

    if ended == "cancel":
        assert leaves(None)
    elif not leaves(1.0):  # a stalled machine had not taken the call in by then
        told.metrics = Metrics()
        assert leaves(WAIT / 4)
    assert seen == [asyncio.CancelledError]
    assert told.codes() == {(QUERY, "CANCELLED" if ended == "cancel" else "DEADLINE_EXCEEDED"): 1}
    assert told.events("fault") == []


def test_a_generator_is_closed_when_its_reader_leaves(told):
    closed = asyncio.Event()

    async def endless(request, context):
        try:
            while True:
                yield TEXT(value="x" * 65_536)
        finally:
            closed.set()

    async def use(channel):
        make = channel.unary_stream(QUERY, TEXT.SerializeToString, TEXT.FromString)
        found = make(TEXT())
        await found.read()
        found.cancel()
        await closed.wait()

    serve(told, {QUERY: handler("unary_stream", endless)}, use)
    assert told.codes() == {(QUERY, "CANCELLED"): 1}


def test_handlers_may_read_and_write_by_themselves(told):
    async def echo(requests, context):
        while (request := await context.read()) is not EOF:
            await context.write(TEXT(value=request.value + access.caller().name))

    async def use(channel):
        return await call(channel, INGEST, "stream_stream")

    assert serve(told, {INGEST: handler("stream_stream", echo)}, use) == "hellolocal"
    assert told.codes() == {(INGEST, "OK"): 1}


def test_a_refused_call_is_not_read(told, tokens):
    """The refusal comes though the client has sent nothing yet."""

    async def use(channel):
        make = channel.stream_unary(INGEST, TEXT.SerializeToString, TEXT.FromString)
        found = make(metadata=bearer("garbage"))
        return await found.code()

    code = serve(told, {INGEST: answering("unary_unary", name)}, use, tokens[0])
    assert code is grpc.StatusCode.UNAUTHENTICATED


def test_outside_a_call_there_is_no_caller():
    with pytest.raises(LookupError):
        access.caller()
    assert Caller("a", frozenset()) == Caller("a", frozenset())
