"""Connecting: where to, as whom, with how much patience; and what is drawn while an answer is read."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import promising
from promising.client.channels import place
from promising.client.progress_bar import shown
from promising.errors import (
    BadSettings,
    BatchTooLarge,
    DeadlineExceeded,
    Forbidden,
    Unauthenticated,
    Unavailable,
)
from promising.index.regions import Guess
from promising.query.answers import Frame, Progress
from promising.server.access_tokens import TokenStore
from promising.settings import Auth, Settings, Tls
from promising.testing.service import running
from tests.promising.client.flaky import NOTHING, SCHEMA, flaky_service, serving
from tests.promising.server.certificates import Authority

STREAM = "CREATE STREAM s (ts TIMESTAMP, n INT, name VARCHAR) TIMESTAMP BY ts"


def test_a_client_compiles_nothing():
    code = (
        "import promising, promising.client, promising.client.aio, sys;"
        "promising.connect('127.0.0.1:1').close();"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- where to ----------------------------------------------------------------------------------------------------


def placed(target: str = "host:1", **how: Any) -> Any:
    return place(
        target, **{"token": None, "ca": None, "certificate": None, "key": None, "max_message_bytes": 1 << 20} | how
    )


def test_targets(tmp_path: Path):
    authority = Authority(tmp_path)
    assert placed("host:1").address == placed("grpc://host:1").address == placed("grpcs://host:1").address == "host:1"
    assert placed("host:1").credentials is None is placed("grpc://host:1").credentials
    assert placed("grpcs://host:1").credentials is not None
    assert placed(ca=authority.certificate).credentials is not None
    assert placed(token="prm_x").metadata == (("authorization", "Bearer prm_x"),)


@pytest.mark.parametrize(
    ("target", "how", "message"),
    [
        ("http://host:1", {}, "grpcs://host:port is wanted"),
        ("", {}, "the target is empty"),
        ("host:1", {"certificate": "a.pem"}, "certificate and key go together"),
        ("host:1", {"key": "a.pem"}, "certificate and key go together"),
        ("host:1", {"ca": "nowhere.pem"}, "ca: cannot read 'nowhere.pem': No such file"),
        ("grpc://host:1", {"ca": "nowhere.pem"}, "asks for plain text"),
        ("host:1", {"token": ""}, "token"),
        ("host:1", {"token": "a\nb"}, "token"),
        ("host:1", {"max_message_bytes": 10}, "max_message_bytes"),
    ],
)
def test_places_that_cannot_be(target: str, how: dict[str, Any], message: str):
    with pytest.raises(BadSettings, match=message):
        placed(target, **how)


def test_tls_and_tokens(tmp_path: Path):
    authority = Authority(tmp_path)
    server = authority.server()
    store = TokenStore(tmp_path / "tokens.db")
    admin, reader = store.create("anna", ["admin"]), store.create("ben", ["query"])
    settings = Settings(
        listen="127.0.0.1:0",
        tls=Tls(certificate=server.certificate, key=server.key),
        auth=Auth(tokens=tmp_path / "tokens.db"),
    )
    ca = authority.certificate
    with running(settings) as target:
        with promising.connect(target, ca=ca, token=admin) as session:
            session.execute(STREAM)
        with promising.connect(f"grpcs://{target}", ca=ca, token=reader) as session:
            assert session.query("SELECT n FROM s").to_arrow().num_rows == 0
            with pytest.raises(Forbidden):
                session.execute("DROP STREAM s")
            with pytest.raises(Forbidden):
                session.ingest("s", {"ts": [1], "n": [1], "name": ["x"]})
            with pytest.raises(Forbidden):
                session.ingest_many("s", [{"ts": [1], "n": [1], "name": ["x"]}] * 50)
        with promising.connect(target, ca=ca, token="prm_no_such") as session, pytest.raises(Unauthenticated):
            session.query("SELECT n FROM s")
        with promising.connect(target, retries=0, token=admin) as session, pytest.raises(Unavailable):
            session.execute("SHOW STREAMS")  # plain text to a port that speaks TLS


def test_certificates_of_clients(tmp_path: Path):
    authority = Authority(tmp_path)
    server, client = authority.server(), authority.client()
    settings = Settings(
        listen="127.0.0.1:0",
        tls=Tls(certificate=server.certificate, key=server.key, client_ca=authority.certificate, client_role="admin"),
    )
    ca = authority.certificate
    with running(settings) as target:
        with promising.connect(target, ca=ca, certificate=client.certificate, key=client.key) as session:
            assert str(session.execute(STREAM)) == "stream s created"
        with promising.connect(target, ca=ca, retries=0) as session, pytest.raises(Unavailable):
            session.execute("SHOW STREAMS")


# --- patience ----------------------------------------------------------------------------------------------------


def test_the_timeout_is_the_deadline_of_calls_and_queries():
    flaky = flaky_service()
    with serving(flaky) as target, promising.connect(target, timeout=77.0) as session:
        session.estimate("m", [1])
        session.query("SELECT n FROM s").run()
    assert all(left is not None and 0 < left < 78 for left in flaky.deadlines)


def passes(seconds: float) -> bool:
    """Let a deadline pass while an answer is read; False if it passed before there was one."""
    with serving(flaky_service(stay=True)) as target, promising.connect(target, timeout=seconds) as session:
        try:
            answer = session.query("SELECT n FROM s")
        except DeadlineExceeded:
            return False
        with pytest.raises(DeadlineExceeded):
            answer.run()
        return True


@pytest.mark.deep("waits for deadlines")
def test_a_deadline_that_passes():
    assert passes(2.0) or passes(30.0), "the first is too short for a stalled machine"


# --- messages ----------------------------------------------------------------------------------------------------


def test_a_table_goes_in_messages_of_the_size_that_was_said():
    settings = Settings.load(None, {"listen": "127.0.0.1:0", "limits": {"max_message_bytes": 1 << 17}})
    n = 20_000
    table = {"ts": list(range(n)), "n": list(range(n)), "name": [f"item {i}" for i in range(n)]}
    with running(settings) as target:
        with promising.connect(target, max_message_bytes=1 << 17) as session:
            session.execute(STREAM)
            assert session.ingest("s", table).accepted == n
            assert session.query("SELECT n FROM s").to_arrow()["n"].to_pylist() == list(range(n))
            with pytest.raises(BatchTooLarge, match="has to fit into one message"):
                session.ingest("s", table, producer="p", sequence=1)
        with promising.connect(target, retries=0) as session, pytest.raises(Exception, match="larger than max"):
            session.ingest("s", table)


# --- the bar -----------------------------------------------------------------------------------------------------


def frame(rows: int, share: float) -> Frame:
    progress = Progress(
        rows, Guess(100, 100, 100), Guess(share, share / 2, share), share == 1, None, 0.25, (1,), rows, 0, 0
    )
    return Frame(SCHEMA.empty_table(), "append", progress)


def test_the_bar_follows_the_frames():
    out = io.StringIO()
    given = [frame(40, 0.4), frame(100, 1.0)]
    assert list(shown(iter(given), Console(file=out, force_terminal=True, width=100))) == given
    drawn = out.getvalue()
    assert "40.0 %" in drawn and "100.0 %" in drawn
    assert "covered, 20.0 to 40.0; 40 rows, 0.25 s of CPU time" in drawn


def test_the_bar_is_gone_when_the_reader_is():
    out = io.StringIO()
    reading = shown(iter([frame(1, 0.1), frame(2, 0.2)]), Console(file=out, force_terminal=True))
    next(reading)
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    assert out.getvalue().endswith("\x1b[2K")


def test_nothing_is_drawn_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]):
    out = io.StringIO()
    assert len(list(shown(iter([frame(1, 1.0)]), Console(file=out)))) == 1
    assert out.getvalue() == ""
    with serving(flaky_service()) as target, promising.connect(target, progress=True) as session:
        assert session.query("SELECT n FROM s").to_arrow().num_rows == 1
        assert session.query("SELECT n FROM s", progress=False).to_arrow().num_rows == 1
    assert capfd.readouterr() == ("", "")


def test_the_bar_is_asked_for_by_the_session_or_the_query(monkeypatch: pytest.MonkeyPatch):
    asked = []

    def noted(frames: Any) -> Any:
        asked.append(True)
        return frames

    monkeypatch.setattr("promising.client.progress_bar.shown", noted)
    with serving(flaky_service()) as target:
        for default, wish, count in ((False, None, 0), (False, True, 1), (True, None, 1), (True, False, 0)):
            asked.clear()
            with promising.connect(target, progress=default) as session:
                assert session.query("SELECT n FROM s", progress=wish).progress == NOTHING
            assert len(asked) == count
