"""Off loopback /metrics is for those who show a token or a certificate; health is for everyone."""

import asyncio
import http.client
import socket
import ssl

import pytest

from promising.server import metrics
from promising.server.access_tokens import TokenStore
from promising.server.metrics import Metrics
from promising.server.service import Service
from promising.settings import Auth, Settings, Tls
from tests.promising.server.certificates import Authority

EVERYWHERE = "0.0.0.0:0"


def asked(settings, use):
    """`use(port)` of the endpoint of a running service."""

    async def whole():
        service = Service(settings)
        await service.start()
        try:
            assert service._endpoint is not None
            return await asyncio.to_thread(use, service._endpoint.port)
        finally:
            await service.stop()

    return asyncio.run(whole())


def get(port, path="/metrics", context=None, **headers):
    """Status of a page, and whether it has the metrics."""
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, b"promising_tuples" in response.read()
    finally:
        connection.close()


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def tokens(tmp_path):
    store = TokenStore(tmp_path / "tokens.db")
    yield store
    store.close()


def trusting(authority, pair=None):
    context = ssl.create_default_context(cafile=authority.certificate)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


def test_a_token_is_needed_over_tls_and_not_for_health(tokens, tmp_path):
    authority = Authority(tmp_path)
    own, secret = authority.server(), tokens.create("prometheus", "query")
    settings = Settings(
        listen="127.0.0.1:0",
        metrics_listen=EVERYWHERE,
        auth=Auth(tokens=tokens.path),
        tls=Tls(certificate=own.certificate, key=own.key),
    )

    def use(port):
        context = trusting(authority)
        assert get(port, context=context, **bearer(secret)) == (200, True)
        assert get(port, context=context) == (401, False)
        assert get(port, context=context, **bearer("garbage")) == (401, False)
        assert get(port, context=context, Authorization=secret) == (401, False)
        assert get(port, "/metrics?x=1", context) == (401, False)
        for path in ("/-/healthy", "/-/ready"):
            assert get(port, path, context) == (200, False)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            get(port, **bearer(secret))
        tokens.revoke("prometheus")
        assert get(port, context=context, **bearer(secret)) == (401, False)
        tokens.path.write_bytes(b"")
        assert get(port, context=context, **bearer(secret)) == (503, False)

    asked(settings, use)


@pytest.mark.deep("starts a service")
def test_a_client_certificate_is_as_good_and_not_needed_for_health(tmp_path):
    authority = Authority(tmp_path)
    own = authority.server()
    tls = Tls(certificate=own.certificate, key=own.key, client_ca=authority.certificate)

    def use(port):
        assert get(port, context=trusting(authority, authority.client())) == (200, True)
        assert get(port, context=trusting(authority)) == (401, False)
        assert get(port, context=trusting(authority, authority.client()), **bearer("garbage")) == (401, False)
        assert get(port, "/-/ready", trusting(authority)) == (200, False)

    asked(Settings(listen="127.0.0.1:0", metrics_listen=EVERYWHERE, tls=tls), use)


@pytest.mark.deep("starts a service each")
@pytest.mark.parametrize("how", ["loopback", "anonymous"])
def test_on_loopback_and_on_request_everyone_may(tokens, how):
    tokens.create("one", "query")
    listen = "127.0.0.1:0" if how == "loopback" else EVERYWHERE
    auth = Auth(tokens=tokens.path, anonymous_metrics=how == "anonymous")
    settings = Settings(listen="127.0.0.1:0", metrics_listen=listen, auth=auth)
    assert asked(settings, get) == (200, True)


@pytest.mark.deep("starts a service")
def test_behind_a_proxy_the_token_comes_in_plain_text(tokens):
    secret = tokens.create("one", "ingest")
    auth = Auth(tokens=tokens.path, allow_plaintext=True)
    settings = Settings(listen="127.0.0.1:0", metrics_listen=EVERYWHERE, auth=auth)
    assert asked(settings, lambda port: get(port, **bearer(secret))) == (200, True)


def test_one_connection_too_many_is_closed(monkeypatch):
    monkeypatch.setattr(metrics, "CONNECTIONS", 2)
    endpoint = Metrics().endpoint("127.0.0.1:0", lambda: True)
    try:
        silent = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", endpoint.port)) as third:
            assert third.recv(1) == b""
        for connection in silent:
            connection.close()
        while True:
            try:
                assert get(endpoint.port, "/-/healthy") == (200, False)
                break
            except (http.client.HTTPException, ConnectionError):  # their threads have not noticed so far
                continue
    finally:
        endpoint.stop()
