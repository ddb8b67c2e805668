"""Who may read /metrics from other machines: whoever has a token, or a client certificate."""

import ssl
from collections.abc import Callable
from typing import NamedTuple

from promising.server.authentication import Authentication
from promising.settings import Settings, guards_metrics


class Guard(NamedTuple):
    """tls: of the endpoint, None for plain HTTP. allows: by the `authorization` header, or a certificate."""

    tls: ssl.SSLContext | None
    allows: Callable[[str | None, bool], bool]


def guard_of(settings: Settings, authentication: Authentication) -> Guard | None:
    """None if everyone may. The pages of health are for everyone, so a client certificate is not required for them."""
    if not guards_metrics(settings):
        return None
    context = None
    if settings.tls.certificate is not None and settings.tls.key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.tls.certificate, settings.tls.key)
        if settings.tls.client_ca is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(settings.tls.client_ca)

    def allows(header: str | None, certified: bool) -> bool:
        return certified if header is None else authentication.shown(header)

    return Guard(context, allows)
