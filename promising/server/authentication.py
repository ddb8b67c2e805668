"""Who calls: by token, else by client certificate, else the local admin."""

import asyncio
import logging
from typing import Any, NamedTuple

from promising.errors import BadSettings, Unauthenticated, Unavailable
from promising.server import logs
from promising.server.access_tokens import Caller, TokenStore
from promising.settings import Settings

LOCAL = Caller("local", frozenset({"admin"}), "nothing")
REFUSED = "the token is not known, was revoked or has expired"


class Known(NamedTuple):
    """A caller, None if only the running call can show it, by its certificate; and the secret of its token."""

    caller: Caller | None
    secret: str | None = None


class Authentication:
    """Identifies callers by the token in the metadata; without one, by the client certificate, if these are required;
    without either configured, everyone is the local admin.
    """

    def __init__(self, settings: Settings) -> None:
        self._tokens = None if settings.auth.tokens is None else TokenStore(settings.auth.tokens)
        if self._tokens is not None:
            self._tokens.list()  # an unusable token file stops the server's start, instead of refusing clients later
        self._certificates = settings.tls.client_ca is not None
        self._certificate_roles = frozenset({settings.tls.client_role})
        self.by_certificate = Caller("the certificate", self._certificate_roles, "certificate")
        self._waiting: asyncio.Future[None] | None = None
        self._unreadable = False

    async def known(self, metadata: Any) -> Known:
        """The caller of these metadata; raises Unauthenticated."""
        if self._tokens is None:
            return Known(None if self._certificates else LOCAL)
        given = [value for key, value in metadata if key == "authorization"]
        if not given and self._certificates:
            return Known(None)
        if not given:
            raise Unauthenticated("this service asks for a token: send the metadata `authorization: Bearer <token>`")
        secret = bearer(str(given[0])) if len(given) == 1 else ""
        found = await self.check(secret)
        if found is None:
            raise Unauthenticated(REFUSED)
        return Known(found, secret)

    def certified(self, context: Any) -> Caller:
        """The caller by its certificate."""
        names = list(context.auth_context().get("x509_common_name", ()))
        if not names or not names[0]:
            raise Unauthenticated("the client's certificate has no common name to know it by")
        return Caller(names[0].decode("utf-8", "replace"), self._certificate_roles, "certificate")

    async def check(self, secret: str) -> Caller | None:
        """The owner of a secret as of now. While another process writes to the file, one thread waits for all calls."""
        assert self._tokens is not None
        try:
            try:
                found = self._tokens.check(secret, wait=False)
            except BlockingIOError:
                if self._waiting is None or self._waiting.done():
                    self._waiting = asyncio.ensure_future(asyncio.to_thread(self._tokens.refresh))
                    self._waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
                await asyncio.shield(self._waiting)
                found = self._tokens.check(secret, wait=False)
        except (BadSettings, BlockingIOError) as problem:
            if not self._unreadable:
                logs.event("tokens_unreadable", level=logging.ERROR, what=str(problem))
            self._unreadable = True
            raise Unavailable("the service cannot read its tokens now; its log says why") from None
        self._unreadable = False
        return found

    def holds(self, secret: str, who: Caller) -> bool:
        """Whether a token still makes its bearer this caller; True while the file cannot be read."""
        assert self._tokens is not None
        try:
            return self._tokens.check(secret, wait=False) == who
        except (BadSettings, BlockingIOError):
            return True

    def shown(self, header: str) -> bool:
        """Whether an `authorization` header has the token of anyone; from any thread."""
        return self._tokens is not None and self._tokens.check(bearer(header)) is not None

    def close(self) -> None:
        """Close the token file."""
        if self._tokens is not None:
            self._tokens.close()


def bearer(header: str) -> str:
    """The secret in an `authorization` header; empty if there is none."""
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
