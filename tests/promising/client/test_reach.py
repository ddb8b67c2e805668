"""Reaching a service: one that is starting, one behind TLS, and credentials in the environment."""

import asyncio
import socket
import threading
from pathlib import Path

import pytest

import promising
from promising.client import aio
from promising.client.channels import place
from promising.errors import BadSettings, Unavailable
from promising.settings import Settings, Tls
from promising.testing.service import running
from tests.promising.server.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def over_tls(authority: Authority) -> Settings:
    own = authority.server()
    return Settings(listen="127.0.0.1:0", tls=Tls(certificate=own.certificate, key=own.key))


def test_plain_text_to_a_tls_port_names_the_option(authority: Authority) -> None:
    with (
        running(over_tls(authority)) as target,
        promising.connect(target, retries=0) as session,
        pytest.raises(Unavailable, match=r"speaks TLS.*--ca"),
    ):
        session.execute("SHOW STREAMS")


def test_tls_to_a_plain_port_names_the_option(authority: Authority) -> None:
    with (
        running() as target,
        promising.connect(target, retries=0, ca=authority.certificate) as session,
        pytest.raises(Unavailable, match=r"plain text.*leave out ca"),
    ):
        session.execute("SHOW STREAMS")


def test_the_ca_may_be_in_the_environment(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMISING_CA", str(authority.certificate))
    with running(over_tls(authority)) as target, promising.connect(target) as session:
        assert session.execute("SHOW STREAMS").num_rows == 0  # type: ignore[union-attr]  # a table
    with running() as target, promising.connect(f"grpc://{target}") as session:
        assert session.execute("SHOW STREAMS").num_rows == 0  # type: ignore[union-attr]  # a table


def test_a_token_given_outweighs_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(token: str | None) -> object:
        return place("h:1", token=token, ca=None, certificate=None, key=None, max_message_bytes=1 << 20).metadata

    assert sent(None) == ()
    monkeypatch.setenv("PROMISING_TOKEN", "prm_env")
    assert sent(None) == (("authorization", "Bearer prm_env"),)
    assert sent("prm_own") == (("authorization", "Bearer prm_own"),)


def test_a_service_that_is_starting_is_awaited(port: int) -> None:
    up, done = threading.Event(), threading.Event()

    def serve() -> None:
        up.wait()
        with running(Settings(listen=f"127.0.0.1:{port}")):
            done.wait()

    thread = threading.Thread(target=serve)
    thread.start()
    later = threading.Timer(0.3, up.set)
    later.start()
    try:
        with promising.connect(f"127.0.0.1:{port}", retries=0, wait=120) as session:
            assert session.execute("SHOW STREAMS").num_rows == 0  # type: ignore[union-attr]  # a table

        async def again() -> object:
            async with aio.connect(f"127.0.0.1:{port}", retries=0, wait=120) as session:
                return (await session.execute("SHOW STREAMS")).num_rows  # type: ignore[union-attr]  # a table

        assert asyncio.run(again()) == 0
    finally:
        up.set()
        done.set()
        thread.join()
        later.join()


def test_a_service_that_never_starts_is_not_awaited_for_ever(port: int) -> None:
    with pytest.raises(Unavailable, match=r"refused.*waited 0\.2 s"):
        promising.connect(f"127.0.0.1:{port}", wait=0.2)
    for wait in (-1, float("nan"), True, "3"):
        with pytest.raises(BadSettings, match="wait"):
            promising.connect(f"127.0.0.1:{port}", wait=wait)  # type: ignore[arg-type]  # on purpose
