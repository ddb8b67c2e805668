"""Connections: thousands at once, more than are allowed, silent ones, and ones that speak something else."""

import asyncio
import contextlib
import os
import resource
import socket
import struct
import subprocess
import sys
from typing import Any

import grpc
import pytest

from promising.errors import BadSettings
from promising.server import service
from promising.server.admin import resident_bytes
from promising.settings import Settings
from promising.v1 import streams_pb2, streams_pb2_grpc
from tests.promising.server.serving import WAIT, failed, run, stocked, until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # with empty settings
SPARE = 500  # files that something else may need
EACH = 100_000  # bytes that a connection may take

# Opens connections, tells how many of them were answered, holds them until its input ends.
HOLDER = f"""
import resource, select, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held, answered = [], 0
for _ in range(count):
    made = socket.create_connection(("127.0.0.1", port), 100)
    try:
        made.sendall({PREFACE!r})
    except OSError:
        pass
    held.append(made)
for made in held:
    try:
        answered += bool(made.recv(9))
    except OSError:
        pass
print(answered, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Connections are raw: they may greet late on a busy machine, and answer nobody who asks whether they are there."""
    monkeypatch.setattr(service, "HANDSHAKE", 1000 * WAIT)
    monkeypatch.setattr(service, "KEEPALIVE", 1000 * WAIT)


@pytest.fixture
def files():
    """As many open files as this machine allows, and how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files():
    return len(os.listdir("/proc/self/fd"))


class Held:
    """Connections of another process."""

    def __init__(self, port, count):
        self._port, self._count = port, count
        self._process: Any = None

    async def __aenter__(self):
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            HOLDER,
            str(self._port),
            str(self._count),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return int(await self._process.stdout.readline())

    async def __aexit__(self, *_):
        self._process.stdin.close()
        await self._process.wait()


def other_channel(remote):
    """A connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(f"127.0.0.1:{remote.service.port}", options=options)


def listed(channel):
    return streams_pb2_grpc.StreamServiceStub(channel).ListStreams(streams_pb2.ListStreamsRequest(), timeout=WAIT)


async def released(before):
    async def so():
        return open_files() <= before

    await until(so)


@pytest.mark.deep("ten thousand connections")
def test_ten_thousand_connections_at_once(files):
    count = min(10_000, files - SPARE)

    async def body(remote):
        await remote.well()
        before, memory = open_files(), resident_bytes()
        async with Held(remote.service.port, count) as answered:
            assert answered == count
            assert open_files() >= before + count
            await remote.well()
            async with other_channel(remote) as channel:
                assert len((await listed(channel)).streams) == 1
            assert resident_bytes() - memory < EACH * count
        await released(before)
        memory = resident_bytes()
        async with Held(remote.service.port, count // 4) as answered:  # in what the others had
            assert answered == count // 4
            assert resident_bytes() - memory < EACH * count // 10
        await released(before)
        await remote.well()

    run(body, max_connections=count + 10)


def test_connections_over_the_limit_are_closed_and_those_there_are_served():
    async def body(remote):
        await remote.well()  # one is ours
        before = open_files()
        async with Held(remote.service.port, 200) as answered:
            assert answered == 49
            await remote.well()
            async with other_channel(remote) as channel:
                problem = await failed(listed(channel))
                assert problem.code() == grpc.StatusCode.UNAVAILABLE
        await released(before)
        async with other_channel(remote) as channel:
            assert len((await listed(channel)).streams) == 1
        await remote.well()

    run(body, max_connections=50)


async def closed(remote, said):
    """Say something on a connection, and wait until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", remote.service.port)
    writer.write(said)
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), WAIT)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def connected(remote):
    """Connect, however often a busy machine takes longer to do so than the service waits for it."""
    await asyncio.wait_for(remote.channel.channel_ready(), WAIT)


def test_a_connection_that_says_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(service, "HANDSHAKE", 200)

    async def body(remote):
        await connected(remote)
        before = open_files()
        await asyncio.gather(*(closed(remote, said) for said in (b"", b"PRI", PREFACE[:20], PREFACE[:-9])))
        await released(before)
        await remote.well()

    run(body)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
        bytes(1 << 16),
        b"\xff" * (1 << 16),
        PREFACE + b"\xff" * 1000,  # a frame of 16 MB
        PREFACE + b"\x00\x40\x00\x01\x04\x00\x00\x00\x01" + b"\xff" * 16384,  # headers that cannot be decoded
        PREFACE + b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",  # a window update of nothing
    ],
    ids=["http1", "tls", "zeros", "ones", "frame", "headers", "window"],
)
def test_whoever_speaks_something_else_is_cut_off(monkeypatch, said):
    monkeypatch.setattr(service, "HANDSHAKE", 500)

    async def body(remote):
        await connected(remote)
        before = open_files()
        await closed(remote, said)
        await released(before)
        await remote.well()

    run(body)


def test_a_connection_without_calls_is_closed_and_comes_back():
    async def body(remote):
        before = open_files()
        reader, writer = await asyncio.open_connection("127.0.0.1", remote.service.port)
        writer.write(PREFACE)
        await remote.well()
        while await asyncio.wait_for(reader.read(1 << 16), WAIT):
            pass
        writer.close()
        await released(before)
        await remote.well()

    run(body, idle_seconds=0.3)


def test_a_port_that_is_taken_is_told_and_leaves_nothing_running():
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]

    async def body():
        made = service.Service(Settings(listen=f"127.0.0.1:{port}"), stocked(0))
        with pytest.raises(BadSettings, match=f"127.0.0.1:{port} is taken"):
            await made.start()
        await made.stop()

    with taken:
        asyncio.run(body())


def test_half_a_message_holds_up_nobody():
    """Calls whose request has begun and does not go on: others are served, and the service stops."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def literal(name: bytes, value: bytes) -> bytes:
        return bytes([0, len(name)]) + name + bytes([len(value)]) + value

    def asked(stream: int, method: bytes) -> bytes:
        headers = [
            *[(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/promising.v1." + method)],
            *[(b":authority", b"x"), (b"content-type", b"application/grpc"), (b"te", b"trailers")],
        ]
        begun = b"\0" + struct.pack(">I", 1_000) + b"\x0a\x20half of it"  # a message of 1,000 bytes
        return frame(1, 4, stream, b"".join(literal(*h) for h in headers)) + frame(0, 0, stream, begun)

    # Open calls of Ingest count against their client from the start.
    methods = 4 * [b"StreamService/Ingest"] + 50 * [b"QueryService/Query", b"QueryService/Execute"]

    async def body(remote):
        reader, writer = await asyncio.open_connection("127.0.0.1", remote.service.port)
        writer.write(PREFACE)
        for number, method in enumerate(methods):
            writer.write(asked(2 * number + 1, method))
        await writer.drain()
        assert await reader.read(1)  # its settings
        await asyncio.sleep(0.2)
        assert list(remote.service._parts.queries) == []
        await remote.well()
        assert (await remote.query("SELECT count(*) AS n FROM s"))[-1].rows.num_rows == 1
        await remote.service.stop(0.5)
        writer.close()

    run(body)
