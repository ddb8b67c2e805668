"""How Spark reaches a service: from machines that have no file of the driver's, and by the functions for users."""

import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql")

import promising.loaders.bulk
import promising.loaders.scale_out
from promising import spark as front
from promising.errors import BadSettings
from promising.settings import Settings, Tls
from promising.testing.service import running
from tests.loaders.data_source_sales import stocked
from tests.promising.server.certificates import Authority


def test_certificates_travel_with_the_task(tmp_path: Path):
    authority = Authority(tmp_path)
    server, client = authority.server(), authority.client()
    tls = Tls(certificate=server.certificate, key=server.key, client_ca=authority.certificate, client_role="admin")
    with stocked() as session, running(Settings(listen="127.0.0.1:0", tls=tls), session) as address:
        made = front.connection(address, ca=authority.certificate, certificate=client.certificate, key=client.key)
        packed = pickle.dumps(made)
        for file in (authority.certificate, client.certificate, client.key):
            file.unlink()
        with pickle.loads(packed)() as opened:
            assert opened.load_plan("s").time == "ts"
    with pytest.raises(BadSettings, match="ca: cannot read"):
        front.connection(address, ca=authority.certificate)


def test_the_functions_for_users_bind_the_service(monkeypatch: pytest.MonkeyPatch):
    def load(spark: Any, service: Any, stream: str, source: Any, **how: Any) -> Any:
        return spark, service.load_plan(stream).stream, source, how

    def scale(spark: Any, connect: Any, sql: str, *, share: float) -> Any:
        with pickle.loads(pickle.dumps(connect))() as service:
            return spark, service.plan_scan(sql, share=share).scans[0].stream

    monkeypatch.setattr(promising.loaders.bulk, "bulk_load", load)
    monkeypatch.setattr(promising.loaders.scale_out, "scale_out", scale)
    with stocked() as session, running(session=session) as address:
        told: Any = front.bulk_load("spark", address, "s", "in.csv", staging="here", token="monday")
        assert told == ("spark", "s", "in.csv", {"staging": "here", "token": "monday"})
        asked: Any = front.query("spark", front.connection(address), "SELECT item FROM s")
        assert asked == ("spark", "s")


def test_a_session_that_cannot_take_our_code_along_is_refused():
    away = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(BadSettings, match="Spark Connect"):
        front.register(away)
