"""How a service is reached: one that is starting, one that speaks TLS, and what the environment gives."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import promising
from promising.client import aio
from promising.client.channels import place
from promising.errors import BadSettings, Unavailable
from promising.settings import Settings, Tls
from promising.testing.service import running
from tests.promising.cli.running import Cli
from tests.promising.server.certificates import Authority

PATIENCE = 120  # seconds, so that a test that fails ends


@pytest.fixture
def free():
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def secure(authority):
    """A service with TLS."""
    pair = authority.server()
    with running(Settings(listen="127.0.0.1:0", tls=Tls(certificate=pair.certificate, key=pair.key))) as target:
        yield target


def placed(target="there:1", **given):
    return place(
        target, **{"token": None, "ca": None, "certificate": None, "key": None, "max_message_bytes": 1 << 20} | given
    )


def ask(target, **how):
    with promising.connect(target, retries=0, **how) as session:
        return session.execute("CREATE STREAM s (ts TIMESTAMP, item INT) TIMESTAMP BY ts")


async def ask_async(target, **how):
    async with aio.connect(target, retries=0, **how) as session:
        return await session.execute("CREATE STREAM s (ts TIMESTAMP, item INT) TIMESTAMP BY ts")


@pytest.mark.parametrize(
    "asking",
    [
        lambda target: ask(target, wait=PATIENCE),
        lambda target: asyncio.run(ask_async(target, wait=PATIENCE)),
        lambda target: Cli(target).ok("--wait", f"{PATIENCE}s", "sql", "SHOW STREAMS"),
    ],
    ids=["connect", "aio", "cli"],
)
def test_a_service_that_starts_later(free, asking):
    begun = threading.Event()

    def late():
        begun.set()
        return asking(free)

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(late)
        assert begun.wait(PATIENCE)
        with running(Settings(listen=free)):
            answer.result(PATIENCE)


def test_a_service_that_never_starts(free):
    for asking in (lambda: ask(free, wait=0.05), lambda: asyncio.run(ask_async(free, wait=0.05))):
        with pytest.raises(Unavailable, match="cannot reach the service"):
            asking()
    ended = Cli(free)("--wait", "50ms", "sql", "SHOW STREAMS")
    assert (ended.code, ended.err.splitlines()[0]) == (3, f"error: no service at {free} (Connection refused)")


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "5s", True])
def test_a_wait_that_is_no_number_of_seconds(wait):
    with pytest.raises(BadSettings, match="wait is a number of seconds"):
        promising.connect("there:1", wait=wait)


def test_a_port_that_speaks_tls(secure):
    with pytest.raises(Unavailable, match=f"^the port {secure} speaks TLS"):
        ask(secure)
    ended = Cli(secure)("sql", "SHOW STREAMS")
    assert (ended.code, len(ended.err.splitlines())) == (3, 1)
    assert "--ca FILE" in ended.err and "no service" not in ended.err


def test_a_port_that_does_not_speak_tls(authority):
    with running() as target:
        with pytest.raises(Unavailable, match=f"^the port {target} does not speak TLS"):
            ask(target, ca=authority.certificate)
        ended = Cli(target)("sql", "SHOW STREAMS", "--ca", str(authority.certificate))
    assert (ended.code, len(ended.err.splitlines())) == (3, 1)
    assert "does not speak TLS" in ended.err


def test_the_environment_gives_the_ca(secure, authority, monkeypatch):
    monkeypatch.setenv("PROMISING_CA", str(authority.certificate))
    assert str(ask(secure)) == "stream s created"
    assert Cli(secure)("sql", "SHOW STREAMS").code == 0
    other = Authority(authority.certificate.parent, "other")
    with pytest.raises(Unavailable):
        ask(secure, ca=other.certificate)
    assert placed("grpc://there:1").credentials is None


def test_the_environment_gives_the_token(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMISING_TOKEN", "prm_env")
    assert placed().metadata == (("authorization", "Bearer prm_env"),)
    assert placed(token="prm_given").metadata == (("authorization", "Bearer prm_given"),)
    monkeypatch.setenv("PROMISING_TOKEN", "")
    assert placed().metadata == ()
