"""A service manager is notified: ready when calls are accepted, stopping when the service drains."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from promising.server import logs, supervisor
from tests.promising.server.serving import WAIT

SERVE = """
from promising.server.service import serve
from promising.settings import Settings
serve(Settings(listen="127.0.0.1:0", drain_seconds=7.5), lambda port: print(port, flush=True))
"""


@contextmanager
def manager(name: str) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(WAIT)
        receiver.bind(name)
        yield receiver


def received(receiver: socket.socket) -> list[str]:
    return receiver.recv(4096).decode().split("\n")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    return str(tmp_path / "notify")


def test_both_states_are_sent(place):
    with manager(place) as receiver:
        supervisor.ready()
        assert received(receiver) == ["READY=1"]
        supervisor.stopping(7.5)
        assert received(receiver) == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=67500000"]


def test_a_name_in_the_abstract_namespace(monkeypatch):
    name = f"promising-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with manager(f"\0{name}") as receiver:
        supervisor.ready()
        assert received(receiver) == ["READY=1"]


@pytest.mark.parametrize("name", [None, ""])
def test_without_a_manager_nothing_happens(monkeypatch, caplog, name):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if name is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", name)
    supervisor.ready()
    supervisor.stopping(1.0)
    assert caplog.records == []


@pytest.mark.parametrize("name", ["/no/such/socket", "vsock:2:1234", "/" + "x" * 200])
def test_a_manager_that_cannot_be_reached_is_logged_and_stops_nothing(monkeypatch, caplog, name):
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with caplog.at_level("WARNING", logs.LOGGER.name):
        supervisor.ready()
    assert [record.getMessage() for record in caplog.records] == ["not_notified"]


def test_a_manager_that_does_not_read_holds_up_nobody(place, monkeypatch, caplog):
    monkeypatch.setattr(supervisor, "SEND", 0.01)
    with manager(place), caplog.at_level("WARNING", logs.LOGGER.name):
        while not caplog.records:  # until the queue of the socket is full
            supervisor.ready()
    assert [record.getMessage() for record in caplog.records] == ["not_notified"]


@pytest.mark.deep("starts a service in a process of its own")
def test_a_service_is_ready_when_it_accepts_calls_and_stopping_before_it_ends(place):
    command = [sys.executable, "-c", SERVE]
    process: Any
    with (
        manager(place) as receiver,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        try:
            assert received(receiver) == ["READY=1"]
            port = int(process.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT)
                assert reply.status == health_pb2.HealthCheckResponse.SERVING
            process.send_signal(signal.SIGTERM)
            assert received(receiver) == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=67500000"]
            assert process.wait(WAIT) == 0
        finally:
            process.kill()
        events = [json.loads(line)["event"] for line in process.stderr if line.startswith(b"{")]
    assert events[-2:] == ["draining", "stopped"]
